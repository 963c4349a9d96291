"""The protocol of the erasure of a group's rows."""

from collections.abc import Callable, Sequence
from typing import Protocol


class ErasureStore(Protocol):
    """Permanent removal of the rows of a group. All methods are called inside a transaction."""

    @property
    def done_messages(self) -> Callable[[Sequence[int]], None]:
        """Remove acknowledged messages by their numbers."""
        ...

    def results(self, pipeline: int, group: str) -> None:
        """Remove the held messages, undelivered outputs and rejected messages of a group in a pipeline."""
        ...

    def decisions(self, pipeline: int, group: str) -> list[tuple[str, str]]:
        """Return the decisions about a group, applied or not, as names and JSON."""
        ...

    def rewrite(self, pipeline: int, name: str, decision: str) -> None:
        """Replace the JSON of a decision."""
        ...

    def session(self, queue: int, group: str) -> None:
        """Remove the state of a group in a queue, and the reason why it is parked."""
        ...

    def sources(self, group: str) -> None:
        """Remove rejected records whose key is the group, and its records that were set aside."""
        ...
