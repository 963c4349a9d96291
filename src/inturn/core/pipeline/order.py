"""The grades of order: plain values for the definition of a pipeline.

A grade is one class here, with its traits and its timeline. No other code asks which grade an order is.
"""

import datetime as dt
import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

from inturn.core import limits
from inturn.core.errors import InputError, PipelineError
from inturn.core.identity import TimelineEntry
from inturn.core.override import override
from inturn.core.pipeline.arrival import ArrivalTimeline
from inturn.core.pipeline.grades import GaplessTimeline, MonotoneTimeline, TimestampTimeline
from inturn.core.pipeline.timeline import Timeline
from inturn.core.texts import shown
from inturn.core.values.duration import Duration, duration_us
from inturn.core.values.instant import MICROSECONDS, Unit, is_date, read_ns, read_us
from inturn.core.values.sortable import sortable, sortable_integer


class Order:
    """A grade of order: how a message's place is read, what the place proves, and the timeline that applies messages.

    A grade is a frozen dataclass; stores remember it by its ``repr``, which therefore never changes.

    Attributes:
        column: field with a message's place in its group; None if there is none, or there are several.
        fields: fields with the parts of a message's place, the most significant first; none if it is in one field.
        epoch: field with the epoch; None if there is none.
        unit: unit of a number that is a time, where the places are times.
        timeline_type: class of a group's timeline.
        has_revisions: a place is a whole number that names one message of its group; otherwise a message needs an id.
        has_gaps: every revision exists, so that a missing one is detected, waited for and skipped.
        has_times: a place is a time, and a message waits until later ones have arrived.
        idle_us: time after a group's newest message after which its held messages are released, in microseconds; None:
            never.
        only_rises: any place above the greatest one is next; the timeline is a ``MonotoneTimeline``.
        grades: all grades, by the name of the class.
    """

    column: str | None
    fields: tuple[str, ...] = ()
    epoch: str | None = None
    unit: Unit
    timeline_type: ClassVar[type[Timeline]]
    has_revisions: ClassVar[bool] = False
    has_gaps: ClassVar[bool] = False
    has_times: ClassVar[bool] = False
    only_rises: ClassVar[bool] = False
    idle_us: int | None = None
    grades: ClassVar[dict[str, type["Order"]]] = {}

    def __init_subclass__(cls) -> None:
        cls.grades[cls.__name__] = cls

    @property
    def has_runs(self) -> bool:
        """True if revisions count from ``start`` in one epoch; the timeline is a ``GaplessTimeline``.

        Arrival then decides only which of two contents of a revision comes first, and a run is applied at once.
        """
        return False

    @property
    def bounds(self) -> tuple[int, int] | None:
        """The least and the greatest place that a message may have; None if any 64-bit integer is valid."""
        return None

    @property
    def begins_anywhere(self) -> bool:
        """True if the first message of a group, or of an epoch, determines where its revisions begin."""
        return False

    def check(self) -> None:
        """Check the values of the fields.

        Raises:
            PipelineError: if one of them is not valid.
        """
        if not (isinstance(self.column, str) and self.column):
            raise PipelineError(f"Pipeline: the field of the order is {self.column!r}; expected the name of a field")

    def timeline(self, **stored: Any) -> Timeline:
        """Return the timeline of a group: a new one, or one with its stored fields."""
        return self.timeline_type(order=self, **stored)

    def idle_after(self, idle: dt.timedelta) -> "Order":  # noqa: ARG002 - a hook
        """Return this order with another ``idle``, or with its lateness if that is longer; itself if it has none."""
        return self

    def fault(self, value: Any) -> str | None:  # noqa: ARG002 - a hook
        """Return why a message with this value of its ``column`` cannot be placed; None if it can.

        Raises:
            InputError: if the value has a wrong type.
        """
        return None

    def position(self, value: Any) -> int:
        """Return the place for the value of a message's ``column``.

        Raises:
            InputError: if the value has a wrong type.
        """
        return integer(value, self.column)

    def tie(self, value: Any, arrival: Any, ident: str) -> str:  # noqa: ARG002 - a hook
        """Return a text that orders messages of the same position, before their ids; for most orders it is empty.

        Args:
            value: value of its ``column`` as received; None: its position contains all of it.
            arrival: value of the field with its arrival; None if the pipeline names none.
            ident: its id.
        """
        return ""

    def name(self, value: Any) -> str | None:  # noqa: ARG002 - a hook
        """Return the id derived from the place of a message; None if messages have their own ids, or none."""
        return None

    def identity(self, entry: TimelineEntry) -> int | str:
        """Return the name of a message within its group: the revision, or the id if the order has no revisions."""
        return entry.position if self.has_revisions else entry.id or ""

    @classmethod
    def words(cls, position: int, ident: str | None, epoch: int) -> str:
        """Return the place of a message in words."""
        if cls.has_revisions:
            return f"revision {position}" + (f" of epoch {epoch}" if epoch else "")
        return f"id {shown(ident or '')}"


def integer(value: Any, name: str | None) -> int:
    """Return the value of a field that places messages, which must be an integer.

    Raises:
        InputError: if it is not an integer.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        msg = f"{name} is {value!r} of type {type(value).__name__}; expected a 64-bit integer: convert it first"
        raise InputError(msg)
    return value


def no_time(column: str | None, value: Any) -> str:
    """Return the fault of a field whose value is not a time."""
    return f"{column} is {value!r:.100}, which is not a valid time"


@dataclass(frozen=True, slots=True)
class StoredOrder:
    """An order as a store remembers it, read without the code of the pipeline.

    Attributes:
        grade: class of the order; :class:`Order` if this version does not know it.
        has_epoch: whether it names an epoch.
        start: first revision of a group; None if the first message determines it.
    """

    grade: type[Order]
    has_epoch: bool
    start: int | None

    @classmethod
    def of(cls, text: str) -> "StoredOrder":
        """Read the ``repr`` of an order."""
        name = text.partition("(")[0].rpartition(".")[2]
        start = re.search(r", start=(-?\d+|'first'), epoch=", text)
        has_epoch = "epoch='" in text or 'epoch="' in text
        first = 1 if start is None else None if start[1] == "'first'" else int(start[1])
        return cls(Order.grades.get(name, Order), has_epoch, first)


@dataclass(frozen=True)
class Gapless(Order):
    """An order in which every revision exists, one after the other: gaps are detected and completeness is proved.

    Attributes:
        column: field with the revision, an integer.
        start: the first revision of a group, and of an epoch; ``first``: that of the first message applied, for a log
            that begins in the middle. Lower revisions that arrive later are then stale.
        epoch: field with the epoch, an integer; a higher one starts the timeline again, and the state is kept.
    """

    column: str
    start: int | Literal["first"] = 1
    epoch: str | None = None
    timeline_type = GaplessTimeline
    has_revisions = has_gaps = True

    @property
    @override
    def has_runs(self) -> bool:
        return self.epoch is None and self.start != "first"

    @property
    @override
    def bounds(self) -> tuple[int, int]:
        return self.least, limits.REVISION - 1

    @property
    @override
    def begins_anywhere(self) -> bool:
        return self.start == "first"

    @property
    def least(self) -> int:
        """The least revision that a message may have."""
        return limits.START if self.start == "first" else self.start

    @override
    def check(self) -> None:
        super().check()
        # The revisions before and after a start must fit into 64 bits too.
        if self.start != "first" and (type(self.start) is not int or not limits.START <= self.start < limits.REVISION):
            least, greatest = limits.START, limits.REVISION - 1
            raise PipelineError(
                f"Gapless(start={self.start!r}); expected a whole number from {least} to {greatest}, or 'first'"
            )

    @override
    def fault(self, value: Any) -> str | None:
        if (revision := integer(value, self.column)) < self.least:
            return f"{self.column} is {revision}, below the start {self.least}"
        if revision == limits.REVISION:
            return f"{self.column} is {limits.REVISION}, the greatest 64-bit integer, so no next revision would fit"
        return None


@dataclass(frozen=True)
class Monotone(Order):
    """An order in which a later message has a higher number: stale messages are recognised, gaps are not.

    Attributes:
        column: field with the number (a log position, an offset), an integer.
        epoch: field with the epoch, an integer; a higher one starts the timeline again, and the state is kept.
    """

    column: str
    epoch: str | None = None
    timeline_type = MonotoneTimeline
    has_revisions = only_rises = True

    @override
    def check(self) -> None:
        if isinstance(self.column, tuple | list):
            msg = f"Monotone(column={self.column!r}); for several fields use MonotoneFields({tuple(self.column)!r})"
            raise PipelineError(msg)
        super().check()


@dataclass(frozen=True)
class Timestamp(Order):
    """An order by time, within a lateness; messages that arrive later than that are rejected and counted.

    A group's watermark is its own greatest time minus the lateness. A message is applied once the watermark has reached
    its time; a message below the watermark is late.

    Times are compared to the microsecond. Messages of one microsecond that wait together are applied in the order of
    the finer digits, then of their arrival if the pipeline names it, then of their ids: ids that are not integers
    first, then integers as numbers.

    Without ``idle`` the watermark moves only with messages, so the newest messages of a group are held until its next
    one. With ``idle`` they are released that long after the newest held message was received, by the clock of the step.
    The watermark then moves to the time of the last one, so that an earlier message that arrives afterwards is late.

    Attributes:
        column: field with the time: a datetime, text (ISO 8601, also with slashes), or a number since 1970; see
            :mod:`inturn.core.values.instant`.
        lateness: how far behind the group's greatest time a message may be, such as ``"5 minutes"``.
        unit: unit of a number: ``s``, ``ms``, ``us`` or ``ns``.
        idle: ``"lateness"``, or a time that is not shorter; None: a group waits for its next message. It may be changed
            while a store has waiting messages.
    """

    column: str
    lateness: Duration = "0 seconds"
    unit: Unit = "us"
    idle: Duration | None = None
    timeline_type = TimestampTimeline
    has_times = True

    def __post_init__(self) -> None:
        if self.unit not in tuple(MICROSECONDS):
            raise PipelineError(f"Timestamp(unit={self.unit!r}); expected one of {', '.join(map(repr, MICROSECONDS))}")

    def __repr__(self) -> str:
        """Return the text by which stores remember an order; older stores have no units, and ``idle`` may change."""
        unit = "" if self.unit == "us" else f", unit={self.unit!r}"
        return f"Timestamp(column={self.column!r}, lateness={self.lateness!r}{unit})"

    @cached_property
    def lateness_us(self) -> int:
        """The lateness in microseconds."""
        return duration_us(self.lateness, label="Timestamp(lateness=…)")

    @cached_property
    def idle_us(self) -> int | None:  # type: ignore[override]
        """The time after which held messages are released, in microseconds; None: never."""
        if self.idle is None:
            return None
        return self.lateness_us if self.idle == "lateness" else duration_us(self.idle, label="Timestamp(idle=…)")

    @override
    def check(self) -> None:
        super().check()
        idle_us, lateness_us = self.idle_us, self.lateness_us
        if idle_us is not None and idle_us < lateness_us:
            msg = f"Timestamp(idle={self.idle!r}) is shorter than lateness={self.lateness!r}, so messages within the "
            raise PipelineError(msg + "lateness would be late; expected 'lateness', or a time that is not shorter")

    @override
    def idle_after(self, idle: dt.timedelta) -> "Order":
        longest = max(idle, dt.timedelta(microseconds=self.lateness_us))
        return self if self.idle is None else replace(self, idle=longest)

    @override
    def fault(self, value: Any) -> str | None:
        is_none = isinstance(value, str) and read_us(value, self.unit) is None and not is_date(value)
        return no_time(self.column, value) if is_none else None

    @override
    def position(self, value: Any) -> int:
        time_us = read_us(value, self.unit)
        if time_us is None:
            kind = type(value).__name__
            msg = f"{self.column} is {value!r} of type {kind}; expected a datetime: convert it first"
            raise InputError(msg + ", or to a number since 1970 (unit=…)")
        return time_us

    @override
    def tie(self, value: Any, arrival: Any, ident: str) -> str:
        finer = 0 if value is None else read_ns(value, self.unit)
        return f"{finer:03d}{'' if arrival is None else sortable(arrival)}{sortable_integer(ident)}"


@dataclass(frozen=True)
class Arrival(Order):
    """An order by arrival; nothing beyond it is known."""

    column = None
    timeline_type = ArrivalTimeline

    @override
    def check(self) -> None:
        """Nothing to check: there are no fields."""
