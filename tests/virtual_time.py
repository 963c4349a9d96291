"""An event loop whose clock jumps to the next timer, so that tests of deadlines wait for nothing and cannot be slow.

If nothing is ready and there is no timer, nothing could ever happen again: that is an error, where a real loop would
hang.
"""

import asyncio
import gc
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout is None:
            raise AssertionError("everybody waits and nobody can go on")
        if not ready and timeout:
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time passes when there is nothing else to do."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)
        self.complaints: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _, context: self.complaints.append(context))

    def time(self) -> float:
        return self._virtual.now

    def pass_time(self, seconds: float) -> None:
        """Time passes without the loop's having seen to anything, as when something blocks it."""
        self._virtual.now += seconds


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run it; nothing may have gone wrong that only the event loop was told of."""
    loop = VirtualLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        result = runner.run(main())
        gc.collect()
        runner.run(asyncio.sleep(0))
    gc.collect()
    assert loop.complaints == []
    return result
