"""``inturn work``: pipelines on durable queues, in one or several processes, until they are stopped."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from inturn.cli.deliveries import AnyDelivery, DeliveryTable
from inturn.cli.output import one_line, print_json, print_text
from inturn.cli.services import (
    Concurrency,
    CountsAsJson,
    OpenDatabases,
    ServiceConfig,
    ServiceOptions,
    create_missing_queues,
    run,
    with_telemetry_options,
)
from inturn.cli.targets import split_queue_target, split_target
from inturn.core import limits
from inturn.core.address import shown
from inturn.core.errors import InputError
from inturn.core.override import override
from inturn.definitions import load, load_deliver
from inturn.serving import config_file
from inturn.serving.config_file import ConfigTable, resolved

if TYPE_CHECKING:
    from types import ModuleType

    from inturn.queue import Queue
    from inturn.worker import ToQueue
    from inturn.worker.service import LoopService

_COUNTED = ("received", "released", "applied", "duplicate", "stale", "held", "rejected")
_ALWAYS_TOLD = frozenset(("received", "applied", "duplicate", "rejected"))


class WorkedPipeline(ConfigTable, frozen=True):
    """A ``[[pipelines]]`` of a configuration.

    Attributes:
        pipeline: ``ledger.py:ledger`` or ``package.module:name``.
        queue: ``shop.db#payments`` or ``postgresql://…#payments``.
        deliver: destination of outputs: the location of a function or an ``inturn.ToQueue``; a queue of this database,
            ``#credits``; or a table of :mod:`inturn.cli.deliveries`. None: outputs stay in the database.
        concurrency: the number of groups processed at once, in each process.
    """

    pipeline: str
    queue: str
    deliver: str | AnyDelivery | None = None
    concurrency: Concurrency = limits.WORKER_CONCURRENCY


class WorkConfig(ServiceConfig, frozen=True, kw_only=True):
    """A configuration of ``inturn work``, one TOML file.

    Attributes:
        pipelines: the pipelines and their queues.
        final: with ``--until-empty``: whether waiting messages are released once all queues are empty.
    """

    pipelines: tuple[WorkedPipeline, ...] = ()
    final: bool = False

    @override
    def queues(self) -> list[str]:
        """Return the queues from which pipelines receive."""
        return [pipeline.queue for pipeline in self.pipelines]

    @override
    def service(self) -> "AbstractContextManager[LoopService]":
        """Load the pipelines and open the databases."""
        return _service(self)


def work(
    pipeline: Annotated[
        str | None, typer.Argument(help="Location of the pipeline: ledger.py:ledger or package.module:name.")
    ] = None,
    *,
    queue: Annotated[str | None, "Queue to read: DATABASE#QUEUE."] = None,
    deliver: Annotated[
        str | None, "Destination of outputs: a function (app.py:post) or a queue of the same database (#credits)."
    ] = None,
    concurrency: Annotated[int | None, "Number of groups processed at once (default: 8)."] = None,
    config: Annotated[Path | None, "Configuration file (TOML) with several pipelines."] = None,
    service: ServiceOptions,
    until_empty: Annotated[bool, "End once all queues are empty and all outputs are delivered."] = False,
    final: Annotated[
        bool, "With --until-empty, Timestamp order: treat the input as complete, and release waiting messages."
    ] = False,
    as_json: CountsAsJson = False,
) -> None:
    """Run pipelines on queues until SIGTERM or Ctrl-C; running handlers finish first."""
    chosen = with_telemetry_options(WorkConfig() if config is None else read(config), service)
    if pipeline is not None:
        if queue is None:
            raise InputError(f"no queue for {pipeline}; pass --queue DATABASE#QUEUE")
        groups = limits.WORKER_CONCURRENCY if concurrency is None else concurrency
        worked = WorkedPipeline(pipeline, queue, deliver, groups)
        chosen = msgspec.structs.replace(chosen, pipelines=(*chosen.pipelines, worked))
    elif any(option is not None for option in (queue, deliver, concurrency)):
        raise InputError("--queue, --deliver and --concurrency need a pipeline; name the pipeline first")
    chosen = msgspec.structs.replace(chosen, final=final or chosen.final)
    if chosen.final and (not until_empty or chosen.processes > 1):
        place = f"with processes = {chosen.processes}" if until_empty else "without --until-empty"
        msg = f"--final {place} cannot detect the last message; expected --until-empty and one process"
        raise InputError(msg)
    workers = run(chosen, until_empty=until_empty).workers
    if as_json:
        print_json(workers)
        return
    for worker in workers:
        counts = [f"{worker[name]} {name}" for name in _COUNTED if worker[name] or name in _ALWAYS_TOLD]
        print_text(f"{one_line(worker['pipeline'])} over {one_line(worker['queue'])}: {', '.join(counts)}")


def read(path: Path) -> WorkConfig:
    """Read a configuration; relative files in it are resolved against its folder.

    Raises:
        InputError: if the file cannot be read, is not TOML, or has an unknown name or a wrong value.
    """
    config, folder = config_file.read(path, WorkConfig).value, path.parent

    def delivery(deliver: str | AnyDelivery | None) -> Any:
        if isinstance(deliver, DeliveryTable):
            return deliver.resolved(folder)
        return deliver and resolved(folder, deliver, "#" if _names_queue(deliver) else ":")

    return msgspec.structs.replace(
        config,
        pipelines=tuple(
            msgspec.structs.replace(
                entry,
                pipeline=resolved(folder, entry.pipeline, ":"),
                deliver=delivery(entry.deliver),
                queue=resolved(folder, entry.queue, "#"),
            )
            for entry in config.pipelines
        ),
    )


@contextmanager
def _service(config: WorkConfig) -> "Iterator[LoopService]":
    """Open the databases, each once, and load the pipelines."""
    from inturn.worker.service import Job, Service

    with ExitStack() as stack:
        databases = OpenDatabases(stack)
        modules: dict[str, ModuleType] = {}
        pipelines = [load(entry.pipeline, modules) for entry in config.pipelines]
        functions = [_function(entry.deliver, modules) for entry in config.pipelines]
        create_missing_queues([*_queues(config)], is_quiet=config.log_json)
        jobs = []
        for entry, pipeline, function in zip(config.pipelines, pipelines, functions, strict=True):
            path, name = split_queue_target(entry.queue)
            deliver: Callable[..., Any] | Queue | ToQueue | None = function
            if isinstance(entry.deliver, str) and function is None:
                to_path, to = split_target(entry.deliver)
                deliver = databases.queue(*split_queue_target(f"{to_path or path}#{to}"))
            jobs.append(Job(pipeline, databases.queue(path, name), deliver, entry.concurrency, shown(path)))
        yield Service(jobs, grace_s=config.grace_s, is_final=config.final)


def _function(
    deliver: "str | DeliveryTable | None", modules: "dict[str, ModuleType]"
) -> "Callable[..., Any] | ToQueue | None":
    """Return the function that delivers outputs; None if there is none, or a queue receives them."""
    if isinstance(deliver, DeliveryTable):
        return deliver.function()
    return None if deliver is None or _names_queue(deliver) else load_deliver(deliver, modules)


def _queues(config: WorkConfig) -> Iterator[tuple[str, str]]:
    """Yield the queues from which pipelines receive, and those of the same database to which they deliver."""
    for entry in config.pipelines:
        path, name = split_queue_target(entry.queue)
        yield path, name
        if isinstance(entry.deliver, str) and entry.deliver.startswith("#"):
            yield path, entry.deliver[1:]


def _names_queue(deliver: str | None) -> bool:
    """Return whether this names a queue, ``#credits`` or ``shop.db#credits``, rather than a function."""
    return deliver is not None and "#" in deliver and not deliver.rpartition(":")[0].endswith(".py")
