"""The result of an engine for a history, in one shape for all engines, and the differences between two of them."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from inturn.core.identity import canonical
from inturn.core.pipeline.journal import Counts
from inturn.output_json import output_json

_SHOWN: Final = 300
"""The maximum number of characters shown of each side of a difference."""


class Different(AssertionError):
    """A difference between two engines, or two runs of one, for the same messages; the text names it."""


class NotDeterministic(Different):
    """A handler that does not always give the same result for the same state and message."""


@dataclass
class EngineResult:
    """The result of a history.

    Attributes:
        states: state of each group, as JSON values.
        outputs: outputs of each group by effect id, as JSON values.
        statuses: status of each group.
        places: epoch, reached place, and skipped revisions of each group.
        errors: type of the error of each parked group.
        held: held messages of each group in their order: epoch, place, id, and digest.
        rejected: number of rejected messages, by group and reason.
        forgotten: number of a group's conflicts that are so old that an engine may count them as stale.
        counts: number of messages by outcome.
        broken: descriptions of steps with counts that do not balance.
        seconds: duration of the engine's run.
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
        """Count a rejected message."""
        own = self.rejected.setdefault(group or "", {})
        own[reason] = own.get(reason, 0) + 1

    def holding(self) -> int:
        """Return the number of messages held at the end."""
        return sum(map(len, self.held.values()))

    def faults(self, messages: int) -> list[str]:
        """Return the faults in the engine's own counts, in words.

        Args:
            messages: number of messages that were passed to it.
        """
        counts, found = self.counts, [*self.broken]
        if not counts.balanced:
            found.append(f"the counts do not balance: {counts}")
        if counts.received != messages:
            found.append(f"{counts.received} of {messages} messages were counted as received")
        if counts.held - counts.released != self.holding():
            balance = f"{counts.held} messages were counted as held and {counts.released} as released"
            found.append(f"{balance}, but {self.holding()} are held at the end")
        reasons: dict[str, int] = {}
        for own in self.rejected.values():
            for reason, count in own.items():
                reasons[reason] = reasons.get(reason, 0) + count
        if reasons != {reason: count for reason, count in counts.rejected.items() if count}:
            found.append(f"{counts.rejected} messages were counted as rejected, but {reasons} are stored")
        return found


@dataclass(frozen=True)
class Difference:
    """One difference between an engine and the pure timeline, about one group.

    Attributes:
        one: the reference engine, the pure timeline.
        other: the engine that differs.
        group: the group; None for a difference of the whole result, such as the counts.
        what: the property that differs: ``states``, ``outputs``, …
        here: value of the reference, in words.
        there: value of the other engine, in words.
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


def differences(one: str, story: EngineResult, other: str, another: EngineResult) -> Iterator[Difference]:
    """Yield the differences between two results: group by group, then the counts."""
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
        text = f"{another.counts.applied} messages were applied, but {story.counts.applied} in {one}"
        yield Difference(one, other, None, "books", "", text)


def _groups(story: EngineResult) -> set[str]:
    return {group for what in _COMPARED for group in getattr(story, what)}


def _settled(here: dict[str, int], there: dict[str, int], forgotten: int) -> tuple[dict[str, int], dict[str, int]]:
    """Drop conflicts that may also be stale: for an old copy with other content, the end of a step decides that."""
    conflicts = here.get("conflict", 0)
    if conflicts - forgotten <= there.get("conflict", 0) <= conflicts:
        here, there = ({k: v for k, v in each.items() if k != "conflict"} for each in (here, there))
    return here, there


def _only(here: Any, there: Any, *, most: int | None) -> tuple[str, str]:
    """Return the differing part of each side, in words; of named values, at most ``most``."""
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
        return "no value"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def plain(value: Any) -> Any:
    """Return a state as JSON values, so that those of all engines can be compared."""
    return json.loads(canonical(value), parse_constant=str)  # NaN never equals itself, its name does


def plain_output(output: Any) -> Any:
    """Return an output as JSON values, by the encoding in which every engine stores it."""
    return msgspec.json.decode(output_json(output))


def record(  # noqa: PLR0913 - the data that every engine has about a group
    story: EngineResult,
    group: str,
    state: Any,
    status: str,
    epoch: int | None,
    reached: Any,
    skipped: Sequence[Sequence[int]],
    *,
    parked: bool,
    error: str | None,
) -> None:
    """Record the status of a group; of an error only its type, since its text may name files of another machine."""
    story.states[group], story.statuses[group] = plain(state), status
    story.places[group] = (epoch, reached, tuple(map(tuple, skipped)))
    if parked:
        last = (error or "").strip().splitlines()[-1:]
        story.errors[group] = "".join(last).partition(":")[0].rpartition(".")[2]
