"""``inturn consume``: handlers with side effects on durable queues, in one or several processes, until stopped."""

from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from inturn.cli.option_groups import given_options, spelling
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
from inturn.cli.targets import opened_database, split_queue_target
from inturn.core import limits
from inturn.core.address import shown
from inturn.core.errors import InputError, PipelineError
from inturn.core.override import override
from inturn.core.pipeline.policies import Retry
from inturn.core.rate import Rate
from inturn.core.words import counted
from inturn.definitions import load_function
from inturn.serving import config_file
from inturn.serving.config_file import ConfigTable, resolved

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from inturn.core.queue.messages import Depth
    from inturn.worker.service import LoopService

_NAMES = ("handler", "database", "queue")


class ConsumedQueue(ConfigTable, frozen=True):
    """A ``[[consumers]]`` of a configuration; the arguments of :func:`inturn.consume`.

    Attributes:
        handler: ``app.py:handle`` or ``package.module:name``.
        queue: ``shop.db#payments`` or ``postgresql://…#payments``.
        transaction: location of the function that opens the user's own transaction for each message; None: none.
        concurrency: the number of messages handled at once, in each process.
        retries: the number of further attempts after a failure.
        backoff: the maximum pause before the first further attempt; it doubles with each one.
        dead_letter: whether a failing message is moved to the queue's dead-letter queue; otherwise its group is parked.
        rate_limit: the maximum rate of all messages, such as ``10/second``; None: none.
        group_rate_limit: the maximum rate of the messages of each group.
        burst: the number of messages of ``rate_limit`` that may begin at once.
    """

    handler: str
    queue: str
    transaction: str | None = None
    concurrency: Concurrency = limits.WORKER_CONCURRENCY
    retries: int = 5
    backoff: str = "1 second"
    dead_letter: bool = False
    rate_limit: str | None = None
    group_rate_limit: str | None = None
    burst: int = 1

    @override
    def check(self) -> None:
        """Check the retries and the rates."""
        self._rules()

    def options(self, modules: "dict[str, ModuleType]") -> dict[str, Any]:
        """Return the arguments of :class:`inturn.consumer.Consumer` that follow the queue.

        Raises:
            PipelineError: if a function does not exist.
        """
        return {
            "handler": load_function(self.handler, modules),
            "transaction": None if self.transaction is None else load_function(self.transaction, modules),
            "concurrency": self.concurrency,
            "then": "dead-letter" if self.dead_letter else "park",
            **self._rules(),
        }

    def _rules(self) -> dict[str, Any]:
        if self.burst != 1 and self.rate_limit is None:
            raise InputError(f"burst is {self.burst}, but no rate is set; pass rate_limit= too, or omit it")
        return {
            "retry": self._retry(),
            "rate_limit": _rate("rate_limit", self.rate_limit, self.burst),
            "group_rate_limit": _rate("group_rate_limit", self.group_rate_limit),
        }

    def _retry(self) -> Retry:
        if self.retries < 0:
            raise InputError(f"retries is {self.retries}; expected a whole number, 0 or more")
        try:
            return Retry(self.retries, self.backoff)
        except PipelineError as error:
            raise InputError(str(error).replace("Retry(backoff)", "backoff")) from error


class ConsumeConfig(ServiceConfig, frozen=True, kw_only=True):
    """A configuration of ``inturn consume``, one TOML file.

    Attributes:
        consumers: the queues and their handlers.
    """

    consumers: tuple[ConsumedQueue, ...] = ()

    @override
    def queues(self) -> list[str]:
        """Return the queues that are consumed."""
        return [consumer.queue for consumer in self.consumers]

    @override
    def service(self) -> "AbstractContextManager[LoopService]":
        """Load the handlers and open the databases."""
        return _service(self)


@dataclass(frozen=True, kw_only=True)
class ConsumerOptions:
    """The queue of a handler, and the arguments of :class:`ConsumedQueue`; None selects the default."""

    queue: Annotated[str | None, "Queue to read: DATABASE#QUEUE."] = None
    transaction: Annotated[str | None, "Function that opens your own transaction for each message: app.py:open_tx."] = (
        None
    )
    concurrency: Annotated[int | None, "Number of messages handled at once (default: 8)."] = None
    retries: Annotated[int | None, "Further attempts after a failure (default: 5)."] = None
    backoff: Annotated[
        str | None, "Maximum pause before the first further attempt; doubles each time (default: 1 second)."
    ] = None
    dead_letter: Annotated[bool, "Move a failing message to the dead-letter queue instead of parking its group."] = (
        False
    )
    rate_limit: Annotated[str | None, "Maximum rate of messages: 10/second."] = None
    group_rate_limit: Annotated[str | None, "Maximum rate of messages of each group: 10/second."] = None
    burst: Annotated[int | None, "With --rate-limit: number of messages that may start at once (default: 1)."] = None


def consume(
    handler: Annotated[
        str | None, typer.Argument(help="Location of the handler: app.py:handle or package.module:name.")
    ] = None,
    *,
    consumer: ConsumerOptions,
    config: Annotated[Path | None, "Configuration file (TOML) with several handlers."] = None,
    service: ServiceOptions,
    until_empty: Annotated[bool, "End once no message is left to handle."] = False,
    as_json: CountsAsJson = False,
) -> None:
    """Call handlers with the messages of queues until SIGTERM or Ctrl-C; running handlers finish first."""
    chosen = with_telemetry_options(ConsumeConfig() if config is None else read(config), service)
    chosen = _with_single_queue(chosen, handler, given_options(consumer))
    result = run(chosen, until_empty=until_empty)
    if as_json:
        print_json(result.workers)
    else:
        for worker in result.workers:
            counts = [f"{count} {name.replace('_', '-')}" for name, count in worker.items() if name not in _NAMES]
            print_text(f"{one_line(worker['handler'])} over {one_line(worker['queue'])}: {', '.join(counts)}")
    if until_empty and not result.is_stopped and (remaining := list(_remaining(chosen))):
        print_text("\n".join(remaining), err=True)
        raise typer.Exit(1)


def read(path: Path) -> ConsumeConfig:
    """Read a configuration; relative files in it are resolved against its folder.

    Raises:
        InputError: if the file cannot be read, is not TOML, or has an unknown name or a wrong value.
    """
    config, folder = config_file.read(path, ConsumeConfig).value, path.parent
    consumers = tuple(
        msgspec.structs.replace(
            consumer,
            handler=resolved(folder, consumer.handler, ":"),
            transaction=consumer.transaction and resolved(folder, consumer.transaction, ":"),
            queue=resolved(folder, consumer.queue, "#"),
        )
        for consumer in config.consumers
    )
    return msgspec.structs.replace(config, consumers=consumers)


def _with_single_queue(config: ConsumeConfig, handler: str | None, options: dict[str, Any]) -> ConsumeConfig:
    """Return the settings with the handler that the options describe, if any."""
    if handler is None:
        if options:
            names = ", ".join(map(spelling, options))
            raise InputError(f"{names} without a handler; name the handler first, or set the values in the file")
        return config
    if "queue" not in options:
        raise InputError(f"no queue for {handler}; pass --queue DATABASE#QUEUE")
    return msgspec.structs.replace(config, consumers=(*config.consumers, ConsumedQueue(handler, **options)))


@contextmanager
def _service(config: ConsumeConfig) -> "Iterator[LoopService]":
    """Load the handlers and open the databases, each once."""
    from inturn.consumer import Consumer
    from inturn.consumer.service import ConsumerJob, ConsumerService

    with ExitStack() as stack:
        databases = OpenDatabases(stack)
        modules: dict[str, ModuleType] = {}
        options = [consumer.options(modules) for consumer in config.consumers]
        places = [split_queue_target(consumer.queue) for consumer in config.consumers]
        create_missing_queues(places, is_quiet=config.log_json)
        yield ConsumerService(
            [
                ConsumerJob(
                    Consumer(databases.queue(path, name), **chosen, grace_s=config.grace_s),
                    consumer.handler,
                    shown(path),
                    name,
                )
                for consumer, chosen, (path, name) in zip(config.consumers, options, places, strict=True)
            ]
        )


def _remaining(config: ConsumeConfig) -> "Iterator[str]":
    """Yield for each queue the parked and deferred messages that are left, with the commands for them."""
    for consumer in config.consumers:
        path, name = split_queue_target(consumer.queue)
        with opened_database(path) as db:
            depth = db.queue(name, create=False).depth()
        if remaining := _remaining_in(shown(consumer.queue), depth):
            yield remaining


def _remaining_in(target: str, depth: "Depth") -> str:
    """Return a text about the parked and deferred messages in a queue; empty if there are none."""
    parts = []
    if depth.parked and depth.messages > depth.deferred:  # a parked group may have no messages
        parts.append(
            f"{counted(depth.parked, 'parked group')} (reasons: 'inturn queue show {target}'; "
            f"resume: 'inturn queue resume {target} --all')"
        )
    if depth.deferred:
        parts.append(
            f"{counted(depth.deferred, 'deferred message')} (show: 'inturn peek {target}'; receive: Queue.fetch)"
        )
    return f"{target} is not empty; an operator has to decide about {' and '.join(parts)}." if parts else ""


def _rate(name: str, text: str | None, burst: int = 1) -> Rate | None:
    """Return the rate of a setting, such as ``10/second`` or ``100/5 minutes``."""
    if text is None:
        return None
    if burst < 1:
        raise InputError(f"burst is {burst}; expected a whole number, 1 or more")
    times, _, per = text.partition("/")
    per = per.strip()
    with suppress(InputError):
        if times.strip().isdecimal() and per:
            return Rate(int(times), per if per[:1].isdecimal() else f"1 {per}", burst=burst)
    raise InputError(f"{name} is {text!r}; expected a rate such as 10/second or 100/5 minutes")
