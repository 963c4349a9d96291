"""A DataFrame as an audited log: each message as a few columns of numbers that an audit sorts.

No row is processed in Python. A message without a group or a place gets a timeline of its own, so that it is counted
with the others and does not affect them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StructType

from inturn.core.errors import InputError
from inturn.core.values.instant import MICROSECONDS
from inturn.core.values.path import joined, parts
from inturn.spark.audit import values
from inturn.spark.audit.files import arrival_order
from inturn.spark.audit.report import LogColumns
from inturn.spark.columns.dataframe import quoted, sql_of, type_at
from inturn.spark.columns.names import CORRUPT, OWN

_CLOCKS = ("received_at", "arrived_at", "ingested_at", "timestamp", "ts", "time", "at", "occurred_at", "event_time")
"""Names of columns that are probably the log's clock, the most likely first."""
_SPLIT_BITS = 40
"""Width of the offset of a file's split; the bits above hold the file's number."""

_BEGINS, _FILE, _FROM, _NUMBER, _PATH, _WHOLE = (
    f"{OWN}{name}" for name in ("begins", "file", "from", "number", "path", "whole")
)
"""Columns in addition to those of the log."""

GOOD, UNREADABLE, NO_GROUP, NO_ORDER = range(4)
"""Values of ``status`` in a row."""

Key: TypeAlias = tuple[str, ...]
GROUP: Final[Key] = ("group_hash", "group")
"""The columns that the messages of one timeline share; one column less saves a sixth of the sort's cost."""
EPOCH: Final[Key] = (*GROUP, "epoch")
"""The same for groups with epochs."""
ROW: Final[Key] = ("arrival", "row")
"""The columns that name one row, and sort rows by arrival."""

_ROOTS = ((), ("payload",))
"""Paths to a change event: a record contains it alone, or together with its schema."""
_ROWS = ("after", "before")
GROUP_FIELD = "row"
"""The field in which the proposed pipeline finds the group that the mapping gives."""


@dataclass(frozen=True)
class ChangeEvents:
    """The columns of a log of Debezium's change events, whose group is in the row after a change or, deleted, before.

    A pipeline names one path for its group, so :class:`inturn.ingest.DebeziumMapping` gives each event that group.
    Fields of the row are not an order: a delete has none after it, and those before a change belong to the change
    before.

    Attributes:
        root: path to the event within a message; None for a log of other messages.
    """

    root: tuple[str, ...] | None

    @classmethod
    def of(cls, df: DataFrame) -> "ChangeEvents":
        """Return the location of change events in the log, if it contains any."""
        for root in _ROOTS:
            row, source, op = (
                [type_at(df.schema, (*root, name)) for name in names] for names in (_ROWS, ("source",), ("op",))
            )
            has_rows = any(isinstance(kind, StructType) for kind in row)
            if has_rows and isinstance(source[0], StructType) and op[0] is not None and op[0].typeName() == "string":
                return cls(root)
        return cls(None)

    @property
    def position(self) -> str | None:
        """The path of the position in the database's log."""
        return None if self.root is None else joined((*self.root, "source", "lsn"))

    def row_field(self, path: str) -> str | None:
        """Return the field of the row that a path names, as ``id`` of ``after.id``; None if it names another."""
        if self.root is None:
            return None
        depth, names = len(self.root), tuple(parts(path))
        is_row = names[:depth] == self.root and len(names) > depth + 1 and names[depth] in _ROWS
        return joined(names[depth + 1 :]) if is_row else None

    def group(self, df: DataFrame, path: str) -> Column:
        """Return the group as text: by a field of the row, the one after the change, or else before."""
        field = self.row_field(path)
        if self.root is None or field is None:
            return values.column(df, path).cast("string")
        ways = [joined((*self.root, row, *parts(field))) for row in _ROWS]
        existing = [F.expr(sql_of(path)).cast("string") for path in ways if type_at(df.schema, parts(path)) is not None]
        return F.coalesce(*existing)

    def order_candidates(self, kinds: dict[str, str], keys: LogColumns) -> dict[str, str]:
        """Return the columns that could give an order or a time: no fields of the row, unless they are named."""
        named = (keys.order, keys.order_by, keys.epoch, keys.arrival, keys.time)
        return {path: kind for path, kind in kinds.items() if path in named or not self._is_of_row(path)}

    def _is_of_row(self, path: str) -> bool:
        is_added = self.root is not None and len(parts(path)) > 1 and parts(path)[0] == GROUP_FIELD  # by debezium()
        return is_added or self.row_field(path) is not None

    def mapped_columns(self, keys: LogColumns) -> LogColumns:
        """Return the columns as a pipeline sees them: after the mapping, if it needs one, relative to the event."""
        if self.root is None or self.row_field(keys.group) is None:
            return keys
        root = self.root

        def inside(path: str) -> str:
            names = tuple(parts(path))
            return joined(names[len(root) :]) if names[: len(root)] == root else path

        return replace(keys.renamed(inside), group=GROUP_FIELD)


@dataclass(frozen=True)
class AuditLog:
    """A DataFrame, and how it is read as a log.

    Attributes:
        arrival_text: source of the order of arrival, in words.
        order_candidates: kinds of the columns that could give an order, see
            :func:`inturn.spark.audit.values.numbers_and_times`.
        files: files from which the rows are read, in order of arrival; empty for other inputs.
        kinds: types of the columns by their paths, if ``df`` has them as text; None: those of ``df``.
        events: the columns of Debezium's change events.
    """

    df: DataFrame
    keys: LogColumns
    arrival_text: str
    is_time: bool
    order_candidates: dict[str, str]
    files: tuple[str, ...]
    kinds: Mapping[str, str] | None
    events: ChangeEvents

    @classmethod
    def of(
        cls,
        df: DataFrame,
        keys: LogColumns,
        files: Sequence[str] | None = None,
        kinds: Mapping[str, str] | None = None,
    ) -> "AuditLog":
        """Check the columns, and search for the log's clock if none is named.

        Args:
            df: the messages.
            keys: named columns.
            files: files in order of arrival; None sorts them by name.
            kinds: types of the columns by their paths, if ``df`` has them as text.

        Raises:
            InputError: if a column does not exist, or its type does not fit its role.
        """
        if df.isStreaming:
            raise InputError("the input is a stream; an audit takes a DataFrame that was read with spark.read")
        if keys.order and keys.order_by:
            settings = f"order is {keys.order!r} and order_by is {keys.order_by!r}"
            raise InputError(f"{settings}; pass one: order counts, order_by only sorts")
        keys = keys.renamed(lambda name: values.resolve_path(df, name))
        values.check_columns(df, keys)
        if keys.order is not None and values.type_of(df, keys.order) in values.TIMES:
            msg = f"the column {keys.order!r} is a time, which is not a count; use --order-by (order_by=) for it"
            raise InputError(msg)
        events = ChangeEvents.of(df)
        known = events.order_candidates(values.numbers_and_times(df), keys)
        is_time = keys.order_by is not None and values.column_kind(df, keys.order_by, known) not in (None, "number")
        if keys.time is None:
            keys = replace(keys, time=keys.order_by if is_time else _likely_clock(keys, known))
        listed = arrival_order(df, files)
        return cls(df, keys, _arrival_text(keys, listed, by_name=files is None), is_time, known, listed, kinds, events)

    @property
    def shows_gaps(self) -> bool:
        """True if the order counts, so that gaps are visible."""
        return self.keys.order is not None

    @property
    def timeline_key(self) -> Key:
        """The columns that the messages of one timeline share."""
        return GROUP if self.keys.epoch is None else EPOCH

    @property
    def hides_restarts(self) -> bool:
        """True if numbers may start again without a column that shows it."""
        return self.shows_gaps and self.keys.epoch is None

    @property
    def unit(self) -> str:
        """The unit of the order's times, if they are numbers since 1970."""
        kind = None if self.keys.order_by is None else self.order_candidates.get(self.keys.order_by)
        return kind if kind in MICROSECONDS else "us"

    @property
    def arrival_columns(self) -> tuple[str, ...]:
        """The columns of a row that sort a group's messages by arrival.

        Messages with equal values in the arrival column are in their own order, in which a pipeline reads them.
        """
        ties = ("epoch", "place") if self.keys.arrival is not None and self.keys.place is not None else ()
        return (ROW[0], *ties, ROW[1])

    @property
    def content_columns(self) -> list[str]:
        """The columns of the content: all except those that describe the delivery."""
        left_out = {(CORRUPT,), *map(parts, self._delivery_columns)}
        return [name for name in self.df.columns if (name,) not in left_out]

    @property
    def _delivery_columns(self) -> list[str]:
        return [*self.keys.ignore, *([self.keys.arrival] if self.keys.arrival else [])]

    def rows(self, *more: Column) -> DataFrame:
        """Return a row for each message, with these columns and further ones.

        ``group_hash``, ``group`` and ``epoch``; ``place`` in the order; ``content`` and ``id``, which are hashes;
        ``time`` in microseconds; ``arrival`` and ``row``, which sort by arrival and name one row; ``status``: why it
        has no place.
        """
        keys = self.keys
        nothing = F.lit(None).cast("bigint")
        df, arrival = self._with_arrival()
        group = self.events.group(df, keys.group)
        unread = values.unreadable(self.df)
        if CORRUPT in df.columns:
            unread |= values.column(df, CORRUPT).isNotNull()
        bad = (
            F.when(unread, UNREADABLE)
            .when(group.isNull(), NO_GROUP)
            .when(self._lacks_place(), NO_ORDER)
            .otherwise(GOOD)
        )
        own_id = None if keys.id is None else values.column(df, keys.id)
        base = df.select(
            group.alias("group"),
            self._epoch().alias("epoch"),
            self._place().alias("place"),
            self._content().alias("content"),
            (nothing if own_id is None else F.when(own_id.isNotNull(), F.xxhash64(own_id))).alias("id"),
            (nothing if keys.time is None else values.microseconds(df, keys.time, self.order_candidates)).alias("time"),
            arrival.alias("arrival"),
            F.monotonically_increasing_id().alias("row"),
            bad.alias("status"),
            *more,
        )
        # A message without a place has its own timeline: no two numbers have the same xxhash64.
        is_good = F.col("status") == GOOD
        of_row = F.when(is_good, F.xxhash64("group")).otherwise(F.xxhash64("row"))
        return base.withColumns({"group_hash": of_row, "group": F.when(is_good, F.col("group"))})

    def messages(self) -> DataFrame:
        """Return the whole messages as ``message``, with their ``arrival`` and ``row``, and the ``file`` of each."""
        message = F.struct(*(F.col(quoted(name)) for name in self.df.columns)).alias(_WHOLE)
        file = F.col("_metadata.file_path") if self.files else F.lit(None).cast("string")
        df, arrival = self._with_arrival(message, file.alias(_FROM))
        row, renamed = F.monotonically_increasing_id().alias("row"), {_FROM: "file", _WHOLE: "message"}
        return df.select(arrival.alias("arrival"), row, *(F.col(own).alias(name) for own, name in renamed.items()))

    def invalid_places(self) -> list[str]:
        """Return some values that should give a message's place but do not."""
        names = [name for name in (self.keys.place, self.keys.epoch, self.keys.arrival) if name is not None]
        texts = [values.column(self.df, name).cast("string").alias(f"v{index}") for index, name in enumerate(names)]
        group = self.events.group(self.df, self.keys.group).alias("group")
        lacking = self.df.where(self._lacks_place()).select(group, *texts).where(F.col("group").isNotNull())
        rows = lacking.distinct().orderBy("group", "v0").limit(3)
        return [
            f"{row.group}: {', '.join(f'{name} is {row[index + 1]!r}' for index, name in enumerate(names))}"
            for row in rows.collect()
        ]

    def _place(self) -> Column:
        """Return a message's place in the order; without an order, its content, so that only copies share a place."""
        name = self.keys.place
        if name is None:
            return self._content()
        return (
            values.microseconds(self.df, name, self.order_candidates)
            if self.is_time
            else values.whole_numbers(self.df, name)
        )

    def _lacks_place(self) -> Column:
        """Return whether a message lacks what orders it."""
        lost = self._place().isNull() | self._epoch().isNull()
        return lost if self.keys.arrival is None else lost | values.column(self.df, self.keys.arrival).isNull()

    def _epoch(self) -> Column:
        return F.lit(0).cast("bigint") if self.keys.epoch is None else values.whole_numbers(self.df, self.keys.epoch)

    def _content(self) -> Column:
        """Return a hash of the message's content.

        Spark's hash skips nulls, so whether a value is null is hashed too: (1, null) is not (null, 1).
        """
        hashed: list[Column] = []
        for name in self.content_columns:
            field = self.df.schema[name]
            own = F.col(quoted(field.name))
            for first, *rest in map(parts, self._delivery_columns):
                if first == name and rest:
                    own = own.dropFields(".".join(map(quoted, rest)))
            nested = field.dataType.simpleString().startswith(("struct", "map", "array", "variant"))
            hashed.append(F.to_json(F.struct(own)) if nested else own)
            if field.nullable and not nested:
                hashed.append(own.isNull())
        return F.xxhash64(*hashed) if hashed else F.lit(0).cast("bigint")

    def _with_arrival(self, *more: Column) -> tuple[DataFrame, Column]:
        """Return the messages, further columns, and a coarse arrival; Spark's row numbers decide among equals."""
        df = self.df.select("*", *more)
        if self.keys.arrival is not None:
            is_time = (
                values.type_of(self.df, self.keys.arrival) in values.TIMES
                or self.order_candidates.get(self.keys.arrival) == "time"
            )
            value = (
                values.microseconds(self.df, self.keys.arrival, self.order_candidates)
                if is_time
                else values.whole_numbers(self.df, self.keys.arrival)
            )
            return df, F.coalesce(value, F.lit(2**63 - 1))
        if not self.files:
            return df, F.lit(0).cast("bigint")
        begins = F.col("_metadata.file_block_start").alias(_BEGINS)
        path = F.col("_metadata.file_path").alias(_FILE)
        located = self.df.select("*", *more, begins, path)
        if len(self.files) == 1:
            return located, F.col(_BEGINS)
        # Spark writes a file's URI in either of two ways.
        named = [(file, number << _SPLIT_BITS) for number, file in enumerate(self.files)]
        named += [
            (file.replace("file:///", "file:/", 1), start) for file, start in named if file.startswith("file:///")
        ]
        numbers = self.df.sparkSession.createDataFrame(named, f"{_PATH} string, {_NUMBER} bigint")
        numbered = located.join(F.broadcast(numbers), located[_FILE] == numbers[_PATH], "left")
        return numbered, F.coalesce(_NUMBER, F.lit(0)) + F.col(_BEGINS)


def _likely_clock(keys: LogColumns, known: dict[str, str]) -> str | None:
    """Return the column of times that is most likely the time of arrival, by its name."""
    key_columns = {keys.group, keys.order, keys.id, keys.epoch, *keys.ignore}
    times = [name for name, kind in known.items() if kind != "number" and name not in key_columns]
    likely = {name: rank for rank, name in enumerate(_CLOCKS)}
    return min(times, key=lambda name: likely.get(parts(name)[-1].lower(), len(likely)), default=None)


def _arrival_text(keys: LogColumns, files: Sequence[str], *, by_name: bool) -> str:
    if keys.arrival is not None:
        return f"by the column {keys.arrival}"
    if not files:
        return "by the order of the rows in the DataFrame"
    rows, among = "by the order of the rows in", "in the order of their names" if by_name else "as they arrived"
    return f"{rows} the file" if len(files) == 1 else f"{rows} {len(files):,} files, which are read {among}"
