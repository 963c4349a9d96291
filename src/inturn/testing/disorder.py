"""Disordered deliveries of a clean history, for the differential test and for tests of handlers."""

import dataclasses
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from inturn.core.errors import InputError
from inturn.core.identity import is_model
from inturn.core.values.path import parts, put

T = TypeVar("T")


def disorder(  # noqa: PLR0913 - every share can be set, and by its name only
    messages: Iterable[T],
    *,
    seed: int = 0,
    duplicates: float = 0.1,
    displaced: float = 0.3,
    distance: int = 20,
    lost: float = 0.0,
    contradict: Callable[[T], T] | None = None,
    conflicts: float = 0.02,
    arrival: str | None = None,
) -> list[T]:
    """Return a history as a bad network delivers it: out of order, late, repeated, with gaps and conflicts.

    Half of the copies arrive soon after their message, the others at any later time.

    Args:
        messages: the clean history, in order.
        seed: random seed; the same seed gives the same list.
        duplicates: share of messages that arrive again.
        displaced: share of messages that arrive late.
        distance: greatest lateness, in messages.
        lost: share of messages that never arrive.
        contradict: function that returns a message with the same place or id and other content; None for no conflicts.
        conflicts: share of messages for which a conflicting message arrives, before or after them.
        arrival: path to the field that is renumbered, from 0, in the order of the list.

    Returns:
        The messages in order of delivery; unchanged messages are the same objects.

    Raises:
        InputError: if a share is not between 0 and 1.
    """
    shares = {"duplicates": duplicates, "displaced": displaced, "lost": lost, "conflicts": conflicts}
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise InputError(f"{name}={share!r}; expected a share from 0 to 1")
    chance = random.Random(seed)  # noqa: S311 - chance for a test
    placed: list[tuple[float, T]] = []
    history = list(messages)
    for index, message in enumerate(history):
        late = chance.random() < displaced
        place = index + (chance.uniform(0, distance + 1) if late else 0)
        if chance.random() >= lost:
            placed.append((place, message))
        if chance.random() < duplicates:
            soon = chance.random() < 0.5
            placed.append((chance.uniform(place, place + distance + 1 if soon else max(place, len(history))), message))
        if contradict is not None and chance.random() < conflicts:
            placed.append((place + chance.uniform(-1, distance + 1), contradict(message)))
    placed.sort(key=lambda pair: pair[0])
    delivered = [message for _, message in placed]
    return (
        delivered
        if arrival is None
        else [_numbered(message, arrival, index) for index, message in enumerate(delivered)]
    )


def _numbered(message: T, field: str, number: int) -> T:
    numbered: Any
    if isinstance(message, Mapping) or len(parts(field)) > 1:
        numbered = put(message, field, number)
    elif isinstance(message, msgspec.Struct):
        numbered = msgspec.structs.replace(message, **{field: number})
    elif is_model(type(message)):
        numbered = put(message, field, number)
    else:
        numbered = dataclasses.replace(message, **{field: number})  # type: ignore[type-var]
    return numbered  # type: ignore[no-any-return]
