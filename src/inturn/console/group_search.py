"""Search: groups of all stores and queues by name or pattern."""

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from inturn.console.databases import DatabaseAddress, databases
from inturn.console.fields import RequestFields
from inturn.console.queues import group_row
from inturn.console.store_addresses import StoreAddress, UnreadStore, store_addresses
from inturn.core.errors import InturnError

_MOST: Final = 50


def search(fields: RequestFields) -> dict[str, Any]:
    """Return the groups of pipelines and queues with a given name.

    A text with ``*`` is a shell pattern; it finds stuck groups of pipelines.
    """
    text = fields.get("q")
    groups: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = []
    addresses, unread = store_addresses(fields.stores) if text else ([], [])
    for address in (*addresses, *(databases(fields.stores) if text and "*" not in text else ())):
        try:
            if isinstance(address, StoreAddress):
                groups += _in_store(address, text or "")
            else:
                waiting += _in_queues(address, text or "")
        except (InturnError, OSError) as error:
            unread.append(UnreadStore(address.title, str(error)))
    return {"q": text, "groups": groups, "waiting": waiting, "unread": unread}


def _in_store(address: StoreAddress, text: str) -> Iterator[dict[str, Any]]:
    with address.open() as inspector:
        named = inspector.parked(group=text) if "*" in text else inspector.statuses([text]).values()
        for group in islice(named, _MOST):
            yield {"store": address.title, "group": group.group, "status": group.status, "held": group.held}


def _in_queues(address: DatabaseAddress, text: str) -> Iterator[dict[str, Any]]:
    with address.open() as db:
        for name in db.queues():
            for group in db.queue(name, create=False).groups(text, limit=1):
                if group.depth:
                    yield {"database": address.title, "queue": name, "group": group_row(group)}
