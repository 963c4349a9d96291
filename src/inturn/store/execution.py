"""Execution of commands: many run in one transaction, and the commands for one queue are merged."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any, Final

from inturn.core.errors import QueueFull
from inturn.store.commands import (
    AcquireSession,
    Command,
    Outcome,
    Read,
    Receive,
    ReceiveInSession,
    ReceiveLimited,
    Send,
    SessionCall,
    Settle,
    StoreCall,
    UpdateKey,
    WaitingSend,
    queue_of,
)
from inturn.store.protocols import Store, no_such_queue

_ORDER: Final[dict[type, int]] = {
    Settle: 0,
    Send: 1,
    WaitingSend: 1,
    StoreCall: 2,
    Read: 2,
    SessionCall: 2,
    UpdateKey: 2,
    Receive: 3,
    AcquireSession: 4,
    ReceiveInSession: 4,
    ReceiveLimited: 4,
}
_ALONE: Final = {2, 4}
"""The ranks in ``_ORDER`` of commands that run one by one."""


def execute(store: Store, commands: Sequence[Command[Any]], clock: Callable[[], int]) -> list[Outcome]:
    """Run commands in one transaction.

    Concurrent commands have no order. Settlements run first, since they free groups, and receives last, so
    that they find new messages. Sends to one queue are merged, as are settlements.

    Raises:
        Exception: the error of a command; then the transaction is rolled back, and the caller may run them one by one.
    """
    with store.transaction():
        return outcomes_within(store, commands, clock())


def outcomes_within(store: Store, commands: Sequence[Command[Any]], now_ms: int) -> list[Outcome]:
    """Run commands in the open transaction; see :func:`execute`."""
    if len(commands) == 1:  # nothing to merge
        return [_alone(commands[0], store, now_ms)]
    outcomes: list[Outcome] = [(None, None)] * len(commands)
    parts: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
    for place, command in enumerate(commands):
        parts[_ORDER[type(command)], command.queue].append(place)
    for (kind, queue), places in sorted(parts.items()):
        part: Sequence[Any] = [commands[place] for place in places]
        answers: list[Outcome]
        if kind not in _ALONE and queue not in store.queues:
            answers = [(None, no_such_queue(queue, store.queues))] * len(part)
        elif kind == _ORDER[Send]:
            answers = _sends(part, store, now_ms)
        elif kind == _ORDER[Settle]:
            answers = _together(part, [command.changes for command in part], store, now_ms)
        elif kind == _ORDER[Receive]:
            requests = [command.want for command in part]
            answers = [(deliveries, None) for deliveries in store.receive(queue_of(store, queue), requests, now_ms)]
        else:
            answers = [(command.run(store, now_ms), None) for command in part]
        for place, answer in zip(places, answers, strict=True):
            outcomes[place] = answer
    return outcomes


def _alone(command: Command[Any], store: Store, now_ms: int) -> Outcome:
    try:
        return command.run(store, now_ms), None
    except QueueFull as error:
        if not isinstance(command, Send):  # other commands may have written before
            raise
        return None, error


def _sends(part: Sequence[Send[Any]], store: Store, now_ms: int) -> list[Outcome]:
    """Run sends for one queue; if it has no room for all, run those that fit, in order of arrival."""
    queue = queue_of(store, part[0].queue)
    sets = [command.drafts for command in part]
    bound = queue.settings.max_depth
    if bound is None:
        return _together(part, sets, store, now_ms)
    have_waited = any(isinstance(command, WaitingSend) and command.refusal for command in part)
    if not have_waited and sum(map(len, sets)) <= bound:
        with suppress(QueueFull):  # nothing was written
            return _together(part, sets, store, now_ms)
    outcomes: list[Outcome] = []
    ahead = 0  # messages that continue to wait for room
    for command in part:
        error = command.refusal if ahead and isinstance(command, WaitingSend) else None
        if error is None:
            try:
                outcomes.append((store.send(queue, command.drafts, now_ms, ahead), None))
                continue
            except QueueFull as full:
                error = full
        outcomes.append((None, error))
        if isinstance(command, WaitingSend):
            command.refusal = error
            ahead += len(command.drafts)
    return outcomes


def _together(part: Sequence[Any], sets: Sequence[Sequence[Any]], store: Store, now_ms: int) -> list[Outcome]:
    """Run sends or settlements for one queue as one call of the store."""
    queue = queue_of(store, part[0].queue)
    every = [item for items in sets for item in items]
    answers: Sequence[Any]
    answers = store.send(queue, every, now_ms) if isinstance(part[0], Send) else store.settle(queue, every, now_ms)
    if all(len(items) == 1 for items in sets):  # the usual case
        return [([answer], None) for answer in answers]
    ends = list(accumulate(len(items) for items in sets))
    return [(answers[end - len(items) : end], None) for end, items in zip(ends, sets, strict=True)]
