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
        counts, faults = self.counts, [*self.broken]
        if not counts.balanced:
            faults.append(f"the counts do not balance: {counts}")
        if counts.received != messages:
            faults.append(f"{counts.received} of {messages} messages were counted as received")
        if counts.held - counts.released != self.holding():
            balance = f"{counts.held} messages were counted as held and {counts.released} as released"
            faults.append(f"{balance}, but {self.holding()} are held at the end")
        reasons: dict[str, int] = {}
        for own in self.rejected.values():
            for reason, count in own.items():
                reasons[reason] = reasons.get(reason, 0) + count
        if reasons != {reason: count for reason, count in counts.rejected.items() if count}:
            faults.append(f"{counts.rejected} messages were counted as rejected, but {reasons} are stored")
        return faults


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


def differences(reference: str, expected: EngineResult, engine: str, actual: EngineResult) -> Iterator[Difference]:
    """Yield the differences between two results: group by group, then the counts."""
    for group in sorted(_groups(expected) | _groups(actual)):
        for part in _COMPARED:
            expected_value, actual_value = getattr(expected, part).get(group), getattr(actual, part).get(group)
            if part == "rejected":
                expected_value, actual_value = _settled(
                    expected_value or {}, actual_value or {}, expected.forgotten.get(group, 0)
                )
            if expected_value != actual_value:
                yield Difference(
                    reference,
                    engine,
                    group,
                    part,
                    *_only(expected_value, actual_value, most=1 if part == "outputs" else None),
                )
    for text in actual.faults(expected.counts.received):
        yield Difference(reference, engine, None, "books", "", text)
    if expected.counts.applied != actual.counts.applied:
        text = f"{actual.counts.applied} messages were applied, but {expected.counts.applied} in {reference}"
        yield Difference(reference, engine, None, "books", "", text)


def _groups(result: EngineResult) -> set[str]:
    return {group for part in _COMPARED for group in getattr(result, part)}


def _settled(expected: dict[str, int], actual: dict[str, int], forgotten: int) -> tuple[dict[str, int], dict[str, int]]:
    """Drop conflicts that may also be stale: for an old copy with other content, the end of a step decides that."""
    conflicts = expected.get("conflict", 0)
    if conflicts - forgotten <= actual.get("conflict", 0) <= conflicts:
        expected, actual = ({k: v for k, v in side.items() if k != "conflict"} for side in (expected, actual))
    return expected, actual


def _only(expected: Any, actual: Any, *, most: int | None) -> tuple[str, str]:
    """Return the differing part of each side, in words; of named values, at most ``most``."""
    if isinstance(expected, dict | None) and isinstance(actual, dict | None):
        expected, actual = expected or {}, actual or {}
        keys = [key for key in dict.fromkeys((*expected, *actual)) if expected.get(key, ...) != actual.get(key, ...)]
        expected_part, actual_part = ({key: side[key] for key in keys if key in side} for side in (expected, actual))
        return _first(expected_part, most), _first(actual_part, most)
    if isinstance(expected, list) and isinstance(actual, list):
        expected, actual = (
            [item for item in expected if item not in actual],
            [item for item in actual if item not in expected],
        )
    return _shown(expected), _shown(actual)


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
    result: EngineResult,
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
    result.states[group], result.statuses[group] = plain(state), status
    result.places[group] = (epoch, reached, tuple(map(tuple, skipped)))
    if parked:
        last = (error or "").strip().splitlines()[-1:]
        result.errors[group] = "".join(last).partition(":")[0].rpartition(".")[2]
