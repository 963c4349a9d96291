"""Divide a number of bytes among connections: the core of the HTTP server's bound on memory, without I/O.

Half of the budget is divided evenly: a holder of no more than its share never makes room. The other half is for those
that need more. When all of it is used up, the one that has had more than its share for the longest makes room: whoever
sends at a usual speed has finished long before, and whoever stalls keeps nobody waiting.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

Holder = TypeVar("Holder", bound=Hashable)


class Budget(Generic[Holder]):
    """Count what is held, and name who makes room.

    Args:
        total: how many bytes may be held by all together.
        holders: how many holders there are at most.

    Attributes:
        share: how many bytes each may always hold.
        used: how many bytes are held now.
    """

    def __init__(self, total: int, holders: int) -> None:
        self.share = total // 2 // holders
        self.used = 0
        self._total = total
        self._large: dict[Holder, None] = {}  # in the order in which they passed their share

    def change(self, holder: Holder, before: int, now: int) -> None:
        """A holder holds another number of bytes than before."""
        self.used += now - before
        if now > self.share:
            self._large.setdefault(holder)
        else:
            self._large.pop(holder, None)

    def to_make_room(self) -> Holder | None:
        """Name the holder that must let go of its bytes; None as long as the budget suffices."""
        return next(iter(self._large), None) if self.used > self._total else None
