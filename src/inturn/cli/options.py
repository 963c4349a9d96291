"""Options that several commands share, alone or as one value."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from inturn.cli.option_groups import given_options
from inturn.core import limits
from inturn.core.errors import InputError, PipelineError
from inturn.core.pipeline.selection import Selection
from inturn.core.values.duration import duration_us

if TYPE_CHECKING:
    from inturn.spark.local.csv import Dialect

TABLE_ROWS: Final = 100
"""The number of rows that a table shows by default; --limit changes it."""

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")]
AsLines = Annotated[bool, typer.Option("--json", help="Print one JSON document per line.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DatabaseAt = Annotated[str, typer.Argument(metavar="DATABASE", help="Database: shop.db or postgresql://….")]
StoreAt = Annotated[
    str,
    typer.Argument(help="Store: a directory, or DATABASE#PIPELINE, such as shop.db#ledger or postgresql://…#ledger."),
]
QueueAt = Annotated[str, typer.Argument(metavar="DATABASE#QUEUE", help="Queue, such as shop.db#payments.")]
PipelineAt = Annotated[str, typer.Argument(help="Location of the pipeline: ledger.py:ledger or package.module:name.")]
MessagesFrom = Annotated[
    str,
    typer.Option(
        "--from",
        help="Messages: a file, a folder, a URI that Spark reads, or a queue, shop.db#payments or postgresql://…#…; "
        "for run also a topic, kafka://HOST:PORT/TOPIC.",
    ),
]
GroupName = Annotated[str, typer.Argument(help="Name of the group.")]
Groups = Annotated[list[str] | None, typer.Argument(help="Names of groups; the options are another way to select.")]
All = Annotated[bool, typer.Option("--all", help="Select all groups to which the command applies.")]
ErrorLike = Annotated[
    str | None, "Select groups by the last line of the error: a shell pattern, such as 'ValueError*'."
]
GroupLike = Annotated[list[str] | None, "Select groups by name: a shell pattern, such as 'eu-*' (repeatable)."]
Limit = Annotated[int, typer.Option(help="Maximum number of results.", min=1, max=limits.READ_MESSAGES)]
RowLimit = Annotated[
    int | None,
    typer.Option(help=f"Maximum number of results (default: all; {TABLE_ROWS} in a table).", min=1, max=10**9),
]
Host = Annotated[
    str | None, "Address to listen on; one that is not loopback needs access keys or log-in (default: 127.0.0.1)."
]
TlsCert = Annotated[Path | None, "Certificate for HTTPS (PEM)."]
TlsKey = Annotated[Path | None, "Private key of the certificate (PEM)."]
StatesTo = Annotated[str | None, "Table in PostgreSQL for the states: postgresql://…#TABLE."]
SparkMaster = Annotated[str, "Spark master: local[*], spark://…, or sc://… for Spark Connect."]


@dataclass(frozen=True, kw_only=True)
class GroupOptions:
    """The selection of groups: by name, or by patterns."""

    groups: Groups = None
    every: All = False
    error: ErrorLike = None
    group: GroupLike = None

    @property
    def name(self) -> str | None:
        """The name, if it is the only criterion."""
        names = self.groups or []
        return names[0] if len(names) == 1 and not (self.every or self.error or self.group) else None

    @property
    def selection(self) -> Selection:
        """The selection.

        Raises:
            InputError: if nothing is selected, or names and patterns are mixed.
        """
        if not (self.groups or self.group or self.error is not None or self.every):
            raise InputError("no group is selected; name groups, or pass --group, --error or --all")
        return Selection(tuple(self.groups or ()), tuple(self.group or ()), self.error, is_all=self.every)


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """The format of files, and the dialect of CSV; None selects the default."""

    format_: Annotated[
        str | None, "Format of the files: parquet, json (JSON lines) or csv (default: by their names)."
    ] = None
    delimiter: Annotated[str | None, "CSV delimiter (default: a comma)."] = None
    quote: Annotated[str | None, "CSV quote character; '' for files without quotes (default: a double quote)."] = None
    encoding: Annotated[str | None, "CSV character encoding (default: UTF-8)."] = None
    null: Annotated[str | None, "CSV text read as null, besides the empty value, such as NA."] = None

    @property
    def csv(self) -> dict[str, str]:
        """The given options of CSV."""
        return {name: value for name, value in given_options(self).items() if name not in ("format_", "preset")}

    def dialect(self, *, csv: bool = True) -> "Dialect | None":
        """Return the dialect of files that may be CSV; None if no option is given.

        Raises:
            InputError: if an option is invalid, or the files are not CSV.
        """
        if not self.csv:
            return None
        if not csv or self.format_ not in (None, "csv"):
            raise InputError(f"--{next(iter(self.csv))} is only for CSV files; omit it, or add --format csv")
        from inturn.spark.local.csv import Dialect

        return Dialect(**self.csv)


@dataclass(frozen=True, kw_only=True)
class MessageFileOptions(FileOptions):
    """The format of files of messages, and the kind of the messages."""

    preset: Annotated[
        str | None, "Kind of messages: debezium, for change events, to which it adds row, table and position."
    ] = None

    @property
    def has_change_events(self) -> bool:
        """True if the messages are Debezium's change events.

        Raises:
            InputError: if the kind is not known.
        """
        if self.preset not in (None, "debezium"):
            raise InputError(f"--preset {self.preset!r} is not known; expected debezium")
        return self.preset is not None


def duration_of(option: str, text: str) -> int:
    """Return the duration of an option in microseconds.

    Raises:
        InputError: if it is not valid.
    """
    try:
        return duration_us(text, label=option)
    except PipelineError as error:
        raise InputError(str(error)) from error
