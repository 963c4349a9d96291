"""Lists of groups that previews have shown, so that a decision is about those groups and no others."""

import secrets
import threading
from collections.abc import Mapping
from typing import Final, NamedTuple

from inturn.console.refusal import RequestRefused

_MOST_GROUPS: Final = 200_000
"""Number of groups that all kept lists may have together; the last list is kept, whatever its length."""


class _ShownList(NamedTuple):
    store: str
    action: str
    marks: Mapping[str, str]


class ShownLists:
    """The latest lists of this console; any thread may use them."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._lists: dict[str, _ShownList] = {}

    def keep(self, store: str, action: str, marks: Mapping[str, str]) -> str:
        """Keep a list, and return the name under which it is found; the oldest lists make way.

        Args:
            store: the store.
            action: what would be decided.
            marks: what each group of the list was seen at; see
                :meth:`inturn.core.pipeline.deciding.Decider.draft`.
        """
        name = secrets.token_urlsafe(16)
        with self._mutex:
            self._lists[name] = _ShownList(store, action, marks)
            total = sum(len(each.marks) + 1 for each in self._lists.values())
            for old in [*self._lists][:-1]:
                if total <= _MOST_GROUPS:
                    break
                total -= len(self._lists.pop(old).marks) + 1
        return name

    def marks(self, name: str, store: str, action: str) -> Mapping[str, str]:
        """Return the groups of a list, with what each was seen at.

        Raises:
            RequestRefused: if there is no such list of this store and action, or it is no longer kept.
        """
        with self._mutex:
            found = self._lists.get(name)
        if found is None or (found.store, found.action) != (store, action):
            told = "the list of groups that was shown is no longer kept; look again, and decide about what is there"
            raise RequestRefused(told, 409)
        return found.marks
