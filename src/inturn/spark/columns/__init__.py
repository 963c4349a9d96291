"""The user's types and rows as Arrow columns: what goes in comes back as it was, in order."""
