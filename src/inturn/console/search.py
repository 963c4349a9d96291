"""Search in all stores: groups by name, then messages and outputs by id, effect id or a text in them.

Ids are searched in the messages of queues, held messages, stored outputs and rejected messages. They are not indexed:
a search reads as many rows as it can in two seconds, and lists the places that it has not searched completely.
"""

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from inturn.console import group_search
from inturn.console.databases import DatabaseAddress, databases
from inturn.console.fields import RequestFields
from inturn.console.roles import Role
from inturn.console.store_addresses import StoreAddress, UnreadStore, store_addresses
from inturn.core import limits
from inturn.core.errors import InputError, InturnError
from inturn.database import Database

BUDGET_S: Final = 2.0
"""Time for one search, in seconds."""
_MOST: Final = 50
_CLOCK_ROWS: Final = 256


@dataclass(frozen=True)
class FoundMessage:
    """A message or an output found by a search.

    Attributes:
        store: title of its store or database.
        where: ``queue``, ``held``, ``output`` or ``rejected``.
        queue: its queue, if it is in one.
        group: its group.
        place: its place, in words.
        id: its deduplication id or, for an output, its effect id.
        content: its content.
    """

    store: str
    where: str
    queue: str | None
    group: str | None
    place: str
    id: str | None
    content: Any


class _Budget:
    """The remaining time of a search; the clock is read only every ``_CLOCK_ROWS`` rows."""

    def __init__(self) -> None:
        self._until, self._rows = time.monotonic() + BUDGET_S, 0
        self.cut: list[str] = []

    def rows(self, rows: Iterable[Any], place: str) -> Iterator[Any]:
        """Yield rows while time remains, and record the places that were cut off."""
        for row in rows:
            if self._rows % _CLOCK_ROWS == 0 and time.monotonic() > self._until:
                self.cut.append(place)
                return
            self._rows += 1
            yield row


def search(fields: RequestFields) -> dict[str, Any]:
    """Return groups by name or pattern and, with ``within=contents``, messages and outputs by id, effect id or text.

    Raises:
        InputError: if a viewer searches contents, which may have masked fields.
    """
    text, is_within = fields.get("q"), fields.get("within") == "contents"
    if is_within and not fields.person.may(Role.OPERATOR):
        raise InputError("viewers cannot search contents, which may have masked fields; log in as operator or admin")
    result = group_search.search(fields)
    messages: list[FoundMessage] = []
    budget = _Budget()
    if text and is_within:
        messages = list(islice(_messages(fields, text, budget, result["unread"]), _MOST))
    return result | {"within": is_within, "messages": messages, "most": _MOST, "cut": budget.cut}


def _messages(fields: RequestFields, text: str, budget: _Budget, unread: list[UnreadStore]) -> Iterator[FoundMessage]:
    addresses: list[StoreAddress | DatabaseAddress] = [*store_addresses(fields.stores)[0], *databases(fields.stores)]
    for address in addresses:
        try:
            yield from (
                _in_store(address, text, budget)
                if isinstance(address, StoreAddress)
                else _in_queues(address, text, budget)
            )
        except (InturnError, OSError) as error:
            if all(store.title != address.title for store in unread):
                unread.append(UnreadStore(address.title, str(error)))


def _in_store(address: StoreAddress, text: str, budget: _Budget) -> Iterator[FoundMessage]:
    """Yield held messages, outputs and rejected messages of a pipeline."""
    with address.open() as inspector:
        for group in budget.rows(inspector.unsettled(), f"held messages of {address.title}"):
            for held in inspector.held(group.group) if group.held else ():
                if held.id == text or _has(held.content, text):
                    yield FoundMessage(
                        address.title, "held", None, group.group, inspector.place(held), held.id, held.content
                    )
        for output in budget.rows(inspector.outputs(), f"outputs of {address.title}"):
            if text in {output.effect_id, output.id} or _has(output.output, text):
                place = "" if output.revision is None else f"revision {output.revision}"
                yield FoundMessage(address.title, "output", None, output.group, place, output.effect_id, output.output)
        for refused in budget.rows(inspector.rejected(), f"rejected messages of {address.title}"):
            if text in refused.message:
                yield FoundMessage(
                    address.title, "rejected", None, refused.group, refused.reason, None, refused.message
                )


def _in_queues(address: DatabaseAddress, text: str, budget: _Budget) -> Iterator[FoundMessage]:
    """Yield messages of queues; the text may also be a sequence number."""
    with address.open() as db:
        for name in db.queues():
            for message in budget.rows(_peeked(db, name), f"queue {name} of {address.title}"):
                if text in {message.dedup_id, str(message.sequence_number)} or _has(message.body, text):
                    number = f"message {message.sequence_number}"
                    yield FoundMessage(
                        address.title, "queue", name, message.group, number, message.dedup_id, message.body
                    )


def _peeked(db: Database, name: str) -> Iterator[Any]:
    queue, after = db.queue(name, create=False), 0
    while part := queue.peek(limits.READ_MESSAGES, after=after):
        yield from part
        after = part[-1].sequence_number


def _has(content: Any, text: str) -> bool:
    """Return whether a content, as displayed, contains a text."""
    return text in (content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, default=str))
