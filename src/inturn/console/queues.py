"""Queues: their messages, their groups with what blocks each, and the actions on them."""

import datetime as dt
import time
from dataclasses import dataclass
from typing import Any, Final

from inturn.console.databases import database, databases
from inturn.console.fields import RequestFields
from inturn.console.json_texts import json_value
from inturn.console.store_addresses import UnreadStore
from inturn.core import limits
from inturn.core.errors import InputError, InturnError
from inturn.core.queue.messages import GroupView
from inturn.queue import Queue
from inturn.queue.log import LoggedMessage
from inturn.queue.message import MessageProperties

SHOWN: Final = 100
"""Number of groups and of messages on a page."""

_GREATEST: Final = 2**63 - 1
"""The greatest sequence number."""


@dataclass(frozen=True)
class QueueGroup:
    """A group of a queue, as its page shows it.

    Attributes:
        group: name of the group; None for a message without one.
        messages: number of its messages.
        oldest: when its first message was sent.
        why: whether its first message can be received, or what blocks it.
        until: when that changes automatically; None if it does not.
        token: fencing token of the lease or lock that blocks it.
        attempts: how often the first message has been received.
        note: why the group is parked, if it is.
    """

    group: str | None
    messages: int
    oldest: dt.datetime
    why: str
    until: dt.datetime | None
    token: int | None
    attempts: int
    note: str | None


@dataclass(frozen=True)
class QueuedMessage:
    """A message of a queue, as its page shows it.

    Attributes:
        number: its sequence number.
        group: its group.
        revision: its revision.
        dedup_id: its deduplication id.
        sent: when it was sent.
        body: its body.
        attributes: its attributes.
        came_from: the queue that it was moved from.
        note: why it was moved here.
        is_done: whether it has left the queue and is only in its log.
    """

    number: int
    group: str | None
    revision: int | None
    dedup_id: str | None
    sent: dt.datetime
    body: Any
    attributes: dict[str, Any]
    came_from: str | None
    note: str | None
    is_done: bool = False


def queues(fields: RequestFields) -> dict[str, Any]:
    """Return the figures of the queues of all databases."""
    entries: list[dict[str, Any]] = []
    unread: list[UnreadStore] = []
    for address in databases(fields.stores):
        try:
            with address.open() as db:
                figures, names = db.figures(), db.queues()
                infos = {name: db.queue(name, create=False).info() for name in names}
        except (InturnError, OSError) as error:
            unread.append(UnreadStore(address.title, str(error)))
            continue
        known = {figure.queue: figure for figure in figures.queues}
        at_s = time.monotonic()
        rows = [
            known[name]._asdict()
            | {
                "dead_letter": infos[name].settings.dead_letter,
                "rates": fields.rates.add(address.title, name, at_s, infos[name].last, infos[name].depth),
            }
            for name in names
            if name in known
        ]
        entries.append({"title": address.title, "queues": rows})
    return {"databases": entries, "unread": unread}


def queue(fields: RequestFields) -> dict[str, Any]:
    """Return one queue: its figures, its groups with what blocks each, and its first messages.

    Raises:
        InputError: if the queue does not exist.
    """
    address, name = database(fields), fields.need("queue")
    after, group, log = fields.number("after", 0), fields.get("group"), fields.get("log") is not None
    with address.open() as db:
        opened = db.queue(name, create=False)
        info, depth = opened.info(), opened.depth()
        groups = opened.groups(*([group] if group else []), limit=SHOWN)
        messages = (opened.log if log else opened.peek)(SHOWN, after=after, group=group)
        other_names = [other for other in db.queues() if other != name]
        feeds = [other for other in other_names if db.queue(other, create=False).info().settings.dead_letter == name]
    return {
        "database": address.title,
        "queue": name,
        "depth": depth._asdict(),
        "last": info.last,
        "dead_letter": info.settings.dead_letter,
        "dead_letters_of": feeds,
        "groups": [group_row(view) for view in groups],
        "messages": [message_row(message) for message in messages],
        "next": messages[-1].sequence_number if len(messages) == SHOWN else None,
        "chosen": {"group": group, "log": "1" if log else None},
        "keeps_log": info.settings.keeps_log or bool(info.readers),
    }


def send(fields: RequestFields) -> dict[str, str]:
    """Send a message to a queue.

    Raises:
        InputError: if the body is not JSON, or ``revision`` is not a number.
    """
    body = json_value("the body", fields.need("body"))
    revision = fields.number("revision", None)
    with database(fields).open() as db:
        sent = _queue(db, fields).send(
            body, group=fields.get("group"), revision=revision, dedup_id=fields.get("dedup_id")
        )
    return _back(fields) | {"done": f"message {sent.sequence_number} was sent"}


def redrive(fields: RequestFields) -> dict[str, str]:
    """Move messages of a dead-letter queue up to sequence number ``last`` back to their original positions."""
    last = fields.number("last", _GREATEST)
    with database(fields).open() as db:
        source, moved = _queue(db, fields), 0
        while part := source.redrive(
            limits.READ_MESSAGES, to=fields.get("to"), where=lambda message: message.sequence_number <= last
        ):
            moved += part
    return _back(fields) | {"done": f"{moved:,} messages were moved back"}


def purge(fields: RequestFields) -> dict[str, str]:
    """Remove all messages of a queue.

    Raises:
        InputError: if the name of the queue was not repeated.
    """
    if fields.get("again") != fields.need("queue"):
        raise InputError(f"to remove all messages, confirm with the queue's name, {fields.need('queue')!r}")
    with database(fields).open() as db:
        count = _queue(db, fields).purge()
    return _back(fields) | {"done": f"{count:,} messages were removed"}


def resume(fields: RequestFields) -> dict[str, str]:
    """Let a parked group of a queue be received again."""
    with database(fields).open() as db:
        was = _queue(db, fields).resume(fields.need("group"))
    return _back(fields) | {"done": "the group was resumed" if was else "the group was not parked"}


def _queue(db: Any, fields: RequestFields) -> Queue:
    opened: Queue = db.queue(fields.need("queue"), create=False)
    return opened


def _back(fields: RequestFields) -> dict[str, str]:
    return {"database": fields.need("database"), "queue": fields.need("queue")}


def group_row(view: GroupView) -> QueueGroup:
    """Return a group as a page shows it."""
    return QueueGroup(
        view.group,
        view.depth,
        _time(view.head_sent_ms),
        view.availability.name.lower().replace("_", " "),
        None if view.until_ms is None else _time(view.until_ms),
        view.token,
        view.attempts,
        view.note,
    )


def message_row(message: MessageProperties) -> QueuedMessage:
    """Return a message as a page shows it."""
    return QueuedMessage(
        message.sequence_number,
        message.group,
        message.revision,
        message.dedup_id,
        message.sent_at,
        message.body,
        message.attributes,
        message.came_from,
        message.note,
        isinstance(message, LoggedMessage) and message.is_done,
    )


def _time(ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(ms / 1000, dt.UTC)
