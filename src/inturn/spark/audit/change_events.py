"""Recognition of Debezium's change events, whose group is a field of the row after the change or, for a delete, before.

A pipeline names one path for its group, so :class:`inturn.ingest.DebeziumMapping` gives each event that group. Fields
of the row are not an order: a delete has none after it, and those before a change belong to the change before.
"""

from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StructType

from inturn.core.values.path import joined, parts
from inturn.spark.audit.report import LogColumns
from inturn.spark.columns.dataframe import sql_of, type_at

_ROOTS = ((), ("payload",))
"""Paths to an event: a record contains it alone, or together with its schema."""
_ROWS = ("after", "before")
GROUP_FIELD = "row"
"""The field in which the proposed pipeline finds the group that the mapping gives."""


@dataclass(frozen=True)
class ChangeEvents:
    """The columns of a log of change events.

    Attributes:
        root: path to the event within a message.
    """

    root: tuple[str, ...]

    @classmethod
    def of(cls, df: DataFrame) -> "ChangeEvents | None":
        """Return the location of change events in the log; None if it contains other messages."""
        for root in _ROOTS:
            row, source, op = (
                [type_at(df.schema, (*root, name)) for name in names] for names in (_ROWS, ("source",), ("op",))
            )
            has_rows = any(isinstance(kind, StructType) for kind in row)
            if has_rows and isinstance(source[0], StructType) and op[0] is not None and op[0].typeName() == "string":
                return cls(root)
        return None

    @property
    def position(self) -> str:
        """The path of the position in the database's log."""
        return joined((*self.root, "source", "lsn"))

    def row_field(self, path: str) -> str | None:
        """Return the field of the row that a path names, as ``id`` of ``after.id``; None if it names another."""
        at = len(self.root)
        names = tuple(parts(path))
        is_row = names[:at] == self.root and len(names) > at + 1 and names[at] in _ROWS
        return joined(names[at + 1 :]) if is_row else None

    def group(self, df: DataFrame, path: str) -> Column | None:
        """Return the group by a field of the row after the change, or else before; None for another path."""
        field = self.row_field(path)
        if field is None:
            return None
        ways = [joined((*self.root, row, *parts(field))) for row in _ROWS]
        there = [F.expr(sql_of(way)).cast("string") for way in ways if type_at(df.schema, parts(way)) is not None]
        return F.coalesce(*there)

    def known(self, kinds: dict[str, str], keys: LogColumns) -> dict[str, str]:
        """Return the columns that could give an order or a time: no fields of the row, unless they are named."""
        named = (keys.order, keys.order_by, keys.epoch, keys.arrival, keys.time)
        return {path: kind for path, kind in kinds.items() if path in named or self.row_field(path) is None}

    def mapped(self, keys: LogColumns) -> LogColumns | None:
        """Return the columns as a pipeline sees them after the mapping; None if it needs no mapping."""
        if self.row_field(keys.group) is None:
            return None
        return replace(keys.renamed(self.inside), group=GROUP_FIELD)

    def inside(self, path: str) -> str:
        """Return a path relative to the event."""
        names = tuple(parts(path))
        return joined(names[len(self.root) :]) if names[: len(self.root)] == self.root else path
