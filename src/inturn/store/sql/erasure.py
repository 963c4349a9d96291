"""Erasure of a group's rows in an SQL database; both databases have the same names of statements."""

from collections.abc import Callable, Sequence
from typing import Any

from inturn.core.override import override
from inturn.store.erasure import ErasureStore


class SqlErasure(ErasureStore):
    """Permanent removal of the rows of a group.

    Args:
        read: runs a statement by its name, with its parameters; returns its rows.
        do: runs a statement that has no result.
        remove: removes acknowledged messages by their numbers.
        key: returns the stored form of a group's name in the tables of queues.
        pipeline_key: returns that in the tables of pipelines.
        text: returns the stored form of a text.
    """

    def __init__(
        self,
        read: Callable[..., Sequence[Any]],
        do: Callable[..., object],
        remove: Callable[[Sequence[int]], None],
        key: Callable[[str], str] = str,
        pipeline_key: Callable[[str], str] = str,
        text: Callable[[str], str] = str,
    ) -> None:
        self._read = read
        self._do = do
        self._key, self._pipeline_key, self._text = key, pipeline_key, text
        self._remove = remove

    @property
    @override
    def done_messages(self) -> Callable[[Sequence[int]], None]:
        return self._remove

    @override
    def results(self, pipeline: int, group: str) -> None:
        for statement in ("erase_held", "erase_outputs", "erase_outbox"):
            self._do(statement, pipeline, self._pipeline_key(group))
        self._do("erase_rejected", pipeline, self._text(group))  # which may name a group that is none

    @override
    def decisions(self, pipeline: int, group: str) -> list[tuple[str, str]]:
        return [
            (name, decision) for name, decision in self._read("group_decisions", pipeline, self._pipeline_key(group))
        ]

    @override
    def rewrite(self, pipeline: int, name: str, decision: str) -> None:
        self._do("rewrite_decision", pipeline, name, decision)

    @override
    def session(self, queue: int, group: str) -> None:
        self._do("erase_session_state", queue, self._key(group))

    @override
    def sources(self, group: str) -> None:
        self._do("erase_source_rejections", group.encode())
        self._do("erase_source_moved", group)
