"""The context manager of a store's transactions; a generator-based one costs as much as a statement."""

from collections.abc import Callable
from types import TracebackType


class SqlTransaction:
    """A transaction: committed at the end of the block, rolled back if it raises."""

    __slots__ = ("_begin", "_commit", "_roll_back")

    def __init__(
        self, begin: Callable[[], None], commit: Callable[[], None], roll_back: Callable[[BaseException], None]
    ) -> None:
        self._begin = begin
        self._commit = commit
        self._roll_back = roll_back

    def __enter__(self) -> None:
        self._begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._commit()
        else:
            self._roll_back(error)
