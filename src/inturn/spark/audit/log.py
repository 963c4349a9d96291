"""A DataFrame as an audited log: each message as a few columns of numbers that an audit sorts.

No row is processed in Python. A message without a group or a place gets a timeline of its own, so that it is counted
with the others and does not affect them.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias
from urllib.parse import unquote, urlparse

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from inturn.core.errors import InputError
from inturn.core.values.instant import MICROSECONDS
from inturn.core.values.path import parts
from inturn.spark.audit.change_events import ChangeEvents
from inturn.spark.audit.report import LogColumns
from inturn.spark.audit.values import (
    TIMES,
    check_audited,
    check_names,
    column,
    kind_of,
    micros,
    numbers_and_times,
    resolved,
    unreadable,
    what,
    whole,
)
from inturn.spark.columns.dataframe import quoted
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
COLUMNS = ("group_hash", "group", "epoch", "place", "content", "id", "time", "arrival", "row", "status")
"""The columns of a row.

``group_hash`` and ``content`` are hashes, and ``id`` is one too; ``place`` is the place in the order, ``time`` is in
microseconds; ``arrival`` and ``row`` sort by arrival and name one row; ``status`` is why a row has no place.
"""

Key: TypeAlias = tuple[str, ...]
GROUP: Final[Key] = ("group_hash", "group")
"""The columns that the messages of one timeline share; one column less saves a sixth of the sort's cost."""
EPOCH: Final[Key] = (*GROUP, "epoch")
"""The same for groups with epochs."""
ROW: Final[Key] = ("arrival", "row")
"""The columns that name one row, and sort rows by arrival."""


@dataclass(frozen=True)
class AuditLog:
    """A DataFrame, and how it is read as a log.

    Attributes:
        arrived: source of the order of arrival, in words.
        known: kinds of the columns that could give an order, see
            :func:`inturn.spark.audit.values.numbers_and_times`.
        files: files from which the rows are read, in order of arrival; empty for other inputs.
        kinds: types of the columns by their paths, if ``df`` has them as text; None: those of ``df``.
        events: the columns of Debezium's change events; None for other messages.
    """

    df: DataFrame
    keys: LogColumns
    arrived: str
    is_time: bool
    known: dict[str, str]
    files: tuple[str, ...] = ()
    kinds: Mapping[str, str] | None = None
    events: ChangeEvents | None = None

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
        check_audited(df)
        if keys.order and keys.order_by:
            msg = (
                f"order={keys.order!r} and order_by={keys.order_by!r}: pass one; order is a count, order_by only sorts"
            )
            raise InputError(msg)
        keys = keys.renamed(lambda name: resolved(df, name))
        check_names(df, keys)
        if keys.order is not None and kind_of(df, keys.order) in TIMES:
            msg = f"the column {keys.order!r} is a time, which is not a count; use --order-by (order_by=) for it"
            raise InputError(msg)
        known, events = numbers_and_times(df), ChangeEvents.of(df)
        known = known if events is None else events.known(known, keys)
        is_time = keys.order_by is not None and what(df, keys.order_by, known) not in (None, "number")
        if keys.time is None:
            keys = replace(keys, time=keys.order_by if is_time else _clock(keys, known))
        came = _files(df, files)
        return cls(df, keys, _arrived(keys, came, by_name=files is None), is_time, known, came, kinds, events)

    @property
    def counts(self) -> bool:
        """True if the order counts, so that gaps are visible."""
        return self.keys.order is not None

    @property
    def key(self) -> Key:
        """The columns that the messages of one timeline share."""
        return GROUP if self.keys.epoch is None else EPOCH

    @property
    def hides_restarts(self) -> bool:
        """True if numbers may start again without a column that shows it."""
        return self.counts and self.keys.epoch is None

    @property
    def unit(self) -> str:
        """The unit of the order's times, if they are numbers since 1970."""
        kind = None if self.keys.order_by is None else self.known.get(self.keys.order_by)
        return kind if kind in MICROSECONDS else "us"

    @property
    def arrives(self) -> tuple[str, ...]:
        """The columns of a row that sort a group's messages by arrival.

        Messages with equal values in the arrival column are in their own order, in which a pipeline reads them.
        """
        ties = ("epoch", "place") if self.keys.arrival is not None and self.keys.place is not None else ()
        return (ROW[0], *ties, ROW[1])

    @property
    def content_names(self) -> list[str]:
        """The columns of the content: all except those that describe the delivery."""
        left_out = {(CORRUPT,), *map(parts, self._outside)}
        return [name for name in self.df.columns if (name,) not in left_out]

    @property
    def _outside(self) -> list[str]:
        return [*self.keys.ignore, *([self.keys.arrival] if self.keys.arrival else [])]

    def rows(self, *more: Column) -> DataFrame:
        """Return a row for each message, with :data:`COLUMNS` and further columns."""
        keys = self.keys
        nothing = F.lit(None).cast("bigint")
        df, arrival = self._with_arrival()
        group = self._group(df)
        place = self._place()
        epoch = self._epoch()
        unread = unreadable(self.df)
        if CORRUPT in df.columns:
            unread |= column(df, CORRUPT).isNotNull()
        lost = place.isNull() | epoch.isNull()
        if self.keys.arrival is not None:
            lost |= column(df, self.keys.arrival).isNull()
        bad = F.when(unread, UNREADABLE).when(group.isNull(), NO_GROUP).when(lost, NO_ORDER).otherwise(GOOD)
        mine = F.monotonically_increasing_id()
        base = df.select(
            group.alias("group"),
            epoch.alias("epoch"),
            place.alias("place"),
            self._content().alias("content"),
            (
                nothing if keys.id is None else F.when(column(df, keys.id).isNotNull(), F.xxhash64(column(df, keys.id)))
            ).alias("id"),
            (nothing if keys.time is None else micros(df, keys.time, self.known)).alias("time"),
            arrival.alias("arrival"),
            mine.alias("row"),
            bad.alias("status"),
            *more,
        )
        # A message without a place has its own timeline: no two numbers have the same xxhash64.
        good = F.col("status") == GOOD
        added = base.columns[len(COLUMNS) - 1 :]
        return base.select(
            F.when(good, F.xxhash64("group")).otherwise(F.xxhash64("row")).alias("group_hash"),
            F.when(good, F.col("group")).alias("group"),
            *COLUMNS[2:],
            *added,
        )

    def messages(self) -> DataFrame:
        """Return the whole messages as ``message``, with their ``arrival`` and ``row``, and the ``file`` of each."""
        whole = F.struct(*(F.col(quoted(name)) for name in self.df.columns)).alias(_WHOLE)
        file = F.col("_metadata.file_path") if self.files else F.lit(None).cast("string")
        df, arrival = self._with_arrival(whole, file.alias(_FROM))
        mine, kept = F.monotonically_increasing_id(), (F.col(_FROM).alias("file"), F.col(_WHOLE).alias("message"))
        return df.select(arrival.alias("arrival"), mine.alias("row"), *kept)

    def misfits(self) -> list[str]:
        """Return some values that should give a message's place but do not."""
        names = [name for name in (self.keys.place, self.keys.epoch) if name is not None]
        bad = self._place().isNull() | self._epoch().isNull()
        if self.keys.arrival is not None:
            names, bad = [*names, self.keys.arrival], bad | column(self.df, self.keys.arrival).isNull()
        texts = [column(self.df, name).cast("string").alias(f"v{at}") for at, name in enumerate(names)]
        group = self._group(self.df).alias("group")
        lacking = self.df.where(bad).select(group, *texts).where(F.col("group").isNotNull())
        rows = lacking.distinct().orderBy("group", "v0").limit(3)
        return [
            f"{row.group}: {', '.join(f'{name} is {row[at + 1]!r}' for at, name in enumerate(names))}"
            for row in rows.collect()
        ]

    def _group(self, df: DataFrame) -> Column:
        """Return a message's group as text."""
        of_row = None if self.events is None else self.events.group(df, self.keys.group)
        return column(df, self.keys.group).cast("string") if of_row is None else of_row

    def _place(self) -> Column:
        """Return a message's place in the order; without an order, its content, so that only copies share a place."""
        if self.keys.order is not None:
            return whole(self.df, self.keys.order)
        if self.keys.order_by is None:
            return self._content()
        return micros(self.df, self.keys.order_by, self.known) if self.is_time else whole(self.df, self.keys.order_by)

    def _epoch(self) -> Column:

        return F.lit(0).cast("bigint") if self.keys.epoch is None else whole(self.df, self.keys.epoch)

    def _content(self) -> Column:
        """Return a hash of the message's content.

        Spark's hash skips nulls, so whether a value is null is hashed too: (1, null) is not (null, 1).
        """
        hashed: list[Column] = []
        for name in self.content_names:
            field = self.df.schema[name]
            own = F.col(quoted(field.name))
            for first, *rest in map(parts, self._outside):
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
            is_time = kind_of(self.df, self.keys.arrival) in TIMES or self.known.get(self.keys.arrival) == "time"
            value = micros(self.df, self.keys.arrival, self.known) if is_time else whole(self.df, self.keys.arrival)
            return df, F.coalesce(value, F.lit(2**63 - 1))
        if not self.files:
            return df, F.lit(0).cast("bigint")
        begins = F.col("_metadata.file_block_start").alias(_BEGINS)
        path = F.col("_metadata.file_path").alias(_FILE)
        located = self.df.select("*", *more, begins, path)
        if len(self.files) == 1:
            return located, F.col(_BEGINS)
        # Spark writes a file's URI in either of two ways.
        named = [(file, at << _SPLIT_BITS) for at, file in enumerate(self.files)]
        named += [(file.replace("file:///", "file:/", 1), at) for file, at in named if file.startswith("file:///")]
        numbers = self.df.sparkSession.createDataFrame(named, f"{_PATH} string, {_NUMBER} bigint")
        numbered = located.join(F.broadcast(numbers), located[_FILE] == numbers[_PATH], "left")
        return numbered, F.coalesce(_NUMBER, F.lit(0)) + F.col(_BEGINS)


def _clock(keys: LogColumns, known: dict[str, str]) -> str | None:
    """Return the column of times that is most likely the time of arrival, by its name."""
    taken = {keys.group, keys.order, keys.id, keys.epoch, *keys.ignore}
    times = [name for name, kind in known.items() if kind != "number" and name not in taken]
    likely = {name: at for at, name in enumerate(_CLOCKS)}
    return min(times, key=lambda name: likely.get(parts(name)[-1].lower(), len(likely)), default=None)


def _arrived(keys: LogColumns, files: Sequence[str], *, by_name: bool) -> str:
    if keys.arrival is not None:
        return f"by the column {keys.arrival}"
    if not files:
        return "by the order of the rows in the DataFrame"
    rows, among = "by the order of the rows in", "in the order of their names" if by_name else "as they arrived"
    return f"{rows} the file" if len(files) == 1 else f"{rows} {len(files):,} files, which are read {among}"


def _files(df: DataFrame, came: Sequence[str] | None) -> tuple[str, ...]:
    """Return the files of the rows as their metadata names them, in order of arrival; empty for other inputs."""
    from pyspark.errors import AnalysisException

    files = sorted(set(df.inputFiles()))
    if came is not None:
        rank = {unquote(urlparse(file).path): number for number, file in enumerate(came)}
        files.sort(key=lambda file: rank.get(unquote(urlparse(file).path), len(rank)))
    loud = logging.getLogger("DataFrameQueryContextLogger")
    before = loud.level
    loud.setLevel(logging.CRITICAL)  # a missing column is an answer here, not an error to log
    try:
        return tuple(files) if files and df.select(F.col("_metadata.file_block_start")).schema else ()
    except AnalysisException:
        return ()
    finally:
        loud.setLevel(before)
