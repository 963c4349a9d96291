"""The user's types and rows as Arrow columns: lossless conversion, names, checks."""
