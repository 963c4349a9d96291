"""The same work in several processes, since handlers that compute share one interpreter.

The parent starts the processes, passes a stop on, starts a killed one again, and ends all when one fails. A process
whose parent is gone stops by itself: the pipe between them is closed then.
"""

import multiprocessing
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any, Final, NamedTuple

from inturn.core import limits
from inturn.core.errors import InturnError

_STATUS_S: Final = 1.0


class WorkFailed(InturnError):
    """The work of another process failed; its error is the text."""


class _Process(NamedTuple):
    process: Any
    pipe: Connection


class ProcessGroup:
    """Processes that run the same function.

    Args:
        run: a function of a module, called in each process with ``argument`` and an :class:`Uplink`.
        argument: what can be pickled.
        number: the number of processes.
    """

    def __init__(self, run: Callable[[Any, "Uplink"], None], argument: Any, number: int) -> None:
        self._run, self._argument = run, argument
        self._context = multiprocessing.get_context("spawn")
        self._processes: list[_Process | None] = [None] * number
        self._told: list[dict[str, Any]] = [{} for _ in range(number)]
        self._before: list[dict[str, Any]] = []  # the last words of processes that were killed
        self._stopping = threading.Event()

    def run(self) -> None:
        """Run until stopped, until all processes have ended, or until one fails.

        Raises:
            WorkFailed: if one failed; the others are stopped in order.
        """
        failure = ""
        for at in range(len(self._processes)):
            self._start(at)
        try:
            while not failure and (open_now := {each.pipe: at for at, each in self._open()}):
                for pipe in wait(list(open_now), timeout=limits.WORKER_LOOK_S):
                    failure = failure or self._hear(open_now[pipe], pipe)  # type: ignore[index, arg-type]
        finally:
            self.stop_soon()
            for each in self._processes:
                if each is not None:
                    each.process.join()
        if failure:
            raise WorkFailed(failure)

    def stop_soon(self) -> None:
        """Ask every process to stop in order. Safe in a signal handler."""
        self._stopping.set()
        for each in self._processes:
            if each is not None and each.process.is_alive():
                each.process.terminate()

    def status(self) -> dict[str, Any]:
        """Return whether all processes are ready, and the sums of their workers' counts, as JSON values."""
        sums: dict[tuple[str, str], dict[str, Any]] = {}
        for told in (*self._before, *self._told):
            for worker in told.get("workers", ()):
                into = sums.setdefault((worker["pipeline"], worker["queue"]), {})
                for name, value in worker.items():
                    into[name] = into.get(name, 0) + value if isinstance(value, int) else value
        ready = [bool(told.get("ready")) for told in self._told]
        return {"ready": all(ready), "processes": sum(ready), "workers": list(sums.values())}

    def _open(self) -> list[tuple[int, _Process]]:
        return [(at, each) for at, each in enumerate(self._processes) if each is not None]

    def _start(self, at: int) -> None:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=_begin, args=(self._run, self._argument, theirs), name=f"inturn-work-{at}"
        )
        process.start()
        theirs.close()
        self._processes[at] = _Process(process, ours)

    def _hear(self, at: int, pipe: Connection) -> str:
        """Take what a process says; return why it failed, empty if it did not."""
        try:
            told = pipe.recv()
        except (EOFError, OSError):  # it has ended
            return self._ended(at)
        self._told[at] = told
        return str(told.get("failed", ""))

    def _ended(self, at: int) -> str:
        one = self._processes[at]
        if one is None:
            return ""
        one.process.join()
        one.pipe.close()
        self._processes[at] = None
        self._told[at]["ready"] = False
        code = one.process.exitcode
        if code == 0 or self._stopping.is_set():
            return ""
        if code > 0:
            return f"a process of the work ended with exit code {code}"
        self._before.append(self._told[at])  # killed, as by the kernel for its memory: the work goes on
        self._told[at] = {}
        if not self._stopping.wait(limits.WORKER_RESTART_S):
            self._start(at)
        return ""


class Uplink:
    """A process's connection to its parent."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()

    def watch(self, status: Callable[[], dict[str, Any]], stop: Callable[[], None]) -> None:
        """Report the status every second, and call ``stop`` when the parent is gone; both in threads."""

        def report() -> None:
            while self.tell(status()):
                time.sleep(_STATUS_S)

        def listen() -> None:
            try:
                self._pipe.recv()
            except (EOFError, OSError):
                stop()

        for target in (report, listen):
            threading.Thread(target=target, daemon=True).start()

    def tell(self, status: dict[str, Any]) -> bool:
        """Report a status; return False if the parent is gone."""
        with self._lock:
            try:
                self._pipe.send(status)
            except OSError:
                return False
        return True


def _begin(run: Callable[[Any, Uplink], None], argument: Any, pipe: Connection) -> None:
    uplink = Uplink(pipe)
    try:
        run(argument, uplink)
    except InturnError as error:
        uplink.tell({"ready": False, "failed": f"{type(error).__name__}: {error}"})
        raise SystemExit(1) from None
