"""Dead letters: messages that were received too often or rejected, with the reason; redriven in bulk."""

from collections import Counter
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any, Final

from inturn.console.databases import database, databases
from inturn.console.fields import RequestFields
from inturn.console.queues import message_row
from inturn.console.store_addresses import UnreadStore
from inturn.core import limits
from inturn.core.errors import InturnError
from inturn.core.queue.messages import StoredMessage
from inturn.core.texts import visible
from inturn.database import Database
from inturn.queue.message import Peeked

SHOWN: Final = 50
LOOKED_AT: Final = 10_000
"""A page reads at most this number of messages per queue; an action reads all."""
_FILTERS: Final = ("queue", "group", "error")


def dead_letters(fields: RequestFields) -> dict[str, Any]:
    """Return the matching dead letters of all databases: their number by reason, and the first ones."""
    rows: list[dict[str, Any]] = []
    unread: list[UnreadStore] = []
    for address in databases(fields.stores):
        try:
            with address.open() as db:
                rows += [{"database": address.title, **row} for row in _of_database(db, fields)]
        except (InturnError, OSError) as error:
            unread.append(UnreadStore(address.title, str(error)))
    return {"queues": rows, "unread": unread, "chosen": {name: fields.get(name) for name in _FILTERS}}


def redrive(fields: RequestFields) -> dict[str, str]:
    """Move the matching messages of a dead-letter queue back, each to its original queue and position.

    With ``last``, messages with a greater sequence number are not moved.
    """
    chosen, moved = matching(fields), 0
    with database(fields).open() as db:
        queue = db.queue(fields.need("queue"), create=False)
        while part := queue.redrive(limits.READ_MESSAGES, where=chosen):
            moved += part
    filters = {name: value for name in _FILTERS[1:] if (value := fields.get(name))}
    return {"done": f"{moved:,} of the dead letters were moved back to their original queues and positions", **filters}


def matching(fields: RequestFields) -> Callable[[StoredMessage | Peeked], bool]:
    """Return a function that tests whether a message is at most ``last`` and matches the patterns of a request."""
    group, error, last = fields.get("group"), fields.get("error"), fields.number("last", None)

    def is_chosen(message: StoredMessage | Peeked) -> bool:
        if last is not None and message.sequence_number > last:
            return False
        if group is not None and (message.group is None or not fnmatchcase(message.group, group)):
            return False
        return error is None or fnmatchcase(dead_letter_reason(message), error)

    return is_chosen


def dead_letter_reason(message: StoredMessage | Peeked) -> str:
    """Return the reason why a message is a dead letter, on one line."""
    return visible((message.note or "received too often").strip().rpartition("\n")[2])


def _of_database(db: Database, fields: RequestFields) -> list[dict[str, Any]]:
    names = db.queues()
    targets: dict[str, list[str]] = {}
    for name in names:
        target = db.queue(name, create=False).info().settings.dead_letter
        if target is not None:
            targets.setdefault(target, []).append(name)
    queue = fields.get("queue")
    chosen = [name for name in names if name in targets and queue in {None, name}]
    return [_of_queue(db, name, targets[name], fields) for name in chosen]


def _of_queue(db: Database, name: str, feeds: list[str], fields: RequestFields) -> dict[str, Any]:
    queue, is_chosen = db.queue(name, create=False), matching(fields)
    info = queue.info()
    reasons: Counter[tuple[str | None, str]] = Counter()
    shown: list[Peeked] = []
    after = looked_at = 0
    while looked_at < LOOKED_AT and (part := queue.peek(limits.READ_MESSAGES, after=after)):
        looked_at, after = looked_at + len(part), part[-1].sequence_number
        for message in filter(is_chosen, part):
            reasons[message.came_from, dead_letter_reason(message)] += 1
            if len(shown) < SHOWN:
                shown.append(message)
    return {
        "queue": name,
        "feeds": feeds,
        "depth": info.depth,
        "last": info.last,
        "looked_at": looked_at,
        "matching": reasons.total(),
        "reasons": [
            {"came_from": source, "note": note, "messages": n} for (source, note), n in reasons.most_common(20)
        ],
        "messages": [message_row(stored) for stored in shown],
    }
