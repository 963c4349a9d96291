"""The result of an audit as plain values; every view (terminal, page, JSON) shows these and nothing else."""

import datetime as dt
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

from inturn.core.errors import InputError
from inturn.core.words import counted

Json = dict[str, Any]


class FaultKind(StrEnum):
    """The kinds of faults of a message or a group, with their meaning; also the folder names of offending messages."""

    meaning: str

    UNREADABLE = "unreadable", "unreadable lines, and values that a pipeline rejects"
    NO_GROUP = "no-group", "messages without a group"
    NO_ORDER = "no-order", "messages without a place in the order, or with one that cannot be read"
    NO_ID = "no-id", "messages without an id"
    PLACEHOLDER = "placeholder-group", "messages whose group is blank or a placeholder such as NA"
    DUPLICATE = "duplicate", "exact copies of an earlier message"
    CONFLICT = "conflict", "same revision as an earlier message, other content"
    ID_CONFLICT = "id-conflict", "same id as an earlier message of the group, other content"
    TIE = "tie", "same place as an earlier message, other content: their order is undefined"
    LATE = "late", "arrived after a message that follows them in the order"
    GAP = "gap", "missing revisions"
    RESET = "reset", "the group's numbers start again"
    TWO_WRITERS = "two-writers", "two writers assigned the same revisions to different messages"

    def __new__(cls, value: str, meaning: str = "") -> Self:
        """Create a member that is its value."""
        member = str.__new__(cls, value)
        member._value_, member.meaning = value, meaning
        return member


@dataclass(frozen=True)
class FaultCount:
    """The number of occurrences of a fault.

    Attributes:
        messages: messages with the fault; for ``gap``, missing revisions.
        groups: groups with the fault.
    """

    messages: int
    groups: int


@dataclass(frozen=True)
class HistogramBar:
    """One bar of a histogram: from ``low`` to below ``high``."""

    low: float
    high: float
    count: int


@dataclass(frozen=True)
class Distribution:
    """The distribution of values.

    Attributes:
        median: half of them are at most this.
        p99: 99 of 100 are at most this.
        most: the greatest.
        bars: the histogram; each bar is twice as wide as the one before it.
    """

    median: float
    p99: float
    most: float
    bars: list[HistogramBar]


@dataclass(frozen=True)
class Lateness:
    """The lateness of late messages.

    Attributes:
        positions: lateness in messages of the group that arrived since the first that overtook it.
        seconds: lateness by the clock of the log; None if the log has no time.
        behind: distance of their place in the order from the group's greatest so far: of a time, in seconds (which
            ``Timestamp(lateness=…)`` must cover), of a number, in its own units.
    """

    positions: Distribution
    seconds: Distribution | None
    behind: Distribution


@dataclass(frozen=True)
class RevisionGap:
    """Missing revisions of a group.

    Attributes:
        group: the group.
        epoch: number of the group's timeline, from 0.
        first: first missing revision.
        last: last missing revision.
        age: messages of the group since the first beyond the gap, including it.
        age_s: the same by the clock of the log, in seconds; None if the log has no time.
        open: whether the missing revisions may still arrive.
    """

    group: str
    epoch: int
    first: int
    last: int
    age: int
    age_s: float | None
    open: bool


@dataclass(frozen=True)
class GapSummary:
    """The gaps of a log.

    Attributes:
        lost: number of gaps that no message will close, judging by the lateness of messages in this log.
        lost_revisions: number of their missing revisions.
        open: number of gaps so young that a late message may still close them.
        open_revisions: number of their missing revisions.
        oldest_open_s: age of the oldest open gap in seconds; None if there is none, or no time.
        patience: greatest age of an open gap, in words.
        largest: gaps with the most missing revisions.
        over: when they opened: by time if the log has one (seconds since 1970), else in percent of the group's
            messages. Each entry is a bar of lost gaps and a bar of open ones.
        by_time: whether ``over`` goes by time.
    """

    lost: int
    lost_revisions: int
    open: int
    open_revisions: int
    oldest_open_s: float | None
    patience: str
    largest: list[RevisionGap] = field(default_factory=list)
    over: list[tuple[HistogramBar, HistogramBar]] = field(default_factory=list)
    by_time: bool = False


@dataclass(frozen=True)
class ConsumerCost:
    """The cost of order if a number of consumers share the groups.

    Attributes:
        consumers: number of consumers.
        free: time as a multiple of that of an equal share, if a consumer takes any free group.
        hashed: the same if the hash of a group assigns it to a consumer, as a partition does.
    """

    consumers: int
    free: float
    hashed: float


@dataclass(frozen=True)
class GroupSizes:
    """The distribution of messages over groups.

    Attributes:
        median: messages of the median group.
        largest: groups with the most messages, and their numbers of messages.
        share: part of all messages that the largest group has.
        bars: histogram of groups by number of messages.
        consumers: cost of order.
    """

    median: float
    largest: list[tuple[str, int]]
    share: float
    bars: list[HistogramBar]
    consumers: list[ConsumerCost]


@dataclass(frozen=True)
class ColumnRating:
    """The rating of a column as the order within the groups.

    Attributes:
        name: the column.
        kind: ``number`` or ``time``.
        filled: part of the messages that have a value.
        in_order: of the messages after a group's first, the part that is not below the greatest so far.
        by_one: of those, the part that is one above the greatest so far.
        repeated: of those, the part that has the greatest value so far.
        cover: messages for each value between the group's least and greatest: 1 if each is there once.
        lateness_s: greatest distance of a message's time from the greatest so far, in seconds; None for a number.
        grade: grade of order that it could carry; None if it carries none.
        verdict: the grade in words, with its reason.
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
class DifferingColumns:
    """A set of columns in which contradicting messages differ.

    Attributes:
        columns: the columns in which they differ, and no others.
        part: share of the examined contradictions that differ in these columns.
    """

    columns: list[str]
    part: float


@dataclass(frozen=True)
class ProposedGrade:
    """The grade of order of the data.

    Attributes:
        name: ``Gapless``, ``Monotone``, ``Timestamp`` or ``Arrival``.
        evidence: reasons, a sentence each.
        line: the pipeline that fits; only its handler remains to be written.
        needs: conditions that are missing for the line to work, a sentence each.
        gives: number of messages that the line applies (or holds), recognises as duplicate (or stale), and rejects as
            conflict or invalid, if it reads this log in the order of arrival; empty if not known.
        mapping: the mapping that the line needs before it, as Python; None if it needs none.
    """

    name: str
    evidence: list[str]
    line: str
    needs: list[str]
    gives: dict[str, int] = field(default_factory=dict)
    mapping: str | None = None

    @property
    def outcome(self) -> str:
        """The verdicts of the line for this log, in a sentence."""
        rejected = [f"{self.gives[kind]:,} as {kind}" for kind in ("conflict", "invalid") if self.gives.get(kind)]
        return (
            "For this log, in the order of arrival, the pipeline applies or holds "
            f"{counted(self.gives.get('applied', 0), 'message')}, "
            f"recognises {self.gives.get('duplicate', 0):,} as duplicate or stale"
            + (f", and rejects {' and '.join(rejected)}." if rejected else ".")
        )


@dataclass(frozen=True)
class TimelinePoint:
    """One message in the timeline of a group: its arrival, its place in the order, and its fault."""

    position: int
    place: int
    kind: str | None
    epoch: int = 0


@dataclass(frozen=True)
class GroupTimeline:
    """The messages of a group in order of arrival, or the part around its first fault.

    Attributes:
        group: the group.
        messages: number of all its messages.
        faults: number of faults by kind.
        points: messages in order of arrival.
        gaps: missing revisions of the group.
    """

    group: str
    messages: int
    faults: dict[str, int]
    points: list[TimelinePoint]
    gaps: list[RevisionGap]


@dataclass(frozen=True)
class LogColumns:
    """The columns that an audit uses.

    Attributes:
        group: column of the group.
        order: column of the revision, a count without holes.
        order_by: column that orders without counting: a time, or a number with holes.
        id: column of the deduplication id.
        epoch: column whose higher value starts the group's timeline again.
        arrival: column of the order of arrival.
        time: column of the log's clock.
        start: first revision of a group; None if groups begin anywhere.
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

    def renamed(self, path: Callable[[str], str]) -> "LogColumns":
        """Return the same keys with the paths of the columns."""
        names = ("group", "order", "order_by", "id", "epoch", "arrival", "time")
        paths: Json = {name: path(own) for name in names if (own := getattr(self, name)) is not None}
        return replace(self, **paths, ignore=tuple(map(path, self.ignore)))

    @property
    def place(self) -> str | None:
        """The column of a message's place in its group's order."""
        return self.order or self.order_by


@dataclass(frozen=True)
class AuditReport:
    """The result of an audit.

    Attributes:
        source: name of the input.
        keys: columns that the audit used, given and found.
        arrived: source of the order of arrival, in words.
        messages: number of all messages, including those without a group or a place.
        groups: number of groups.
        began: first time in the log; None if it has none.
        ended: last time in the log.
        found: faults by kind; kinds without occurrence are absent.
        samples: up to three examples of each kind, in words.
        gaps: gaps; None if the order cannot show any.
        late: lateness; None if nothing is late.
        differ: columns in which contradicting messages differ, the most frequent first; empty if none do.
        epochs: number of groups with more than one timeline by their column ``epoch``.
        sizes: distribution of messages over groups; None if there are none.
        columns: columns that could carry an order, the best first; empty if the order was given.
        grade: grade of order; None if there are no messages.
        texts: sentences about columns of JSON that some values make text while most are numbers.
        worst: groups with the most faults; filled if the report is written to a folder.
        files: written files by purpose.
        seconds: duration of the audit.
    """

    source: str
    keys: LogColumns
    arrived: str
    messages: int
    groups: int
    began: dt.datetime | None
    ended: dt.datetime | None
    found: dict[FaultKind, FaultCount]
    samples: dict[FaultKind, list[str]]
    gaps: GapSummary | None
    late: Lateness | None
    differ: list[DifferingColumns]
    epochs: int
    sizes: GroupSizes | None
    columns: list[ColumnRating]
    grade: ProposedGrade | None
    texts: list[str] = field(default_factory=list)
    worst: list[GroupTimeline] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def unexpected_faults(self, allow: tuple[str, ...] = ()) -> list[FaultKind]:
        """Return the kinds of faults found, except those that are allowed.

        Raises:
            InputError: if ``allow`` names an unknown kind.
        """
        but = fault_kinds(allow)
        return [kind for kind in self.found if kind not in but]

    def to_dict(self) -> Json:
        """Return the report as JSON values; times are ISO 8601."""
        document: Json = json.loads(json.dumps(asdict(self), default=dt.datetime.isoformat))
        return document


def fault_kinds(names: Iterable[str]) -> set[FaultKind]:
    """Return the kinds of faults with these names.

    Raises:
        InputError: if a kind is unknown.
    """
    kinds = set()
    for name in names:
        if name not in set(FaultKind):
            raise InputError(f"no kind of fault {name!r}; existing kinds: {', '.join(FaultKind)}")
        kinds.add(FaultKind(name))
    return kinds
