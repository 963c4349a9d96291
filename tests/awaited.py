"""What a plain function may return to be waited for: each kind does something, and only if it is waited for."""

import asyncio
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

AWAITED: Final = ("a coroutine", "an object with __await__", "a Future of a pool", "a Future of another loop")


class Request:
    """As aiohttp's requests: no coroutine, and nothing is sent before it is awaited."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def __await__(self) -> Generator[Any, None, None]:
        yield from asyncio.sleep(0.01).__await__()
        self._act()


@contextmanager
def waiting(kind: str) -> Iterator[Callable[[Callable[[], None]], Any]]:
    """A function that gives what is to be waited for, of a function that is called when it is done."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()

    async def later(act: Callable[[], None]) -> None:
        await Request(act)

    def beside(act: Callable[[], None]) -> asyncio.Future[None]:
        future: asyncio.Future[None] = loop.create_future()

        async def run() -> None:
            try:
                future.set_result(await later(act))
            except BaseException as error:  # noqa: BLE001 - a SystemExit of a task would end this loop
                future.set_exception(error)

        asyncio.run_coroutine_threadsafe(run(), loop)
        return future

    with ThreadPoolExecutor(8) as pool:
        kinds: dict[str, Callable[[Callable[[], None]], Any]] = {
            "a coroutine": later,
            "an object with __await__": Request,
            "a Future of a pool": lambda act: pool.submit(lambda: asyncio.run(later(act))),
            "a Future of another loop": beside,
        }
        yield kinds[kind]
    loop.call_soon_threadsafe(loop.stop)
