"""The threads of a worker: a pool of limited concurrency, and how many messages keep it busy.

A sleeping job gives its place in the pool to another.
"""

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from inturn.core import limits

T = TypeVar("T")


class PoolStopped(BaseException):
    """Raised within a sleep when the pool is stopped; a BaseException, so that handlers do not catch it by accident."""


class ThreadPool(Generic[T]):
    """A thread pool that runs one function on items.

    Args:
        size: the number of items that run at once.
        run: the function; it must not raise.
        name: the name of the threads.
    """

    def __init__(self, size: int, run: Callable[[T], None], name: str) -> None:
        self._run, self._name, self._size = run, name, size
        self._items: SimpleQueue[T | None] = SimpleQueue()
        self._places = threading.Semaphore(size)
        self._stopping = threading.Event()
        self._mutex = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._asleep = 0

    def put(self, item: T) -> None:
        """Queue an item."""
        self._items.put(item)
        if len(self._threads) < self._size:
            with self._mutex:
                if len(self._threads) < self._size:
                    self._start()

    @property
    def backlog(self) -> int:
        """The number of items that have not begun."""
        return self._items.qsize()

    @property
    def asleep(self) -> int:
        """The number of running items that sleep and have given up their places."""
        return self._asleep

    def sleep(self, seconds: float) -> None:
        """Sleep within a running item, and let another run in the meantime.

        Raises:
            Stopped: if the pool is stopped.
        """
        with self._mutex:
            gives_way = self._asleep < limits.WORKER_ASLEEP
            if gives_way:
                self._asleep += 1
                if len(self._threads) < self._size + self._asleep:
                    self._start()
        if gives_way:
            self._places.release()
        is_stopped = self._stopping.wait(seconds)
        if gives_way:
            self._places.acquire()
            with self._mutex:
                self._asleep -= 1
        if is_stopped:
            raise PoolStopped

    def stop(self) -> list[T]:
        """Start no more items; return those that have not begun."""
        self._stopping.set()
        remaining = []
        try:
            while True:
                item = self._items.get_nowait()
                if item is not None:
                    remaining.append(item)
        except Empty:
            pass
        for _ in range(len(self._threads)):
            self._items.put(None)
        return remaining

    def _start(self) -> None:
        thread = threading.Thread(target=self._work, name=self._name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        while (item := self._items.get()) is not None:
            with self._places:
                self._run(item)


class Throughput:
    """Measurement of a worker's throughput, and so of how many messages to receive ahead.

    Args:
        clock: returns the time in seconds.

    Attributes:
        ahead: approximate number of messages that are processed in ``limits.WORKER_AHEAD_S``.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.ahead = 0
        self._clock = clock
        self._done = 0
        self._since = clock()

    def done(self, messages: int) -> None:
        """Count finished messages and update ``ahead``, which rises at once and falls gradually."""
        self._done += messages
        gone_s = self._clock() - self._since
        if gone_s < limits.WORKER_AHEAD_S / 10:
            return
        now = round(self._done / gone_s * limits.WORKER_AHEAD_S)
        self.ahead = min(now if now > self.ahead else (now + self.ahead) // 2, limits.RECEIVE_MESSAGES)
        self._done, self._since = 0, self._clock()


def receives(ahead: int, concurrency: int, busy: int, free: int) -> list[int]:
    """Return the maximum number of messages of each receive.

    The messages of one receive may all be of one group. While they are in flight, no more messages of that group can be
    received. So one receive gets a group's share of the time ahead: the fewer groups, the larger the share. All
    receives together get no more than is processed in twice that time, or one message for each free place.

    Args:
        ahead: the number of messages that are done in the time ahead.
        concurrency: the maximum number of groups whose tasks run at once.
        busy: the number of groups whose tasks were running.
        free: the number of free places.
    """
    at_work = min(max(busy, 1), concurrency)
    share = ahead // at_work
    if share <= 1:
        return [1] * max(free, 0)
    rest = ahead // concurrency
    if rest:  # tasks are short: fetch some messages before places are free
        return [share] * at_work + [rest] * (concurrency - at_work)
    return [share] * min(at_work, free) + [1] * (free - at_work)
