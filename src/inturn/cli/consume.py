"""``inturn consume``: a handler with side effects over a durable queue, until it is stopped."""

from contextlib import ExitStack
from dataclasses import asdict
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inturn.cli.metrics import metrics_page
from inturn.cli.options import AsDocument
from inturn.cli.places import make_absent, opened, split
from inturn.cli.texts import line, say, say_json
from inturn.core import limits
from inturn.core.address import shown
from inturn.core.errors import InputError
from inturn.core.pipeline.order import Retry
from inturn.core.rate import Rate
from inturn.core.words import counted
from inturn.definitions import load_function
from inturn.telemetry import measures

if TYPE_CHECKING:
    from inturn.consumer import Consumer
    from inturn.core.queue.messages import Depth


def consume(
    handler: Annotated[str, typer.Argument(help="Where the handler is: app.py:handle or package.module:name.")],
    queue: Annotated[str, typer.Option(help="Where its messages are: DATABASE#QUEUE.")],
    concurrency: Annotated[int, typer.Option(help="Messages handled at once.")] = limits.WORKER_CONCURRENCY,
    retries: Annotated[int, typer.Option(help="Further attempts after a failure.")] = 5,
    backoff: Annotated[str, typer.Option(help="The longest pause before the first; it doubles.")] = "1 second",
    dead_letter: Annotated[
        bool, typer.Option("--dead-letter", help="Move a failing message to the dead-letter queue; default: park.")
    ] = False,
    rate_limit: Annotated[str | None, typer.Option(help="Messages begun in a time, at most: 10/second.")] = None,
    group_rate_limit: Annotated[str | None, typer.Option(help="The same for each group.")] = None,
    burst: Annotated[int, typer.Option(help="Messages of --rate-limit that may begin at once.")] = 1,
    grace_s: Annotated[float, typer.Option(help="How long a stop waits for handlers.")] = limits.WORKER_GRACE_S,
    health: Annotated[str | None, typer.Option(help="Answer /health, /ready and /metrics at HOST:PORT.")] = None,
    until_empty: Annotated[bool, typer.Option("--until-empty", help="End once nothing is left to handle.")] = False,
    as_json: AsDocument = False,
) -> None:
    """Call a handler with each message of a queue until SIGTERM or Ctrl-C, which finish running handlers."""
    from inturn.consumer import Consumer
    from inturn.worker.health import HealthEndpoint
    from inturn.worker.signals import stopped_by

    path, name = split(queue)
    function = load_function(handler, {})
    make_absent(path, [name])
    stopped = Event()
    with ExitStack() as stack:
        db = stack.enter_context(opened(path))
        consumer = Consumer(
            db.queue(name, create=False),
            function,
            concurrency=concurrency,
            retry=Retry(retries, backoff),
            then="dead-letter" if dead_letter else "park",
            rate_limit=_rate("--rate-limit", rate_limit, burst),
            group_rate_limit=_rate("--group-rate-limit", group_rate_limit),
            grace_s=grace_s,
        )
        if health is not None:
            stack.enter_context(HealthEndpoint(health, lambda: _status(consumer), metrics_page([db], measures.workers)))

        def stop() -> None:
            stopped.set()
            consumer.stop_soon()

        with stopped_by(stop):
            consumer.run(until_empty=until_empty)
        depth = db.queue(name, create=False).depth()
    counts = asdict(consumer.counts)
    if as_json:
        say_json(counts)
    else:
        told = ", ".join(f"{count} {what.replace('_', '-')}" for what, count in counts.items())
        say(f"{line(handler)} over {line(name)}: {told}")
    if until_empty and not stopped.is_set() and (left := _left(shown(queue), depth)):
        say(left, err=True)
        raise typer.Exit(1)


def _left(at: str, depth: "Depth") -> str:
    """Return what was left in a queue for a person, and the commands about it; empty: nothing."""
    parts = []
    if depth.parked and depth.messages > depth.deferred:  # a parked group may have no messages
        parts.append(
            f"{counted(depth.parked, 'parked group')} ('inturn queue show {at}' says why, "
            f"'inturn queue resume {at} --all' lets all go on)"
        )
    if depth.deferred:
        parts.append(
            f"{counted(depth.deferred, 'deferred message')} ('inturn peek {at}' shows messages, "
            "Queue.fetch receives a deferred one)"
        )
    return f"{at} is not empty, and what is left waits for a person: {', and '.join(parts)}." if parts else ""


def _rate(option: str, text: str | None, burst: int = 1) -> Rate | None:
    """Return the rate of an option, such as ``10/second`` or ``100/5 minutes``."""
    if text is None:
        return None
    times, _, per = text.partition("/")
    if not times.strip().isdecimal() or not per:
        raise InputError(f"{option} is {text!r}; write 10/second or 100/5 minutes")
    per = per.strip()
    return Rate(int(times), per if per[:1].isdecimal() else f"1 {per}", burst=burst)


def _status(consumer: "Consumer") -> dict[str, Any]:
    return {"ready": consumer.is_taking, **asdict(consumer.counts)}
