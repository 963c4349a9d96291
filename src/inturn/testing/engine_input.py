"""A history as every engine gets it: in order of arrival, divided where time passes, with the same clock for all.

Besides the messages, an engine's decisions depend on three things: the order of arrival, the time, and the division
into steps. The first two are fixed here; each engine chooses the third at random.
"""

import datetime as dt
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from inturn.core.errors import InputError
from inturn.core.identity import group_text
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.policies import Retry, Wait
from inturn.core.pipeline.reading import read
from inturn.core.values.path import parts, put, value_at

T = TypeVar("T")
LONG_WAIT: Final = dt.timedelta(days=1000)
"""The time-out for gaps and idle groups in a test, in place of the pipeline's: no wait ends while an engine runs."""
TIME_STEP: Final = 2 * LONG_WAIT
"""The time by which the clock is advanced at once, so that all waits end."""
_MOST_PARTS: Final = 3


@dataclass(frozen=True)
class EngineInput:
    """Messages in order of arrival.

    Attributes:
        pipeline: the definition for the engines; waits are long, retries do not pause.
        parts: the messages; if ``time_passes``, all waits end after each part.
        has_arrivals: whether the messages carry their order of arrival.
    """

    pipeline: Pipeline
    parts: list[list[Any]]
    time_passes: bool
    has_arrivals: bool

    @property
    def messages(self) -> list[Any]:
        """The messages of all parts."""
        return [message for part in self.parts for message in part]

    @classmethod
    def of(cls, pipeline: Pipeline, messages: Sequence[Any], seed: int) -> "EngineInput":
        """Put messages in order, and decide when time passes.

        A wait that ends the run (``then="fail"``) never ends here: a run that fails has no result.
        """
        chance = random.Random(seed)  # noqa: S311 - chance for a test
        policy = pipeline.gap_policy
        timed = pipeline.wait_us is not None
        tested = replace(
            pipeline,
            on_gap=Wait(LONG_WAIT, then=policy.then) if policy.timeout_us is not None else pipeline.on_gap,
            order=pipeline.order.idle_after(LONG_WAIT),
            retry=Retry(pipeline.retry.times, "0 seconds"),
        )
        filled = [_filled(pipeline, message) for message in messages]
        has_arrivals = False
        if pipeline.arrival is not None:
            has_arrivals, filled = _arrivals(pipeline, pipeline.arrival, filled)
        time_passes = timed and policy.then != "fail"
        parts = cuts(filled, chance.randint(2, _MOST_PARTS) if time_passes else 1, chance)
        return cls(tested, parts, time_passes, has_arrivals)


def cuts(items: Sequence[T], parts: int, chance: random.Random) -> list[list[T]]:
    """Cut items at random into a number of parts, some of which may be empty."""
    ends = sorted(chance.randint(0, len(items)) for _ in range(parts - 1))
    return [list(items[a:b]) for a, b in zip([0, *ends], [*ends, len(items)], strict=True)]


def value_of(message: Any, name: str) -> Any:
    """Return the value of the field at a path; None if it is absent."""
    return value_at(message, name)


def group_of(pipeline: Pipeline, message: Any) -> str | None:
    """Return the text form of a message's group; None if it has none."""
    value = value_of(message, pipeline.group)
    return None if value is None else group_text(value)


def values_of(pipeline: Pipeline, message: Any) -> dict[str, Any]:
    """Return a message as a dict of its fields."""
    if isinstance(message, Mapping):
        return dict(message)
    return {name: getattr(message, name) for name in pipeline.fields or ()}


def _filled(pipeline: Pipeline, message: Any) -> Any:
    """Return a message as a queue or a table stores it: zoned times in UTC, absent key fields as null."""
    if not isinstance(message, Mapping) and not isinstance(message, pipeline.message or ()):
        return message  # not a message; the pure timeline reports it
    values = values_of(pipeline, message)
    absent = [parts(name)[0] for name in pipeline.key_fields if parts(name)[0] not in values]
    filled = {name: _in_utc(value) for name, value in {**values, **dict.fromkeys(absent)}.items()}
    return message if all(filled[name] is values.get(name, filled) for name in filled) else filled


def _in_utc(value: Any) -> Any:
    if isinstance(value, dt.datetime) and value.utcoffset():
        return value.astimezone(dt.UTC)
    return value


def _arrivals(pipeline: Pipeline, name: str, messages: Sequence[Any]) -> tuple[bool, list[Any]]:
    """Return the messages sorted by their arrival field; a message without a value gets that of the one before it.

    If all values are equal, or absent, the messages are numbered in the order of the list.

    Raises:
        InputError: if the values cannot be ordered.
    """
    first = value_of(messages[0], name) if messages else None
    if isinstance(first, int | None) and all(value_of(message, name) == first for message in messages):
        if pipeline.fields is not None and parts(name)[0] not in pipeline.fields:
            return False, list(messages)
        return True, [put(values_of(pipeline, message), name, index) for index, message in enumerate(messages)]
    rows = list(_with_arrival(pipeline, name, messages))
    keyed = []
    for message in rows:
        offers, _ = read(replace(pipeline, on_invalid="reject"), [message])
        keyed.append((offers[0][0] if offers else (value_of(message, name),), message))
    try:
        return True, [message for _, message in sorted(keyed, key=lambda pair: pair[0])]
    except TypeError as error:
        raise InputError(f"the messages cannot be sorted by their field {name!r}: {error}") from error


def _with_arrival(pipeline: Pipeline, name: str, messages: Sequence[Any]) -> Iterator[Any]:
    last = next(value for value in (value_of(message, name) for message in messages) if value is not None)
    for message in messages:
        value = value_of(message, name)
        if value is None:
            yield put(values_of(pipeline, message), name, last)
        else:
            last = value
            yield message
