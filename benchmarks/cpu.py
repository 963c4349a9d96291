"""What a run costs: CPU seconds of this process and all below it, and the memory of Spark's Python workers.

Wall time on a shared machine says more about the neighbours than about the code, so the tables are about CPU.
"""

import contextlib
import threading
import time
from types import TracebackType
from typing import Self

import psutil


class _Sampler:
    """Looks at the process tree every ``every_s`` seconds inside its ``with`` block."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def look(self) -> object:
        """One look."""
        raise NotImplementedError

    def _run(self) -> None:
        while not self._done.wait(self._every_s):
            self.look()


class Meter(_Sampler):
    """Measures what happens inside its ``with`` block.

    A process that ends leaves its CPU time to the parent that waits for it. Only PySpark's daemon waits for nobody,
    and Spark ends workers that were idle for a minute: so each worker's time is noted while it lives.

    Attributes:
        cpu_s: CPU seconds, user and system, of this process and all below it, ended ones too.
        wall_s: seconds by the clock.
    """

    def __init__(self, every_s: float = 0.25) -> None:
        super().__init__(every_s)
        self.cpu_s = self.wall_s = 0.0
        self._workers: dict[psutil.Process, float] = {}

    def __enter__(self) -> Self:
        self._wall, self._cpu = time.perf_counter(), self.look()
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wall_s = time.perf_counter() - self._wall
        super().__exit__(kind, error, trace)
        self.cpu_s = self.look() - self._cpu

    def look(self) -> float:
        """CPU seconds so far, but for the time of workers that ended before the block."""
        total = 0.0
        ended = dict(self._workers)
        for process in _tree():
            with contextlib.suppress(psutil.Error):  # it ended in this moment
                times = process.cpu_times()
                own = times.user + times.system
                total += own + times.children_user + times.children_system
                ended.pop(process, None)
                if _is_worker(process):
                    self._workers[process] = own
        return total + sum(ended.values())


class WorkerMemory(_Sampler):
    """Samples the resident memory of Spark's Python workers inside its ``with`` block.

    Attributes:
        peak_mb: the largest resident set of any one worker, in units of 1,000,000 bytes.
    """

    def __init__(self, every_s: float = 0.05) -> None:
        super().__init__(every_s)
        self.peak_mb = 0.0

    def look(self) -> None:
        """Note the largest."""
        for process in _tree():
            with contextlib.suppress(psutil.Error):
                if _is_worker(process):
                    self.peak_mb = max(self.peak_mb, process.memory_info().rss / 1e6)


def _tree() -> list[psutil.Process]:
    this = psutil.Process()
    return [this, *this.children(recursive=True)]


def _is_worker(process: psutil.Process) -> bool:
    """Whether it was forked from PySpark's daemon, with whose command line it goes on."""
    parent = process.parent()
    return all(candidate is not None and "pyspark.daemon" in candidate.cmdline() for candidate in (process, parent))
