"""``inturn work``: pipelines over durable queues, in one or several processes, until they are stopped."""

import signal
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from inturn.cli.deliveries import AnyDelivery, DeliveryTable
from inturn.cli.errors import needed
from inturn.cli.metrics import metrics_page
from inturn.cli.places import make_absent, opened, parts, split
from inturn.cli.texts import line, say, say_json
from inturn.core import limits
from inturn.core.address import shown
from inturn.core.errors import InputError
from inturn.definitions import load, load_deliver
from inturn.telemetry import measures
from inturn.telemetry.logs import LEVELS, configure
from inturn.toml_file import read_toml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import ModuleType

    from inturn.database import Database
    from inturn.queue import Queue
    from inturn.worker import To
    from inturn.worker.processes import Uplink
    from inturn.worker.service import Service

_COUNTED = ("received", "released", "applied", "duplicate", "stale", "held", "rejected")
_ALWAYS_TOLD = frozenset(("received", "applied", "duplicate", "rejected"))


class WorkedPipeline(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A ``[[pipelines]]`` of a configuration.

    Attributes:
        pipeline: ``ledger.py:ledger`` or ``package.module:name``.
        queue: ``shop.db#payments`` or ``postgresql://…#payments``.
        deliver: the function that delivers outputs, or an ``inturn.To``, named as the pipeline is; or a queue of the
            same database, ``#credits``; or a table of :mod:`inturn.cli.deliveries`; None: outputs stay in the database.
        concurrency: the number of groups processed at once, in each process.
    """

    pipeline: str
    queue: str
    deliver: str | AnyDelivery | None = None
    concurrency: int = limits.WORKER_CONCURRENCY


class WorkConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A configuration of ``inturn work``, one TOML file.

    Attributes:
        pipelines: what to work on.
        processes: the number of processes; each works on all pipelines.
        grace_s: how long a stop waits for running handlers, in seconds.
        health: the address of ``/health``, ``/ready`` and ``/metrics``; None: none.
        log_level: the least level of the log, on standard error.
        log_json: whether the log has lines of JSON.
        telemetry: whether OpenTelemetry is set up, by the variables ``OTEL_…``.
    """

    pipelines: tuple[WorkedPipeline, ...] = ()
    processes: int = 1
    grace_s: float = limits.WORKER_GRACE_S
    health: str | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_json: bool = False
    telemetry: bool = False


def work(
    pipeline: Annotated[
        str | None, typer.Argument(help="Where the pipeline is: ledger.py:ledger or package.module:name.")
    ] = None,
    queue: Annotated[str | None, typer.Option(help="Where its messages are: DATABASE#QUEUE.")] = None,
    deliver: Annotated[
        str | None, typer.Option(help="What takes outputs: a function, app.py:post, or a queue beside, #credits.")
    ] = None,
    concurrency: Annotated[int | None, typer.Option(help="Groups processed at once; default: 8.")] = None,
    processes: Annotated[int | None, typer.Option(help="Processes, for handlers that compute; default: 1.")] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file with several pipelines.")] = None,
    grace_s: Annotated[float | None, typer.Option(help="How long a stop waits for handlers; default: 30.")] = None,
    health: Annotated[str | None, typer.Option(help="Answer /health, /ready and /metrics at HOST:PORT.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error; default: info.")] = None,
    log_json: Annotated[bool, typer.Option("--log-json", help="Log lines of JSON.")] = False,
    telemetry: Annotated[bool, typer.Option("--telemetry", help="Trace with OpenTelemetry, set up by OTEL_….")] = False,
    until_empty: Annotated[bool, typer.Option("--until-empty", help="End once all queues are empty.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as one JSON document.")] = False,
) -> None:
    """Run pipelines over durable queues until SIGTERM or Ctrl-C, which finish running handlers."""
    chosen = read(config) if config is not None else WorkConfig()
    if log_level not in (None, *LEVELS):
        raise InputError(f"--log-level is {log_level!r}; it is one of {', '.join(LEVELS)}")
    given = {"processes": processes, "grace_s": grace_s, "health": health, "log_level": log_level}
    given |= {"log_json": log_json or None, "telemetry": telemetry or None}
    chosen = msgspec.structs.replace(chosen, **{name: value for name, value in given.items() if value is not None})
    if pipeline is not None:
        if queue is None:
            raise InputError(f"say where the messages of {pipeline} are: --queue DATABASE#QUEUE")
        groups = limits.WORKER_CONCURRENCY if concurrency is None else concurrency
        one = WorkedPipeline(pipeline, queue, deliver, groups)
        chosen = msgspec.structs.replace(chosen, pipelines=(*chosen.pipelines, one))
    elif any(each is not None for each in (queue, deliver, concurrency)):
        raise InputError("--queue, --deliver and --concurrency belong to a pipeline; name it first")
    if not 1 <= chosen.processes <= limits.WORKER_PROCESSES:
        raise InputError(f"processes is {chosen.processes}; it is a number from 1 to {limits.WORKER_PROCESSES}")
    found = _run(chosen, until_empty=until_empty)
    if as_json:
        say_json(found["workers"])
        return
    for each in found["workers"]:
        counts = [f"{each[name]} {name}" for name in _COUNTED if each[name] or name in _ALWAYS_TOLD]
        say(f"{line(each['pipeline'])} over {line(each['queue'])}: {', '.join(counts)}")


def read(path: Path) -> WorkConfig:
    """Read a configuration; relative files in it are resolved against its folder.

    Raises:
        InputError: if the file cannot be read, is not TOML, or has an unknown name or a wrong value.
    """
    config = read_toml(path, WorkConfig)

    def beside(where: str | None, mark: str) -> str | None:
        place, sign, name = (where or "").rpartition(mark)
        is_file = place.endswith(".py") or (mark == "#" and "://" not in place)
        return f"{path.parent / place}{sign}{name}" if place and sign and is_file else where

    return msgspec.structs.replace(
        config,
        pipelines=tuple(
            msgspec.structs.replace(
                each,
                pipeline=beside(each.pipeline, ":"),
                deliver=each.deliver.beside(path.parent)
                if isinstance(each.deliver, DeliveryTable)
                else beside(each.deliver, "#" if _names_queue(each.deliver) else ":"),
                queue=beside(each.queue, "#"),
            )
            for each in config.pipelines
        ),
    )


def _run(config: WorkConfig, *, until_empty: bool) -> dict[str, Any]:
    """Work in this process or in several, and return the last status."""
    from inturn.worker.health import HealthEndpoint
    from inturn.worker.signals import stopped_by

    configure(config.log_level, json_lines=config.log_json)
    with ExitStack() as stack:
        service: Any
        run: Callable[[], None]
        workers = measures.workers
        if config.processes == 1:
            service = stack.enter_context(_service(config))
            run = partial(service.run, until_empty=until_empty)
        else:
            from inturn.worker.processes import ProcessGroup

            with _service(config):  # what is wrong with it is told here, once, before any process starts
                pass
            service = ProcessGroup(_one_of_several, (msgspec.json.encode(config), until_empty), config.processes)
            run, workers = service.run, service.measured
        databases = stack.enter_context(_shown_databases(config))
        if config.health is not None:
            stack.enter_context(HealthEndpoint(config.health, service.status, metrics_page(databases, workers)))
        if config.telemetry:
            stack.enter_context(_instrumented(databases))
        with stopped_by(service.stop_soon):
            run()
        return service.status()  # type: ignore[no-any-return]


@contextmanager
def _shown_databases(config: WorkConfig) -> "Iterator[list[Database]]":
    """Open the databases once more, if metrics are asked for: to read their figures holds up no worker."""
    with ExitStack() as stack:
        paths = dict.fromkeys(split(each.queue)[0] for each in config.pipelines)
        wanted = paths if config.health is not None or config.telemetry else ()
        yield [stack.enter_context(opened(path)) for path in wanted]


def _instrumented(databases: "Sequence[Database]") -> AbstractContextManager[None]:
    with needed("--telemetry needs", "telemetry"):
        from inturn.telemetry.sdk import instrumented
    return instrumented(databases)


@contextmanager
def _service(config: WorkConfig) -> "Iterator[Service]":
    """Open the databases, each once, and load the pipelines."""
    from inturn.worker.service import Job, Service

    with ExitStack() as stack:
        databases: dict[str, Database] = {}
        modules: dict[str, ModuleType] = {}

        def queue_of(path: str, name: str) -> "Queue":
            if path not in databases:
                databases[path] = stack.enter_context(opened(path))
            return databases[path].queue(name, create=False)

        pipelines = [load(each.pipeline, modules) for each in config.pipelines]
        functions = [_function(each.deliver, modules) for each in config.pipelines]
        for path, queues in _queues(config):
            make_absent(path, queues, is_quiet=config.log_json)
        jobs = []
        for each, pipeline, function in zip(config.pipelines, pipelines, functions, strict=True):
            path, name = split(each.queue)
            deliver: Callable[..., Any] | Queue | To | None = function
            if isinstance(each.deliver, str) and function is None:
                to_path, to = parts(each.deliver)
                deliver = queue_of(*split(f"{to_path or path}#{to}"))
            jobs.append(Job(pipeline, queue_of(path, name), deliver, each.concurrency, shown(path)))
        yield Service(jobs, grace_s=config.grace_s)


def _function(
    deliver: "str | DeliveryTable | None", modules: "dict[str, ModuleType]"
) -> "Callable[..., Any] | To | None":
    """Return the function that takes outputs; None: there is none, or a queue takes them."""
    if isinstance(deliver, DeliveryTable):
        return deliver.function()
    return None if deliver is None or _names_queue(deliver) else load_deliver(deliver, modules)


def _queues(config: WorkConfig) -> "Iterable[tuple[str, list[str]]]":
    """Return databases with the queues from which pipelines receive, and those beside them to which they deliver."""
    found: dict[str, tuple[str, list[str]]] = {}
    for each in config.pipelines:
        path, name = split(each.queue)
        one = path if "://" in path else str(Path(path).resolve())  # however it is spelt
        _, names = found.setdefault(one, (path, []))
        names.append(name)
        if isinstance(each.deliver, str) and each.deliver.startswith("#"):
            names.append(each.deliver[1:])
    return found.values()


def _names_queue(deliver: str | None) -> bool:
    """Return whether this names a queue, ``#credits`` or ``shop.db#credits``, rather than a function."""
    return deliver is not None and "#" in deliver and not deliver.rpartition(":")[0].endswith(".py")


def _one_of_several(argument: tuple[bytes, bool], uplink: "Uplink") -> None:
    """Work in a process of several; the parent hears Ctrl-C, passes a stop on, and shows the databases' figures."""
    from inturn.worker.service import told
    from inturn.worker.signals import stopped_by

    encoded, until_empty = argument
    config = msgspec.json.decode(encoded, type=WorkConfig)
    configure(config.log_level, json_lines=config.log_json)
    if config.health is not None:
        measures.begin()
    with ExitStack() as stack:
        if config.telemetry:
            stack.enter_context(_instrumented(()))
        service = stack.enter_context(_service(config))
        stack.enter_context(stopped_by(service.stop_soon, signal.SIGTERM))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        uplink.watch(partial(told, service), service.stop_soon)
        try:
            service.run(until_empty=until_empty)
        finally:
            uplink.tell(told(service))
