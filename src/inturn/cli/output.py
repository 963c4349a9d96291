"""Output of commands: user data cannot control the terminal, is never read as markup, and is cut if it is long.

A table's cell is a :func:`cell`, a name in a sentence is a :func:`one_line`, and everything else goes through
:func:`print_text` or, whole, through :func:`print_json`.
"""

import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from inturn.core.texts import shown, visible

_SHOWN = 20
"""The number of groups that a report names; JSON contains all of them."""

_WIDTH = 10_000
"""The maximum width of a table in characters; a cell has at most :data:`inturn.core.limits.SHOWN_LENGTH`."""


def one_line(text: str) -> str:
    r"""Return user data for a sentence: on one line, controls as ``\x1b``, a long text cut."""
    return shown(text)


def cell(text: str, style: str = "") -> Text:
    """Return user data for a table cell; a plain string there would be read as markup."""
    return Text(one_line(text), style)


def visible_lines(text: str) -> str:
    """Return text of several lines with controls made visible."""
    return text if text.isprintable() else "\n".join(map(visible, text.split("\n")))


def print_text(text: str, *, err: bool = False) -> None:
    """Print lines with controls made visible."""
    typer.echo(visible_lines(text), err=err)


def print_line(console: Console, text: str, style: str = "") -> None:
    """Print a line that contains user data, without markup and in full length."""
    console.print(Text(visible_lines(text), style), soft_wrap=True)


def print_table(table: Table) -> None:
    """Print a table in full: cells are folded at a terminal; elsewhere the table is as wide as its content."""
    console = plain_console()
    for column in table.columns:
        column.overflow = "fold"
    if not console.is_terminal:
        unbound = console.options.update(max_width=_WIDTH)
        console.width = max(console.width, Measurement.get(console, unbound, table).maximum)
    console.print(table)


def print_json(document: Any, **json_options: Any) -> None:
    """Print one line of JSON in full."""
    typer.echo(json_line(document, **json_options))


def print_json_array(items: Iterable[Any], **json_options: Any) -> None:
    """Print a JSON array on one line, item by item: only one is in memory at a time."""
    before = "["
    for item in items:
        typer.echo(f"{before}{json_line(item, **json_options)}", nl=False)
        before = ", "
    typer.echo("[]" if before == "[" else "]")


def print_truncated(rows: str) -> None:
    """Print that a table is incomplete; ``what`` names the rows that it shows."""
    print_text(f"Shown: {rows}; use --limit for more, or --json for all.", err=True)


def json_line(document: Any, **json_options: Any) -> str:
    """Return one line of JSON; non-printable characters are escaped, so that every parser restores the text."""
    text = json.dumps(document, ensure_ascii=False, **json_options)
    if not text.isprintable():  # only within strings: JSON itself is printed on one line
        text = "".join(character if character.isprintable() else json.dumps(character)[1:-1] for character in text)
    return text


def plain_console(*, stderr: bool = False) -> Console:
    """Return a console without markup."""
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False)


def confirm(text: str, *, asks: bool, as_json: bool) -> None:
    """Print what is about to be done and, if wanted and a terminal is attached, ask whether to continue.

    Raises:
        typer.Abort: if the answer is no.
    """
    if asks and is_interactive():
        typer.confirm(f"{text}; continue?", abort=True, err=as_json)
    elif not as_json:
        print_text(f"{text}.")


def confirm_loss(question: str, *, yes: bool, as_json: bool) -> None:
    """Ask a question before something is removed permanently; without an answer nothing is removed.

    Raises:
        typer.Abort: if the answer is no, or there is none.
    """
    if not yes:
        typer.confirm(visible_lines(question), abort=True, err=as_json)  # standard output is for the JSON then


@contextlib.contextmanager
def progress(title: str, total: int, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on standard error, only at a terminal; yield a callback that advances it."""
    from rich.progress import Progress

    console = plain_console(stderr=True)
    with Progress(console=console, transient=True, disable=quiet or total < 2 or not console.is_terminal) as shown_now:
        task = shown_now.add_task(title, total=total)
        yield lambda count: shown_now.advance(task, count)


def print_reasons(outcome: str, groups: Mapping[str, str]) -> None:
    """Print the outcome and the reason for the first groups; JSON contains all of them."""
    for name, reason in list(groups.items())[:_SHOWN]:
        print_text(f"  {one_line(name)}: {outcome}, {one_line(reason)}")
    if len(groups) > _SHOWN:
        print_text(f"  … and {len(groups) - _SHOWN:,} more {outcome}; use --json for all.")


def is_interactive() -> bool:
    """Return whether standard input is a terminal, so that a user can answer a question."""
    return sys.stdin.isatty()
