"""The event loop in which a worker or a consumer waits for an awaitable that a plain function has returned.

A plain function may return an awaitable: a coroutine, a request of aiohttp, a Future. Its work counts as done only when
the awaitable is done. Async functions run in the same loop.
"""

import asyncio
import concurrent.futures
import inspect
import threading
from collections.abc import Awaitable
from typing import Any

from inturn.core.errors import HandlerError


class EventLoop:
    """An event loop for any number of threads: the caller's or, from its first use on, an own one in its own thread.

    Args:
        name: the name of the own loop's thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_own = False
        self._mutex = threading.Lock()

    def use(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run in a loop of the caller."""
        self._loop = loop

    def result_of(self, returned: Any) -> Any:
        """Return a function's return value, or its result if the value is awaitable; called by other threads.

        Raises:
            HandlerError: if it is a generator, which would never run, or a Future of a loop that does not run.
            BaseException: the error of the awaitable.
        """
        if inspect.isgenerator(returned) or inspect.isasyncgen(returned):
            raise HandlerError(f"{returned.__qualname__!r} is a generator, which would never run; do not yield in it")
        if isinstance(returned, concurrent.futures.Future):
            return returned.result()
        if not inspect.isawaitable(returned):
            return returned
        loop = returned.get_loop() if asyncio.isfuture(returned) else self._running()
        if not loop.is_running():
            kind = type(returned).__name__
            raise HandlerError(f"the returned {kind} belongs to an event loop that is not running; start that loop")
        result, error = asyncio.run_coroutine_threadsafe(_outcome(returned), loop).result()
        if error is not None:
            raise error
        return result

    def close(self) -> None:
        """Stop the own loop."""
        if self._loop is not None and self._is_own:
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._mutex:
            if self._loop is None:
                loop, started = asyncio.new_event_loop(), threading.Event()
                loop.call_soon(started.set)
                threading.Thread(target=loop.run_forever, name=self._name, daemon=True).start()
                started.wait()
                self._loop, self._is_own = loop, True
            return self._loop


async def _outcome(awaited: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    """Wait, and return the result or the error: as a result, since SystemExit would end the whole loop."""
    try:
        return await awaited, None
    except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
        return None, error
