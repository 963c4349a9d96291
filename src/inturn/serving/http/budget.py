"""A byte budget divided among connections: the core of the HTTP server's memory bound, without I/O.

Half of the budget is divided evenly: a holder within its share is never asked to make room. The other half is for
holders that need more. When the whole budget is used up, the holder that has exceeded its share for the longest makes
room. A client that sends at a usual speed has finished long before, and a client that stalls delays no other.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

Holder = TypeVar("Holder", bound=Hashable)


class Budget(Generic[Holder]):
    """The bytes held by each holder, and the choice of the holder that makes room.

    A holder may always hold its ``share``; all together hold ``used``.
    """

    def __init__(self, total: int, holders: int) -> None:
        self.share = total // 2 // holders
        self.used = 0
        self._total = total
        self._large: dict[Holder, None] = {}  # in the order in which they passed their share

    def change(self, holder: Holder, before: int, now: int) -> None:
        """Record a change in the bytes that a holder holds."""
        self.used += now - before
        if now > self.share:
            self._large.setdefault(holder)
        else:
            self._large.pop(holder, None)

    def next_to_drop(self) -> Holder | None:
        """Return the holder that must release its bytes; None while the budget suffices."""
        return next(iter(self._large), None) if self.used > self._total else None
