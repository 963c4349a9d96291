"""Shared parts of pages: SVG pictures and their ticks, display of names from data, templates, the style sheet."""
