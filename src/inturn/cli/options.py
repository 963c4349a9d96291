"""Options that several commands share."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from inturn.core.errors import InputError

if TYPE_CHECKING:
    from inturn.spark.local.csv import Dialect

TABLE_ROWS: Final = 100
"""The number of rows that a table shows by default; --limit changes it."""

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")]
DatabaseAt = Annotated[str, typer.Argument(metavar="DATABASE", help="Database: shop.db or postgresql://….")]
StoreAt = Annotated[
    str,
    typer.Argument(help="Store: a directory, or DATABASE#PIPELINE, such as shop.db#ledger or postgresql://…#ledger."),
]
AsDocument = AsJson
AsLines = Annotated[bool, typer.Option("--json", help="Print one JSON document per line.")]
PipelineAt = Annotated[str, typer.Argument(help="Location of the pipeline: ledger.py:ledger or package.module:name.")]
GroupName = Annotated[str, typer.Argument(help="Name of the group.")]
Groups = Annotated[list[str] | None, typer.Argument(help="Names of groups; the options are another way to select.")]
All = Annotated[bool, typer.Option("--all", help="Select all groups to which the command applies.")]
ErrorLike = Annotated[
    str | None,
    typer.Option(
        "--error", help="Select groups by the last line of the error: a shell pattern, such as 'ValueError*'."
    ),
]
GroupLike = Annotated[
    list[str] | None,
    typer.Option("--group", help="Select groups by name: a shell pattern, such as 'eu-*' (repeatable)."),
]
YesToMany = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Limit = Annotated[
    int | None,
    typer.Option(help=f"Maximum number of results (default: all; {TABLE_ROWS} in a table).", min=1, max=10**9),
]
Delimiter = Annotated[str | None, typer.Option(help="CSV delimiter (default: a comma).")]
Quote = Annotated[
    str | None, typer.Option(help="CSV quote character; '' for files without quotes (default: a double quote).")
]
Encoding = Annotated[str | None, typer.Option(help="CSV character encoding (default: UTF-8).")]
Null = Annotated[str | None, typer.Option(help="CSV text read as null, besides the empty value, such as NA.")]


def dialect_of(
    delimiter: str | None, quote: str | None, encoding: str | None, null: str | None, *, csv: bool
) -> "Dialect | None":
    """Return the dialect of CSV files; None if no option is given.

    Raises:
        InputError: if an option is invalid, or the files are not CSV.
    """
    given = {"delimiter": delimiter, "quote": quote, "encoding": encoding, "null": null}
    said = {name: value for name, value in given.items() if value is not None}
    if not said:
        return None
    if not csv:
        raise InputError(f"--{next(iter(said))} is only for CSV files; omit it, or add --format csv")
    from inturn.spark.local.csv import Dialect

    return Dialect(**said)


def check_selects(names: list[str] | None, groups: list[str] | None, error: str | None, *, every: bool) -> None:
    """Check that at least one option selects groups.

    Raises:
        InputError: if none of them is given.
    """
    if not (names or groups or error is not None or every):
        raise InputError("no group is selected; name groups, or pass --group, --error or --all")
