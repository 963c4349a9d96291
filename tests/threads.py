"""Threads in tests: what one raises is raised in the test, and none is waited for without a limit."""

import threading
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from typing import Any, Generic, TypeVar

from waiting import DEADLINE_S

T = TypeVar("T")


class Running(Generic[T]):
    """A function that runs in a thread of its own, beside the test.

    Args:
        act: the function.
        args: what it is called with.
        deadline_s: seconds after which it is taken for stuck.
    """

    def __init__(self, act: Callable[..., T], *args: Any, deadline_s: float = DEADLINE_S) -> None:
        self._deadline_s, self.result = deadline_s, Future[T]()
        threading.Thread(target=self._run, args=(act, *args), daemon=True).start()

    def _run(self, act: Callable[..., T], *args: Any) -> None:
        try:
            self.result.set_result(act(*args))
        except BaseException as error:  # noqa: BLE001 - it is raised in the test
            self.result.set_exception(error)

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.result.done()

    def end(self) -> T:
        """Wait until it ends, and return what it returned, or raise what it raised; TimeoutError if it is stuck."""
        return self.result.result(self._deadline_s)


def together(*acts: Callable[[], T], deadline_s: float = DEADLINE_S) -> list[T]:
    """Run functions at once, each in a thread of its own, and return what they returned, in their order.

    The first that raises ends the wait: the others may wait for it.
    """
    running = [Running(act, deadline_s=deadline_s) for act in acts]
    for result in wait([thread.result for thread in running], deadline_s, FIRST_EXCEPTION).done:
        result.result()
    return [thread.end() for thread in running]
