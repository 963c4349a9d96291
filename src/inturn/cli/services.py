"""Settings, options, processes, health and logs of commands that run until they are stopped."""

import signal
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias, TypeVar

import msgspec
import typer

from inturn.cli.errors import needed
from inturn.cli.option_groups import given_options
from inturn.cli.targets import create_missing_database, opened_database, split_queue_target
from inturn.core import limits
from inturn.core.address import shown
from inturn.core.errors import InputError, StoreUnavailable
from inturn.serving.logs import configure
from inturn.serving.metrics_page import metrics_page
from inturn.serving.settings import LEVELS, TelemetrySettings
from inturn.telemetry import measures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from inturn.database import Database
    from inturn.queue import Queue
    from inturn.telemetry.figures import Figures, HasFigures
    from inturn.worker.processes import StatusPipe
    from inturn.worker.service import LoopService

Concurrency: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=limits.RECEIVE_MESSAGES)]
CountsAsJson = Annotated[bool, typer.Option("--json", help="Print the counts as one JSON document.")]


@dataclass(frozen=True, kw_only=True)
class ProcessOptions:
    """Processes and stop of a command that handles messages; None selects the value of its configuration."""

    processes: Annotated[int | None, "Number of processes; use several for CPU-bound handlers (default: 1)."] = None
    grace_s: Annotated[float | None, "Seconds for which a stop waits for running handlers (default: 30)."] = None


@dataclass(frozen=True, kw_only=True)
class TelemetryOptions:
    """Health, logs and telemetry of a command until its end; None selects the value of its configuration."""

    health: Annotated[str | None, "Serve /health, /ready and /metrics at HOST:PORT."] = None
    log_level: Annotated[str | None, f"Log level: {', '.join(LEVELS)} (default: info)."] = None
    log_json: Annotated[bool, "Write log lines as JSON."] = False
    telemetry: Annotated[
        bool, "Export traces and metrics with OpenTelemetry, configured by OTEL_… environment variables."
    ] = False


@dataclass(frozen=True, kw_only=True)
class ServiceOptions(TelemetryOptions, ProcessOptions):
    """The options of a command that handles messages until it is stopped."""


class ServiceConfig(TelemetrySettings, frozen=True, kw_only=True):
    """The settings of a command that handles messages, as in its TOML file.

    Attributes:
        processes: the number of processes; each works on all queues.
        grace_s: maximum time for which a stop waits for running handlers, in seconds.
    """

    processes: int = 1
    grace_s: Annotated[float, msgspec.Meta(ge=0)] = limits.WORKER_GRACE_S

    def check(self) -> None:
        """Check the number of processes."""
        if not 1 <= self.processes <= limits.WORKER_PROCESSES:
            raise InputError(f"processes is {self.processes}; expected a number from 1 to {limits.WORKER_PROCESSES}")

    def queues(self) -> list[str]:
        """Return the queues from which messages are received, as DATABASE#QUEUE."""
        raise NotImplementedError

    def service(self) -> "AbstractContextManager[LoopService]":
        """Load the handlers or pipelines, open the databases, and return the service to run."""
        raise NotImplementedError


Config = TypeVar("Config", bound=TelemetrySettings)


class ServiceResult(NamedTuple):
    """The end of a command: the counts of each worker, and whether it was stopped."""

    workers: list[dict[str, Any]]
    is_stopped: bool


def with_telemetry_options(config: Config, options: TelemetryOptions) -> Config:
    """Return the settings, overridden by the given options.

    Raises:
        InputError: if a value is invalid.
    """
    if options.log_level not in (None, *LEVELS):
        raise InputError(f"--log-level is {options.log_level!r}; expected one of {', '.join(LEVELS)}")
    return msgspec.structs.replace(config, **given_options(options))


def run(config: ServiceConfig, *, until_empty: bool) -> ServiceResult:
    """Work in this process or in several, until stopped or until all queues are empty."""
    from inturn.serving.signals import end_process, stop_on_signals

    configure(config.log_level, json_lines=config.log_json)
    with ExitStack() as stack:
        service: Any
        go: Callable[[], None]
        workers = measures.workers
        if config.processes == 1:
            service = stack.enter_context(config.service())
            go = partial(service.run, until_empty=until_empty)
        else:
            from inturn.worker.processes import ProcessGroup

            with config.service():  # reports errors in it once, before any process starts
                pass
            service = ProcessGroup(_run_worker_process, (config, until_empty), config.processes)
            go, workers = service.run, service.measured
        paths = [split_queue_target(queue)[0] for queue in config.queues()]
        stack.enter_context(monitored(config, paths, service.status, workers))
        stopped = Event()

        def stop() -> None:
            stopped.set()
            service.stop_soon()

        with stop_on_signals(stop, force=end_process):
            go()
        return ServiceResult(service.status()["workers"], stopped.is_set())


class OpenDatabases:
    """The databases of a service, each opened once.

    Args:
        stack: closes them.
    """

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._databases: dict[str, Database] = {}

    def queue(self, path: str, name: str) -> "Queue":
        """Return an existing queue."""
        if path not in self._databases:
            self._databases[path] = self._stack.enter_context(opened_database(path))
        return self._databases[path].queue(name, create=False)


def create_missing_queues(queues: "Sequence[tuple[str, str]]", *, is_quiet: bool) -> None:
    """Create missing databases, each with all of its queues in one transaction, however its path is written.

    Args:
        queues: databases and queues.
        is_quiet: whether to print nothing.
    """
    databases: dict[str, tuple[str, list[str]]] = {}
    for path, name in queues:
        key = path if "://" in path else str(Path(path).resolve())
        databases.setdefault(key, (path, []))[1].append(name)
    for path, names in databases.values():
        create_missing_database(path, names, is_quiet=is_quiet)


@contextmanager
def monitored(
    config: TelemetrySettings,
    paths: "Iterable[str]",
    status: "Callable[[], dict[str, Any]]",
    workers: "Callable[[], Sequence[Mapping[str, Any]]]" = measures.workers,
) -> "Iterator[None]":
    """Serve health and metrics, and export telemetry, according to the settings.

    Args:
        config: the settings.
        paths: the databases. They are opened a second time, so that reading figures never delays a worker. The
            figures of an unavailable database are missing until it is available.
        status: returns the document of ``/health`` and ``/ready``.
        workers: returns the measurements of the workers, of this process or of several.
    """
    from inturn.serving.health import health_server

    with ExitStack() as stack:
        distinct_paths = dict.fromkeys(paths) if config.health is not None or config.telemetry else ()
        opening = stack.enter_context(ExitStack())
        databases = [_open_for_figures(opening, path) for path in distinct_paths]
        if config.health is not None:
            stack.enter_context(health_server(config.health, status, metrics_page(databases, workers)))
        if config.telemetry:
            stack.enter_context(_instrumented(databases))
        yield


class _UnavailableDatabase:
    """The figures of an unavailable database, which is opened when they are read.

    Args:
        stack: closes it.
        path: its address.
    """

    def __init__(self, stack: ExitStack, path: str) -> None:
        self.name = shown(path)
        self._stack, self._path = stack, path
        self._database: Database | None = None

    def figures(self) -> "Figures":
        """Return the figures.

        Raises:
            StoreUnavailable: if it is still unavailable.
        """
        if self._database is None:
            self._database = self._stack.enter_context(opened_database(self._path))
        return self._database.figures()


def _open_for_figures(stack: ExitStack, path: str) -> "HasFigures":
    """Open a database for its figures, now or, if it is unavailable, later."""
    try:
        return stack.enter_context(opened_database(path))
    except StoreUnavailable:
        return _UnavailableDatabase(stack, path)


def _instrumented(databases: "Sequence[HasFigures]") -> AbstractContextManager[None]:
    with needed("--telemetry needs", "telemetry"):
        from inturn.telemetry.sdk import instrumented
    return instrumented(databases)


def _run_worker_process(argument: tuple[ServiceConfig, bool], uplink: "StatusPipe") -> None:
    """Run one of several processes; the parent handles Ctrl-C, forwards stops, and reports the databases' figures."""
    from inturn.serving.signals import stop_on_signals
    from inturn.worker.service import status_of

    config, until_empty = argument
    configure(config.log_level, json_lines=config.log_json)
    if config.health is not None:
        measures.enable()
    with ExitStack() as stack:
        if config.telemetry:
            stack.enter_context(_instrumented(()))
        service = stack.enter_context(config.service())
        stack.enter_context(stop_on_signals(service.stop_soon, signal.SIGTERM))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        uplink.watch(partial(status_of, service), service.stop_soon)
        try:
            service.run(until_empty=until_empty)
        finally:
            uplink.send(status_of(service))
