"""``inturn demo``: real flights in a queue, Spark killed in the middle, and two engines with equal results."""

import json as json_text
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console

from inturn.core import limits
from inturn.core.errors import InturnError, SetupError
from inturn.core.pipeline.journal import Counts
from inturn.demo import console, crash, delivery, engines, flights, naive, page
from inturn.demo import result as results
from inturn.demo.brokers import DemoBroker
from inturn.demo.event_log import build_event_log
from inturn.demo.pipeline import aircraft
from inturn.demo.producer import Post
from inturn.demo.result import DISTINCT, NAIVE, PROCESS, SPARK, DemoResult, Intake, Kill
from inturn.ingest import Ingest
from inturn.queue import Peeked, Queue
from inturn.results.inspection import DatabaseInspector
from inturn.worker import Worker

if TYPE_CHECKING:
    import datetime as dt

    from pyspark.sql import SparkSession

    Part = Callable[[str], AbstractContextManager[None]]

NEEDED = (flights.PACKAGE, "jinja2", "pyarrow", "pyspark")
MARK = ".inturn-demo"  # marks a folder as the demo's own
PRODUCERS, DATABASE, QUEUE, LOG = "producers", "flights.db", "flights", "processes.log"
STORE, CHECKPOINT, PICTURE, PAGE = "store", "checkpoint", "demo.svg", "demo.html"
_COLUMNS = (*flights.FlightEvent.__struct_fields__, "offset")
_PIPELINE = "inturn.demo.pipeline:aircraft"
_POLL_S = 0.05  # between two checks of the ingest's progress
START_S = 1  # delay until the processes send, so that all of them have started
LOG_READER = "kept"  # a reader that never advances, so that all messages can be read afterwards
CREATED_FILES = (PRODUCERS, DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", LOG, STORE, CHECKPOINT, PICTURE, PAGE)


def main(
    out: Path = Path("demo"),
    *,
    json: bool = False,
    broker: DemoBroker | None = None,
    spark: "SparkSession | None" = None,
) -> DemoResult:
    """Run the demo and show its result.

    Args:
        out: folder to write to; files of an earlier demo there are replaced.
        json: write one JSON document to standard output instead of the tables.
        broker: the broker through which the flights arrive; None: the airlines send directly to the queue.
        spark: session in which the stream continues after the kill, which stays open; without it one is started, and
            stopped at the end.

    Returns:
        The result of the demo; ``good`` is True if everything is right.

    Raises:
        SetupError: if Spark, Java, the data or a library is missing, or the folder has files that no demo created.
        InturnError: if a process of the demo did not end as expected.
    """
    progress = Console(stderr=True)
    seconds: dict[str, float] = {}

    @contextmanager
    def part(name: str) -> Iterator[None]:
        began = time.perf_counter()
        with progress.status(f"{name} …"):
            yield
        seconds[name] = round(time.perf_counter() - began, 1)
        progress.print(f"[green]✓[/] {name} [dim]{seconds[name]:.1f} s[/]", highlight=False, soft_wrap=True)

    check()
    if broker is not None:
        with part(f"Finding {broker.name}, installed or from Maven"):
            broker.check()
    prepare(out)
    result = play(out, part, broker, spark)
    with part("Drawing the picture"):
        picture = page.draw_result(result)
        (out / PICTURE).write_text(picture, encoding="utf-8")
        text = page.render(result, picture, [*hints(out, result.contradicted), console_command(out)])
        (out / PAGE).write_text(text, encoding="utf-8")
    files = {name: str(out / path) for name, path in (("picture", PICTURE), ("page", PAGE), ("store", STORE))}
    files["queue"] = _source(out)
    if json:
        document = result.as_json() | files | {"seconds": seconds, "console": console_command(out)}
        sys.stdout.write(json_text.dumps(document, ensure_ascii=False, indent=2) + "\n")
    else:
        console.show(Console(), result, files, hints(out, result.contradicted), console_command(out))
    return result


def check() -> None:
    """Check for all packages that the demo needs, so that none is found missing late.

    Raises:
        SetupError: if a package is not installed.
    """
    for name in NEEDED:
        if find_spec(name) is None:
            raise SetupError(f"the demo needs {name}; install it with: pip install 'inturn[demo]'")


def prepare(out: Path) -> None:
    """Prepare the folder: delete the files of an earlier demo, and refuse other files.

    Raises:
        SetupError: if the folder contains a file with a name that the demo uses, and no demo created the folder.
    """
    old_files = [path for name in CREATED_FILES if (path := out / name).exists()]
    if old_files and not (out / MARK).exists():
        raise SetupError(f"{old_files[0]} exists and was not created by the demo; set another folder with --out")
    for path in old_files:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    (out / PRODUCERS).mkdir(parents=True)
    (out / MARK).write_text("inturn demo created the files in this folder, and deletes them when it runs again\n")


def play(out: Path, part: "Part", broker: DemoBroker | None = None, spark: "SparkSession | None" = None) -> DemoResult:
    """Send, order with two engines, kill Spark in the middle, run the naive pipelines, and compare with the truth.

    Args:
        out: the folder, prepared.
        part: a context manager that is entered with the name of each part of the work.
        broker: see :func:`main`.
        spark: see :func:`main`.
    """
    import inturn.spark
    from inturn.spark.tables.manifest import SparkStore

    with part("Reading the flights, and preparing the messages of each airline"):
        legs = flights.read_legs()
        sent = delivery.deliver(flights.events(legs), flights.strays(legs))
        truth = flights.truth(legs)
        for airline, posts in sent.producers.items():
            delivery.write(posts, _file(out, airline))
    with ExitStack() as stack:
        db = stack.enter_context(inturn.open(out / DATABASE))
        route = _Route(_source(out), None)
        if broker is not None:
            with part(f"Starting {broker.name}"):
                route = _route_through(stack, broker, db.queue(QUEUE))
        happened = _run_engines(out, db.queue(QUEUE), sent.producers, route, part, stack, spark)
        with part("Reading the results of both engines"):
            log = _log(db.queue(QUEUE))
            manifests = [*SparkStore(out / STORE).manifests_after(0)]
            steps = [Counts(**manifest.counts) for manifest in manifests]
            session, killed = happened.session, crash.KILLED_STEP
            before = inturn.spark.read(session, out / STORE, "states", step=killed - 1)
            kill = Kill(killed, steps[killed - 1].received, before.where("status = 'waiting'").count())
            on_spark = engines.spark_result(session, out / STORE, results.total(steps))
            in_process = engines.worker_result(DatabaseInspector(db, aircraft.name), happened.landed)
        with part("Computing last write wins, with and without copies"):
            all_answers = _naive(session, out) | {SPARK: on_spark.answers(), PROCESS: in_process.answers()}
    sent_at: dict[str, list[dt.datetime]] = {name: [] for name in sent.producers}
    for message in log:
        sent_at[message.attributes.get("airline") or message.body["airline"]].append(message.sent_at)
    events = [msgspec.convert(message.body, flights.FlightEvent) for message in log if message.group]
    wrong = [tail for tail, true in truth.items() if any(naive.faults(true, all_answers[NAIVE].get(tail)))]
    sample = results.choose_sample(events, wrong or list(truth))
    return DemoResult(
        messages=sum(map(len, sent.producers.values())),
        aircraft=len(truth),
        producers={name: len(times) for name, times in sent_at.items()},
        late=sent.late,
        twice=sent.twice,
        contradicted=sent.contradicted,
        kill=kill,
        steps=steps,
        process=in_process.counts,
        differences=engines.differences(on_spark, in_process),
        outputs=len(on_spark.outputs),
        landings=sum(true.legs for true in truth.values()),
        wrong={name: naive.compare(truth, answers) for name, answers in all_answers.items()},
        course=build_event_log(
            happened.began,
            sent_at,
            happened.landed_at,
            [(manifest.committed, manifest.seconds) for manifest in manifests],
            happened.killed,
        ),
        sample=sample,
        examples=results.choose_examples(truth, all_answers, [sample.tail, sent.contradicted]),
        misspelt=sent.misspelt,
        stopped={SPARK: on_spark.stopped, PROCESS: in_process.stopped},
        intake=happened.intake,
    )


@dataclass
class _Route:
    """The way from the producers to the queue: their target, and the ingest if the target is a broker."""

    target: str
    ingest: Ingest | None
    broker: str = ""

    def end(self, messages: int) -> Intake | None:
        """Wait until all messages are in the queue or rejected."""
        if self.ingest is None:
            return None
        until = time.monotonic() + crash.LIMIT_S
        while (counts := self.ingest.counts).received + counts.rejected < messages:
            if time.monotonic() > until:
                raise InturnError(
                    f"of {messages} messages only {counts} arrived through {self.broker}; {self.ingest.problem}"
                )
            time.sleep(_POLL_S)
        return Intake(self.broker, counts.received, counts.rejected)


def _route_through(stack: ExitStack, broker: DemoBroker, queue: Queue) -> _Route:
    """Start a broker, and ingest from it into the queue until the end."""
    target = stack.enter_context(broker.target())
    ingest = Ingest(broker.source(target), queue, broker.mapping, name=QUEUE)
    return _Route(target, stack.enter_context(ingest), broker.name)


@dataclass
class _RunOutcome:
    """The outcome of a run besides its files.

    Attributes:
        landed: outputs that the worker delivered, by effect id.
        landed_at: time of each delivery.
        intake: the way through a broker, if there is one.
    """

    session: "SparkSession"
    began: float
    killed: float
    landed: dict[str, Any]
    landed_at: list[float]
    intake: Intake | None


def _run_engines(
    out: Path,
    queue: Queue,
    posts: Mapping[str, Sequence[Post]],
    route: _Route,
    part: "Part",
    stack: ExitStack,
    spark: "SparkSession | None",
) -> _RunOutcome:
    """Run producers, Spark and worker at the same time, and kill Spark in the middle."""
    landed: dict[str, Any] = {}
    landed_at: list[float] = []

    def deliver(output: Any, effect_id: str) -> None:
        landed[effect_id] = output
        landed_at.append(time.time())

    # A run this short ends before Java's optimising compiler pays off.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
    places = (_source(out), out / STORE, out / CHECKPOINT)
    for reader in (LOG_READER, aircraft.name):  # messages that these have not read are kept from now on
        queue.reader(reader).commit(0)
    with Worker(aircraft, queue, deliver=deliver) as worker, crash.Processes(out / LOG) as processes:
        with part(
            f"{len(posts)} processes send; Spark and a worker process; "
            f"Spark is killed (kill -9) in step {crash.KILLED_STEP}, before its commit"
        ):
            began = time.time() + START_S
            streaming = processes.stream(*places)
            senders = [processes.producer(route.target, _file(out, name), began) for name in posts]
            processes.wait_for_end(streaming, -signal.SIGKILL)
            killed = time.time()
        with part("Spark is started again, and continues until all messages are processed"):
            session = spark or _own_session(stack)
            query = crash.continue_stream(session, *places)
            try:
                for sender in senders:
                    processes.wait_for_end(sender)
                intake = route.end(sum(map(len, posts.values())))
                query = crash.drain_stream(query, lambda: crash.continue_stream(session, *places))
            finally:
                query.stop()
            worker.drain(crash.LIMIT_S)
    return _RunOutcome(session, began, killed, landed, landed_at, intake)


def _naive(session: "SparkSession", out: Path) -> dict[str, dict[str, naive.NaiveAnswer]]:
    """Return the answers of the naive pipelines, by Spark over the log of the same queue."""
    from inturn.spark.source.messages import queue_messages

    messages = queue_messages(session, aircraft, _source(out)).select(*_COLUMNS)
    return {
        NAIVE: naive.answers(naive.last_write_wins(messages)),
        DISTINCT: naive.answers(naive.last_write_wins(naive.without_copies(messages))),
    }


def _own_session(stack: ExitStack) -> "SparkSession":
    from inturn.spark.local.session import local_session

    session = local_session("inturn demo")
    stack.callback(session.stop)
    return session


def _log(queue: Queue) -> list[Peeked]:
    """Return all messages in the order of the queue."""
    log: list[Peeked] = []
    while more := queue.reader(LOG_READER).read(limits.READ_MESSAGES, after=log[-1].sequence_number if log else 0):
        log += more
    return log


def _source(out: Path) -> str:
    return f"{out / DATABASE}#{QUEUE}"


def _file(out: Path, airline: str) -> Path:
    return out / PRODUCERS / f"{airline}.jsonl"


def console_command(out: Path) -> str:
    """Return the command that opens the console on the demo's stores, where one aircraft is parked."""
    stores = f"{shlex.quote(str(out / DATABASE))} {shlex.quote(str(out / STORE))}"
    return f"inturn console {stores} --pipeline {_PIPELINE} --take"


def hints(out: Path, tail: str) -> list[str]:
    """Return commands to try next: one aircraft in both stores, and all messages again as one batch."""
    store, source = shlex.quote(str(out / STORE)), shlex.quote(_source(out))
    return [
        f"inturn explain {store} {tail}",
        f"inturn explain {shlex.quote(f'{out / DATABASE}#{aircraft.name}')} {tail}",
        f"inturn run {_PIPELINE} --from {source} --store out/",
    ]
