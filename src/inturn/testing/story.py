"""What an engine has made of a history, in one shape for all engines, and in words where two of them differ."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from inturn.core.fold import Counts
from inturn.core.message import canonical

_SHOWN: Final = 300
"""How many characters of what differs are shown of each side."""
_outputs = msgspec.json.Encoder(order="deterministic")


class Different(AssertionError):
    """Two engines, or two runs of one, have made different things of the same messages; the text says which."""


class NotDeterministic(Different):
    """The handler does not always do the same with the same state and message."""


@dataclass
class Story:
    """What has come of a history.

    Attributes:
        states: of each group the state, as JSON values.
        outputs: of each group its outputs, by effect id, as JSON values.
        statuses: of each group where it stands.
        places: of each group its epoch, how far it is, and which revisions were skipped.
        errors: of each group that is parked, the type of the error.
        held: of each group the messages that it holds: epoch, place, id, and digest.
        rejected: how many messages will not be applied, by group and reason.
        forgotten: of the conflicts of a group, how many lie so far back that an engine may count them as stale.
        counts: where all messages went.
        broken: of the books of single steps those that do not balance, in words.
        seconds: how long the engine took.
    """

    states: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    statuses: dict[str, str] = field(default_factory=dict)
    places: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    held: dict[str, list[tuple[int, int, str, str]]] = field(default_factory=dict)
    rejected: dict[str, dict[str, int]] = field(default_factory=dict)
    forgotten: dict[str, int] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    broken: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def reject(self, group: str | None, reason: str) -> None:
        """Note a rejected message."""
        own = self.rejected.setdefault(group or "", {})
        own[reason] = own.get(reason, 0) + 1

    def holding(self) -> int:
        """How many messages are held at the end."""
        return sum(map(len, self.held.values()))

    def faults(self, messages: int) -> list[str]:
        """What is wrong with the engine's own books, in words.

        Args:
            messages: how many it was given.
        """
        counts, found = self.counts, [*self.broken]
        if not counts.balanced:
            found.append(f"the books do not balance: {counts}")
        if counts.received != messages:
            found.append(f"{messages} messages were given, {counts.received} were received")
        if counts.held - counts.released != self.holding():
            balance = f"{counts.held} were held and {counts.released} released"
            found.append(f"{balance}, but {self.holding()} are there")
        reasons: dict[str, int] = {}
        for own in self.rejected.values():
            for reason, count in own.items():
                reasons[reason] = reasons.get(reason, 0) + count
        if reasons != {reason: count for reason, count in counts.rejected.items() if count}:
            found.append(f"{counts.rejected} were counted as rejected, but {reasons} are there")
        return found


@dataclass(frozen=True)
class Difference:
    """One thing about one group in which an engine differs from the pure timeline.

    Attributes:
        one: the engine that is right, the pure timeline.
        other: the engine that differs.
        group: the group; None for what is about the whole, such as the books.
        what: in what: ``states``, ``outputs``, …
        here: what the one has of it, in words.
        there: what the other has.
    """

    one: str
    other: str
    group: str | None
    what: str
    here: str
    there: str

    def __str__(self) -> str:
        if self.group is None:
            return f"{self.other}: {self.there}"
        about = f"group {self.group!r} has different {self.what}"
        return f"{about}: {self.one} has {self.here}, {self.other} has {self.there}"


_COMPARED: Final = ("states", "outputs", "statuses", "places", "errors", "held", "rejected")


def differences(one: str, story: Story, other: str, another: Story) -> Iterator[Difference]:
    """In what two stories differ: group by group, and last the books."""
    for group in sorted(_groups(story) | _groups(another)):
        for what in _COMPARED:
            here, there = getattr(story, what).get(group), getattr(another, what).get(group)
            if what == "rejected":
                here, there = _settled(here or {}, there or {}, story.forgotten.get(group, 0))
            if here != there:
                yield Difference(one, other, group, what, *_only(here, there, most=1 if what == "outputs" else None))
    for text in another.faults(story.counts.received):
        yield Difference(one, other, None, "books", "", text)
    if story.counts.applied != another.counts.applied:
        text = f"{another.counts.applied} messages were applied, not {story.counts.applied} as in {one}"
        yield Difference(one, other, None, "books", "", text)


def _groups(story: Story) -> set[str]:
    return {group for what in _COMPARED for group in getattr(story, what)}


def _settled(here: dict[str, int], there: dict[str, int], forgotten: int) -> tuple[dict[str, int], dict[str, int]]:
    """Where a history is cut decides whether an old copy with other content is a conflict or stale: both will do."""
    conflicts = here.get("conflict", 0)
    if conflicts - forgotten <= there.get("conflict", 0) <= conflicts:
        here, there = ({k: v for k, v in each.items() if k != "conflict"} for each in (here, there))
    return here, there


def _only(here: Any, there: Any, *, most: int | None) -> tuple[str, str]:
    """What the one has and the other has not, in words; of what has names, so many at most."""
    if isinstance(here, dict | None) and isinstance(there, dict | None):
        here, there = here or {}, there or {}
        keys = [key for key in dict.fromkeys((*here, *there)) if here.get(key, ...) != there.get(key, ...)]
        one, other = ({key: each[key] for key in keys if key in each} for each in (here, there))
        return _first(one, most), _first(other, most)
    if isinstance(here, list) and isinstance(there, list):
        here, there = [each for each in here if each not in there], [each for each in there if each not in here]
    return _shown(here), _shown(there)


def _first(values: dict[str, Any], most: int | None) -> str:
    if most is None or len(values) <= most:
        return _shown(values)
    return f"{_shown(dict(list(values.items())[:most]))} and {len(values) - most} more"


def _shown(value: Any) -> str:
    if value is None or (isinstance(value, dict | list) and not value):
        return "nothing of it"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def plain(value: Any) -> Any:
    """A state as JSON values, so that those of all engines can be compared."""
    return json.loads(canonical(value), parse_constant=str)  # a NaN equals nothing, its name does


def plain_output(output: Any) -> Any:
    """An output as JSON values, by the encoding that every engine keeps it in."""
    return msgspec.json.decode(_outputs.encode(output))


def kind_of_error(text: str | None) -> str:
    """The type of an error, by its text and traceback: what it says may name other files on another machine."""
    last = (text or "").strip().splitlines()[-1:]
    return "".join(last).partition(":")[0].rpartition(".")[2]


def skipped_ranges(ranges: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Skipped revisions as values that compare, whatever kept them."""
    return tuple(tuple(each) for each in ranges)
