"""The results of pipelines in a database, readable without the user's code."""
