"""Shared parts of pages: SVG pictures, display of names from data, templates, the style sheet."""
