"""Search: groups of all stores and queues by name or pattern."""

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from inturn.console.databases import DatabasePlace, databases
from inturn.console.fields import RequestFields
from inturn.console.places import StorePlace, UnreadStore, found
from inturn.console.queues import group_row
from inturn.core.errors import InturnError

_MOST: Final = 50


def search(fields: RequestFields) -> dict[str, Any]:
    """Return the groups of pipelines and queues with a given name.

    A text with ``*`` is a shell pattern; it finds stuck groups of pipelines.
    """
    text = fields.get("q")
    groups: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = []
    places, unread = found(fields.stores) if text else ([], [])
    for place in (*places, *(databases(fields.stores) if text and "*" not in text else ())):
        try:
            if isinstance(place, StorePlace):
                groups += _in_store(place, text or "")
            else:
                waiting += _in_queues(place, text or "")
        except (InturnError, OSError) as error:
            unread.append(UnreadStore(place.title, str(error)))
    return {"q": text, "groups": groups, "waiting": waiting, "unread": unread}


def _in_store(place: StorePlace, text: str) -> Iterator[dict[str, Any]]:
    with place.open() as look:
        named = look.parked(group=text) if "*" in text else look.statuses([text]).values()
        for each in islice(named, _MOST):
            yield {"store": place.title, "group": each.group, "status": each.status, "held": each.held}


def _in_queues(place: DatabasePlace, text: str) -> Iterator[dict[str, Any]]:
    with place.open() as db:
        for name in db.queues():
            for each in db.queue(name, create=False).groups(text, limit=1):
                if each.depth:
                    yield {"database": place.title, "queue": name, "group": group_row(each)}
