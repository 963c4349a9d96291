"""The command line: `inturn`, or `python -m inturn.cli`."""

from inturn.cli.main import app

__all__ = ["app"]
