"""The store: what is committed, where its files are, how they are read and written."""
