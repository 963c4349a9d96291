"""`python -m inturn.cli`: the same as `inturn`."""

from inturn.cli.main import app

app()
