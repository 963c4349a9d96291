"""The options that several commands have."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from inturn.core.errors import InputError

if TYPE_CHECKING:
    from inturn.spark.local.csv import Dialect

TABLE_ROWS: Final = 100
"""Number of rows that are shown as a table, unless --limit says another."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DatabaseAt = Annotated[str, typer.Argument(metavar="DATABASE", help="The file, such as shop.db, or postgresql://….")]
StoreAt = Annotated[
    str,
    typer.Argument(
        help="The store: a directory, or DATABASE#PIPELINE, such as shop.db#ledger or postgresql://…#ledger."
    ),
]
AsDocument = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
PipelineAt = Annotated[str, typer.Argument(help="Where the pipeline is: ledger.py:ledger or package.module:name.")]
GroupName = Annotated[str, typer.Argument(help="The group.")]
Groups = Annotated[list[str] | None, typer.Argument(help="The groups, by name; or select them by options.")]
All = Annotated[bool, typer.Option("--all", help="Select all groups to which the decision applies.")]
ErrorLike = Annotated[
    str | None, typer.Option("--error", help="Select by the last line of the error: a shell pattern, 'ValueError*'.")
]
GroupLike = Annotated[
    list[str] | None, typer.Option("--group", help="Select by name: a shell pattern, 'eu-*'; may be repeated.")
]
YesToMany = Annotated[bool, typer.Option("--yes", help="Do not ask before a decision about many groups.")]
Limit = Annotated[
    int | None, typer.Option(help=f"How many at most; default: all, of a table {TABLE_ROWS}.", min=1, max=10**9)
]
Delimiter = Annotated[str | None, typer.Option(help="CSV: what separates values; default: a comma.")]
Quote = Annotated[
    str | None, typer.Option(help="CSV: what is around values; default: a double quote; '' is for files without.")
]
Encoding = Annotated[str | None, typer.Option(help="CSV: the encoding of the text; default: UTF-8.")]
Null = Annotated[str | None, typer.Option(help="CSV: a text that means nothing is there, beside the empty one: NA.")]


def dialect_of(
    delimiter: str | None, quote: str | None, encoding: str | None, null: str | None, *, csv: bool
) -> "Dialect | None":
    """Return the dialect of CSV files; None if no option is given.

    Raises:
        InputError: if an option is invalid, or the files have another form.
    """
    given = {"delimiter": delimiter, "quote": quote, "encoding": encoding, "null": null}
    said = {name: value for name, value in given.items() if value is not None}
    if not said:
        return None
    if not csv:
        raise InputError(f"--{next(iter(said))} is for CSV files; leave it out, or add --format csv")
    from inturn.spark.local.csv import Dialect

    return Dialect(**said)


def check_selects(names: list[str] | None, groups: list[str] | None, error: str | None, *, every: bool) -> None:
    """Check that options of a command about groups select some.

    Raises:
        InputError: if none of them is given.
    """
    if not (names or groups or error is not None or every):
        raise InputError("no group is selected; name groups, or give --group, --error or --all")
