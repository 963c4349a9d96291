"""The same work in several processes, since handlers that compute share one interpreter.

The parent starts the processes, forwards a stop through a pipe, and ends all when one fails. A process that ends
without a stop and before its work is finished is replaced: it was killed, stopped by a signal that only it received, or
ended by a handler. A process whose parent has ended stops too: the pipe between them is closed then.
"""

import logging
import multiprocessing
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any, Final, NamedTuple

from inturn.core import limits
from inturn.core.errors import InturnError
from inturn.telemetry import measures

_STATUS_S: Final = 1.0
_log = logging.getLogger("inturn.worker")


class WorkFailed(InturnError):
    """A failure of the work in another process; its error is the text."""


class _Process(NamedTuple):
    process: Any
    pipe: Connection


class ProcessGroup:
    """Processes that run the same function.

    Args:
        run: a function of a module, called in each process with ``argument`` and an :class:`StatusPipe`.
        argument: value that can be pickled.
        number: the number of processes.
    """

    def __init__(self, run: Callable[[Any, "StatusPipe"], None], argument: Any, number: int) -> None:
        self._run, self._argument, self._number = run, argument, number
        self._context = multiprocessing.get_context("spawn")
        self._processes: dict[int, _Process] = {}
        self._statuses: dict[int, dict[str, Any]] = {}
        self._ended_sums: dict[str, Any] = {}  # the sums of the last statuses of killed processes
        self._measured: list[dict[str, Any]] = []  # by them, summed
        self._stopping = threading.Event()
        self._lock = threading.Lock()  # a process is started, or a stop is sent

    def run(self) -> None:
        """Run until stopped, until all processes have ended, or until one fails.

        Raises:
            WorkFailed: if one failed; the others are stopped in order.
        """
        failure = ""
        for index in range(self._number):
            self._start(index)
        while self._processes:
            places = {child.pipe: index for index, child in self._processes.items()}
            for pipe in wait(list(places), timeout=limits.WORKER_LOOK_S):
                failed = self._receive_status(places[pipe])  # type: ignore[index]
                failure = failure or failed
            if failure:
                self.stop_soon()
        if failure:
            raise WorkFailed(failure)

    def stop_soon(self) -> None:
        """Ask each process, once, to stop in order; not by a signal, which would kill a process that has just begun."""
        with self._lock:
            if not self._stopping.is_set():
                self._stopping.set()
                for child in self._processes.values():
                    with suppress(OSError):  # it has ended
                        child.pipe.send("stop")

    def status(self) -> dict[str, Any]:
        """Return whether all processes are ready, and the sums of their workers' counts, as JSON values."""
        statuses = dict(self._statuses)
        ready = [bool(status.get("ready")) for status in statuses.values()]
        sums = _summed(self._ended_sums, *statuses.values())
        return {"ready": sum(ready) == self._number, "processes": sum(ready), **sums}

    def measured(self) -> list[dict[str, Any]]:
        """Return the sums of the measurements of the workers of all processes, including ended ones."""
        alive = [measure for status in [*self._statuses.values()] for measure in status.get("measures", ())]
        return measures.summed([*self._measured, *alive])

    def _start(self, index: int) -> None:
        with self._lock:
            if self._stopping.is_set():
                return
            ours, theirs = self._context.Pipe()
            process = self._context.Process(target=_begin, args=(self._run, self._argument, theirs))
            process.start()
            theirs.close()
            self._processes[index] = _Process(process, ours)

    def _receive_status(self, index: int) -> str:
        """Receive a status of a process; return why it failed, empty if it did not."""
        try:
            status = self._processes[index].pipe.recv()
        except (EOFError, OSError):  # it has ended
            return self._ended(index)
        self._statuses[index] = status
        return str(status.get("failed", ""))

    def _ended(self, index: int) -> str:
        with self._lock:
            child = self._processes.pop(index)
        child.process.join()
        child.pipe.close()
        status = self._statuses.setdefault(index, {})
        status["ready"] = False
        code = child.process.exitcode
        if code and code > 0:
            return f"a worker process ended with exit code {code}"
        if code == 0 and (self._stopping.is_set() or status.get("is_done")):
            return ""
        how = f"was killed by signal {-code}" if code else "ended without being stopped"
        _log.warning("a worker process %s; it is started again", how)
        last = self._statuses.pop(index)
        self._ended_sums = _summed(self._ended_sums, last)
        self._measured = measures.summed([*self._measured, *measures.with_zero_gauges(last.get("measures", ()))])
        if not self._stopping.wait(limits.WORKER_RESTART_S):
            self._start(index)
        return ""


def _summed(*statuses: dict[str, Any]) -> dict[str, Any]:
    """Return the sums of the counts in several statuses, for each worker by its names."""
    sums: dict[tuple[str, ...], dict[str, Any]] = {}
    for worker in (worker for status in statuses for worker in status.get("workers", ())):
        names = tuple(value for value in worker.values() if isinstance(value, str))
        into = sums.setdefault(names, {})
        for name, value in worker.items():
            into[name] = into.get(name, 0) + value if isinstance(value, int) else value
    return {"workers": list(sums.values())}


class StatusPipe:
    """A process's connection to its parent."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()

    def watch(self, status: Callable[[], dict[str, Any]], stop: Callable[[], None]) -> None:
        """Report the status every second, and call ``stop`` when the parent requests it or has ended; in threads."""

        def report() -> None:
            while self.send(status()):
                time.sleep(_STATUS_S)

        def listen() -> None:
            with suppress(EOFError, OSError):
                self._pipe.recv()
            stop()

        for target in (report, listen):
            threading.Thread(target=target, daemon=True).start()

    def send(self, status: dict[str, Any]) -> bool:
        """Report a status; return False if the parent has ended."""
        with self._lock:
            try:
                self._pipe.send(status)
            except OSError:
                return False
        return True


def _begin(run: Callable[[Any, StatusPipe], None], argument: Any, pipe: Connection) -> None:
    uplink = StatusPipe(pipe)
    try:
        run(argument, uplink)
    except InturnError as error:
        uplink.send({"ready": False, "failed": f"{type(error).__name__}: {error}"})
        raise SystemExit(1) from None
