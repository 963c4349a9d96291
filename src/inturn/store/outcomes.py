"""What commands come to that are done together: each its own answer or error, whatever becomes of the others."""

import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from inturn.core import limits
from inturn.core.errors import StoreError
from inturn.store.base import Busy, NoRoom, RunAgain, Store
from inturn.store.commands import Command, Outcome, execute

T = TypeVar("T")
Watch = Callable[[Sequence[Command[Any]], Sequence[Outcome]], None]

BUSY: Final = object()
"""In the place of an answer: another transaction is in the way, so it is still to be done."""


def outcomes_of(
    store: Store, commands: Sequence[Command[Any]], clock: Callable[[], int], watch: Watch
) -> list[Outcome]:
    """Do commands in one transaction or, if one fails or has to wait, in several.

    Args:
        store: where.
        commands: what.
        clock: the time, in milliseconds since 1970.
        watch: is told of each transaction.
    """
    if not commands:
        return []
    try:
        outcomes = again(partial(execute, store, commands, clock))
    except Busy as error:
        return _parts(store, commands, clock, watch, error)
    except Exception as error:  # noqa: BLE001 - it is the caller's, who is told
        if isinstance(error, StoreError) and not isinstance(error, NoRoom):
            return [(None, error)] * len(commands)  # the store cannot be written, so no other command fares better
        if len(commands) == 1:
            return [(None, error)]
        return [outcome for command in commands for outcome in outcomes_of(store, [command], clock, watch)]
    watch(commands, outcomes)
    return outcomes


def _parts(
    store: Store, commands: Sequence[Command[Any]], clock: Callable[[], int], watch: Watch, error: Busy
) -> list[Outcome]:
    """Do what does not wait for another transaction. Commands of a kind for one queue wait for the same."""
    parts: dict[tuple[type, str], list[int]] = {}
    for place, command in enumerate(commands):
        parts.setdefault((type(command), command.queue), []).append(place)
    outcomes: list[Outcome] = [(BUSY, error)] * len(commands)
    if len(parts) > 1:
        for places in parts.values():
            found = outcomes_of(store, [commands[each] for each in places], clock, watch)
            for place, outcome in zip(places, found, strict=True):
                outcomes[place] = outcome
    return outcomes


def again(act: Callable[[], T]) -> T:
    """Do something in a transaction, and again if another was in the way."""
    tries = 0
    while True:
        try:
            return act()
        except RunAgain:
            tries += 1
            if tries == limits.RUN_AGAIN:
                raise
            # so that those who met do not meet again
            time.sleep(random.uniform(0, 0.001 * 2 ** min(tries, 6)))  # noqa: S311
