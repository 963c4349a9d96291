"""Lists of groups that previews have shown, so that a decision is only about those groups."""

import secrets
import threading
from collections.abc import Mapping
from typing import Final, NamedTuple

from inturn.console.refusal import RequestRefused

_MOST_GROUPS: Final = 200_000
"""Maximum number of groups in all stored lists together; the latest list is always stored."""


class _GroupList(NamedTuple):
    store: str
    action: str
    marks: Mapping[str, str]


class PreviewedGroups:
    """The latest lists of this console; thread-safe."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._lists: dict[str, _GroupList] = {}

    def save(self, store: str, action: str, marks: Mapping[str, str]) -> str:
        """Store a list, and return its name; the oldest lists are removed if there are too many groups.

        Args:
            store: the store.
            action: the action of the decision.
            marks: the state in which each group of the list was shown; see
                :meth:`inturn.core.pipeline.decision_service.DecisionService.prepare`.
        """
        name = secrets.token_urlsafe(16)
        with self._mutex:
            self._lists[name] = _GroupList(store, action, marks)
            total = sum(len(group_list.marks) + 1 for group_list in self._lists.values())
            for old in [*self._lists][:-1]:
                if total <= _MOST_GROUPS:
                    break
                total -= len(self._lists.pop(old).marks) + 1
        return name

    def marks(self, name: str, store: str, action: str) -> Mapping[str, str]:
        """Return the groups of a list, each with the state in which it was shown.

        Raises:
            RequestRefused: if no list of this store and action has this name, or it was removed.
        """
        with self._mutex:
            group_list = self._lists.get(name)
        if group_list is None or (group_list.store, group_list.action) != (store, action):
            text = "the list of groups on your page is no longer stored; open the list again and decide then"
            raise RequestRefused(text, 409)
        return group_list.marks
