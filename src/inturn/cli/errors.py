"""What a command says when it cannot do what it was asked: one paragraph, no traceback, exit code 1."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from inturn.core.errors import InturnError

_errors = Console(stderr=True)


@contextmanager
def told() -> Iterator[None]:
    """Errors of ours are for the user to mend: no traceback."""
    try:
        yield
    except InturnError as error:
        _errors.print(f"[bold red]{type(error).__name__}[/]: ", end="")
        _errors.print(str(error), markup=False, highlight=False)
        raise typer.Exit(1) from error
