"""Shared parts of pages: pictures as SVG, names from foreign data, templates, the style."""
