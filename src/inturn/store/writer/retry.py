"""Outcomes of commands that run together: an answer or error for each, independent of the others."""

import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from inturn.core.errors import StoreError
from inturn.store import limits as store_limits
from inturn.store.commands import Command, Outcome
from inturn.store.execution import execute
from inturn.store.failures import Busy, DiskFull, RunAgain
from inturn.store.protocols import Store

T = TypeVar("T")
Watch = Callable[[Sequence[Command[Any]], Sequence[Outcome]], None]

BUSY: Final = object()
"""Placeholder for an answer: another transaction blocks the command, which is still to run."""


def outcomes_of(
    store: Store, commands: Sequence[Command[Any]], clock: Callable[[], int], watch: Watch
) -> list[Outcome]:
    """Run commands in one transaction or, if one fails or has to wait, in several; ``watch`` is called for each."""
    if not commands:
        return []
    try:
        outcomes = until_no_conflict(partial(execute, store, commands, clock))
    except Busy as error:
        return _parts(store, commands, clock, watch, error)
    except Exception as error:  # noqa: BLE001 - the error is passed to the caller
        if isinstance(error, StoreError) and not isinstance(error, DiskFull):
            return [(None, error)] * len(commands)  # the store cannot be written: all others would fail too
        if len(commands) == 1:
            return [(None, error)]
        return [outcome for command in commands for outcome in outcomes_of(store, [command], clock, watch)]
    watch(commands, outcomes)
    return outcomes


def _parts(
    store: Store, commands: Sequence[Command[Any]], clock: Callable[[], int], watch: Watch, error: Busy
) -> list[Outcome]:
    """Run commands by type and queue, since commands of one type for one queue wait for the same lock."""
    parts: dict[tuple[type, str], list[int]] = {}
    for place, command in enumerate(commands):
        parts.setdefault((type(command), command.queue), []).append(place)
    outcomes: list[Outcome] = [(BUSY, error)] * len(commands)
    if len(parts) > 1:
        for places in parts.values():
            results = outcomes_of(store, [commands[place] for place in places], clock, watch)
            for place, outcome in zip(places, results, strict=True):
                outcomes[place] = outcome
    return outcomes


def until_no_conflict(act: Callable[[], T]) -> T:
    """Run a function, and again after each conflict with another transaction, or a lost connection."""
    tries = 0
    while True:
        try:
            return act()
        except RunAgain:
            tries += 1
            if tries == store_limits.RUN_AGAIN:
                raise
            # random, so that the same transactions do not conflict again
            time.sleep(random.uniform(0, 0.001 * 2 ** min(tries, 6)))  # noqa: S311
