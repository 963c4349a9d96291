"""What an audit found, as plain values: every face (terminal, page, JSON) shows these and nothing else."""

import datetime as dt
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from inturn.core.errors import InputError
from inturn.spark.audit.words import outcome, plain

Json = dict[str, Any]


class Kind(StrEnum):
    """What can be wrong with a message, or with a group; also the names of the folders of offending messages."""

    UNREADABLE = "unreadable"
    NO_GROUP = "no-group"
    NO_ORDER = "no-order"
    NO_ID = "no-id"
    PLACEHOLDER = "placeholder-group"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    ID_CONFLICT = "id-conflict"
    TIE = "tie"
    LATE = "late"
    GAP = "gap"
    RESET = "reset"
    TWO_WRITERS = "two-writers"


MEANING: dict[Kind, str] = {
    Kind.UNREADABLE: "lines that cannot be read, and values that no pipeline takes",
    Kind.NO_GROUP: "messages without a group",
    Kind.NO_ORDER: "messages without a place in the order, or with one that cannot be read",
    Kind.NO_ID: "messages without an id",
    Kind.PLACEHOLDER: "messages whose group is a blank or a word for nothing, such as NA",
    Kind.DUPLICATE: "exact copies of an earlier message",
    Kind.CONFLICT: "same revision as an earlier message, other content",
    Kind.ID_CONFLICT: "same id as an earlier message of the group, other content",
    Kind.TIE: "same place as an earlier message, other content: nothing says which comes first",
    Kind.LATE: "came after a message that follows them",
    Kind.GAP: "revisions that are missing",
    Kind.RESET: "the group's numbers start again",
    Kind.TWO_WRITERS: "two writers gave the same revisions to different messages",
}
"""Each kind in words, as the reports show them."""


@dataclass(frozen=True)
class Found:
    """How often something was found.

    Attributes:
        messages: messages it was found of; for ``gap``, revisions that are missing.
        groups: groups it was found in.
    """

    messages: int
    groups: int


@dataclass(frozen=True)
class Bar:
    """One bar of a histogram: from ``low`` to below ``high``."""

    low: float
    high: float
    count: int


@dataclass(frozen=True)
class Spread:
    """How values are spread.

    Attributes:
        median: half of them are at most this.
        p99: 99 of 100 are at most this.
        most: the greatest.
        bars: the histogram; each bar is twice as wide as the one before it.
    """

    median: float
    p99: float
    most: float
    bars: list[Bar]


@dataclass(frozen=True)
class Late:
    """By how much late messages are late.

    Attributes:
        positions: in messages of the group: how many came since the first that overtook it.
        seconds: by the clock of the log; None where the log has no time.
        behind: how far their place in the order is behind the group's greatest so far: of a time, in seconds (what
            ``Timestamp(lateness=…)`` must cover), of a number, in its own units.
    """

    positions: Spread
    seconds: Spread | None
    behind: Spread


@dataclass(frozen=True)
class Gap:
    """Revisions of a group that are not there.

    Attributes:
        group: the group.
        epoch: which of the group's timelines, from 0.
        first: the first that is missing.
        last: the last that is missing.
        age: messages of the group that came since the first beyond the gap, itself among them.
        age_s: the same by the clock of the log, in seconds; None where the log has no time.
        open: whether what is missing may still be under way.
    """

    group: str
    epoch: int
    first: int
    last: int
    age: int
    age_s: float | None
    open: bool


@dataclass(frozen=True)
class Gaps:
    """The gaps of a log.

    Attributes:
        lost: gaps that no message will close, going by how late messages are in this log.
        lost_revisions: the revisions that they lack.
        open: gaps that are so young that a late message may still close them.
        open_revisions: the revisions that they lack.
        oldest_open_s: the age of the oldest open gap in seconds; None where there is none, or no time.
        patience: an open gap is at most so old, in words.
        largest: those with the most missing revisions.
        over: when they opened: by time where the log has one (seconds since 1970), else in percent of the group's
            messages. Each entry is a bar of lost gaps and a bar of open ones.
        by_time: whether ``over`` goes by time.
    """

    lost: int
    lost_revisions: int
    open: int
    open_revisions: int
    oldest_open_s: float | None
    patience: str
    largest: list[Gap] = field(default_factory=list)
    over: list[tuple[Bar, Bar]] = field(default_factory=list)
    by_time: bool = False


@dataclass(frozen=True)
class Consumers:
    """What order costs if so many consumers share the groups.

    Attributes:
        consumers: how many.
        free: time over that of an equal share, if a consumer takes whichever group is next.
        hashed: the same if each group belongs to a consumer by its hash, as a partition does.
    """

    consumers: int
    free: float
    hashed: float


@dataclass(frozen=True)
class Sizes:
    """How messages are spread over groups.

    Attributes:
        median: messages of the group in the middle.
        largest: the groups with the most messages, and how many those are.
        share: the part of all messages that the largest group has.
        bars: how many groups have so many messages.
        consumers: what order costs.
    """

    median: float
    largest: list[tuple[str, int]]
    share: float
    bars: list[Bar]
    consumers: list[Consumers]


@dataclass(frozen=True)
class Column:
    """How well a column could carry the order within the groups.

    Attributes:
        name: the column.
        kind: ``number`` or ``time``.
        filled: the part of the messages that have it.
        in_order: of the messages after a group's first, the part that is not below the greatest so far.
        by_one: of those, the part that is one above the greatest so far.
        repeated: of those, the part that has the value of the message before.
        cover: messages for each value between the group's least and greatest: 1 if each is there once.
        lateness_s: of a time, how far messages are behind the greatest so far at most, in seconds.
        grade: the grade of order that it could carry; None if it carries none.
        verdict: the same in words.
    """

    name: str
    kind: str
    filled: float
    in_order: float
    by_one: float
    repeated: float
    cover: float
    lateness_s: float | None
    grade: str | None
    verdict: str


@dataclass(frozen=True)
class Differ:
    """In what messages differ that contradict each other.

    Attributes:
        columns: in these, and in no others.
        part: so do this part of those that were looked at.
    """

    columns: list[str]
    part: float


@dataclass(frozen=True)
class Grade:
    """Which grade of order the data have.

    Attributes:
        name: ``Gapless``, ``Monotone``, ``Timestamp`` or ``Arrival``.
        evidence: why, a sentence each.
        line: the pipeline that fits; only its handler is left to write.
        needs: what is missing for the line to work, a sentence each.
        gives: how many messages the line applies (or holds), knows as duplicate (or stale), and rejects as conflict or
            invalid, if it is fed this log as it came; empty where that cannot be said.
    """

    name: str
    evidence: list[str]
    line: str
    needs: list[str]
    gives: dict[str, int] = field(default_factory=dict)

    @property
    def outcome(self) -> str:
        """What the line makes of this log, in a sentence."""
        return outcome(self.gives)


@dataclass(frozen=True)
class Point:
    """One message in the timeline of a group: when it came, its place in the order, and what is wrong with it."""

    position: int
    place: int
    kind: str | None
    epoch: int = 0


@dataclass(frozen=True)
class Timeline:
    """A group as it came in, or the part of it around its first fault.

    Attributes:
        group: the group.
        messages: how many it has in all.
        faults: how many of each kind.
        points: its messages in the order of arrival.
        gaps: what the group lacks.
    """

    group: str
    messages: int
    faults: dict[str, int]
    points: list[Point]
    gaps: list[Gap]


@dataclass(frozen=True)
class Keys:
    """Which columns an audit goes by.

    Attributes:
        group: names the group.
        order: the revision: a count in which every number is there.
        order_by: what orders without counting: a time, or a number with holes.
        id: the deduplication id.
        epoch: a higher one starts the group's timeline again.
        arrival: the order of arrival.
        time: the clock of the log.
        start: the first revision of a group; None where groups begin anywhere.
        ignore: columns that are not content.
    """

    group: str
    order: str | None = None
    order_by: str | None = None
    id: str | None = None
    epoch: str | None = None
    arrival: str | None = None
    time: str | None = None
    start: int | None = None
    ignore: tuple[str, ...] = ()

    def renamed(self, path: Callable[[str], str]) -> "Keys":
        """Return the same with the paths of the columns."""
        given = {name: getattr(self, name) for name in ("group", "order", "order_by", "id", "epoch", "arrival", "time")}
        found: dict[str, Any] = {name: path(value) for name, value in given.items() if value is not None}
        return replace(self, **found, ignore=tuple(map(path, self.ignore)))

    @property
    def place(self) -> str | None:
        """The column with a message's place in its group's order."""
        return self.order or self.order_by


@dataclass(frozen=True)
class Report:
    """What an audit found.

    Attributes:
        source: what was read.
        keys: the columns that it went by, given and found.
        arrived: how the order of arrival is known, in words.
        messages: all of them, those among them that have no group or no place.
        groups: how many there are.
        began: the first time in the log; None where it has none.
        ended: the last time in the log.
        found: what is wrong, by kind; a kind that was not found is not there.
        samples: up to three examples of each kind, in words.
        gaps: the gaps; None where the order cannot show any.
        late: by how much; None where nothing is late.
        differ: in what contradicting messages differ, the most frequent first; empty where none do.
        epochs: how many groups have more than one timeline by their column ``epoch``.
        sizes: how messages are spread over groups; None where there are none.
        columns: what could carry an order, the best first; empty where the order was given.
        grade: which grade of order this is; None where there are no messages.
        worst: the groups with the most faults; filled where the report is written to a folder.
        files: what was written, by what it is.
        seconds: how long it took.
    """

    source: str
    keys: Keys
    arrived: str
    messages: int
    groups: int
    began: dt.datetime | None
    ended: dt.datetime | None
    found: dict[Kind, Found]
    samples: dict[Kind, list[str]]
    gaps: Gaps | None
    late: Late | None
    differ: list[Differ]
    epochs: int
    sizes: Sizes | None
    columns: list[Column]
    grade: Grade | None
    worst: list[Timeline] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def wrong(self, allow: tuple[str, ...] = ()) -> list[Kind]:
        """The kinds of faults that were found, but for those that are allowed.

        Raises:
            InputError: if ``allow`` names a kind that there is not.
        """
        but = allowed(allow)
        return [kind for kind in self.found if kind not in but]

    def to_dict(self) -> Json:
        """The report as JSON values; times are ISO 8601."""
        document: Json = plain(asdict(self))
        return document


def allowed(names: Iterable[str]) -> set[Kind]:
    """The kinds of faults by their names.

    Raises:
        InputError: if there is no such kind.
    """
    kinds = set()
    for name in names:
        if name not in set(Kind):
            msg = f"there is no fault {name!r}; expected one of {', '.join(Kind)}"
            raise InputError(msg)
        kinds.add(Kind(name))
    return kinds
