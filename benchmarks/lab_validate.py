"""The lab's models beside the real engines: the same messages through both, and how far apart they are.

Constants come from probes (one consumer, no failures) or are fitted on the four rows that say so; every other row is
held out and reported, misses too. ``python benchmarks/lab.py --validate`` runs it and prints the table; with ``--keep``
it writes what the lab's pages show.
"""

import datetime as dt
import platform
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from os import cpu_count
from pathlib import Path
from statistics import mean, median
from typing import Any, Final

import msgspec
from lab_engines import Engine, Kafka, Rabbit, Recorder, Sqs, Worker
from rich.console import Console
from rich.table import Table

import inturn
from inturn.demo.kafka_server import CACHE, KafkaServer, fetch
from inturn.demo.kafka_server import VERSION as KAFKA_VERSION
from inturn.demo.rabbitmq_server import missing, rabbitmq
from inturn.lab import Design, Knobs, LabMessage, UniformTime
from inturn.lab.design import SimulationLog
from inturn.lab.designs import CompetingConsumers, Inturn, KafkaBlocking, QuorumConsumers, SqsFifo
from inturn.lab.designs.exclusive import TaskTimes
from inturn.lab.designs.kafka import PollTimes
from inturn.lab.designs.pull import KeyParallel
from inturn.lab.designs.push import PushTimes
from inturn.lab.designs.rabbitmq import ConsistentHash, QuorumSingleActiveConsumer, SingleActiveConsumer
from inturn.lab.designs.sqs import ReceiveTimes
from inturn.lab.draws import Draws
from inturn.lab.measure import RunFigures, latency_figures
from inturn.lab.workload import Workload

MESSAGES, GROUPS = 3_000, 20
PROBE: Final = 600
PACED_GAP_US, PACED = 4_000, 1_000
"""Between two arrivals of the paced rows, and how many there are."""
RESULT: Final = Path(__file__).parents[1] / "src" / "inturn" / "lab" / "validation.json"
PUBLISHED_S: Final = {1: 26.7, 2: 13.6, 5: 5.9, 10: 3.3, 20: 2.2, 100: 2.2, 1_000: 2.1, 10_000: 2.1}
"""Seconds by the number of keys, from the README of Confluent's Parallel Consumer."""
PUBLISHED_SETTLE_US, PUBLISHED_START_S = 170, 0.44
QUORUM: Final = {"x-queue-type": "quorum"}
SINGLE: Final = {"x-single-active-consumer": True}
Figures = dict[str, float]


@dataclass(frozen=True)
class Row:
    """A set-up that an engine and its model run.

    Attributes:
        engine: the engine.
        make: makes the model from its constants.
        knobs: the set-up.
        setup: the set-up in words.
        measures: the figures that are compared.
        is_fitted: whether constants are fitted on it.
        is_paced: whether messages arrive one by one; otherwise all wait at the begin.
    """

    engine: Engine
    make: Callable[[], Design]
    knobs: Knobs
    setup: str
    measures: tuple[str, ...]
    is_fitted: bool = False
    is_paced: bool = False


def messages(seed: int, *, count: int = MESSAGES, gap_us: int = 0, groups: int = GROUPS) -> Workload:
    """Return numbered messages of random groups."""
    chance, revisions, drafts = random.Random(seed), [0] * groups, []  # noqa: S311 - repeatable
    for number in range(count):
        group = chance.randrange(groups)
        revisions[group] += 1
        drafts.append(LabMessage(at_us=number * gap_us, group=f"g{group}", revision=revisions[group]))
    return Workload(drafts)


def figures_of(load: Workload, log: SimulationLog) -> Figures:
    """Return the figures of a log, of an engine or a model; a message is done when its handling has ended."""
    log.done_us.clear()
    figures = RunFigures(load, log)
    waits = [
        max(0, done - arrived) for done, arrived in zip(figures.done_us, load.arrival_us, strict=True) if done >= 0
    ]
    latency = latency_figures(waits)
    return {
        "out_of_turn_share": sum(figures.out_of_turn) / len(load),
        "overlaps": figures.overlaps,
        "redeliveries": figures.redeliveries,
        "throughput_per_s": len(waits) / max(figures.done_us) * 1e6,
        "p50_us": latency.p50_us,
        "p95_us": latency.p95_us,
        "p99_us": latency.p99_us,
    }


@dataclass(frozen=True)
class Run:
    """One run of an engine: the messages as they really arrived, the knobs, and the figures."""

    load: Workload
    knobs: Knobs
    figures: Figures


def of_engine(row: Row, runs: int) -> list[Run]:
    """Run the engine with as many seeds."""
    measured = []
    for seed in range(runs):
        load = messages(seed, count=PACED, gap_us=PACED_GAP_US) if row.is_paced else messages(seed)
        knobs = msgspec.structs.replace(row.knobs, seed=seed)
        recorder = row.engine.run(load, Draws(load, knobs), knobs)
        load.arrival_us[:] = recorder.arrived_us
        measured.append(Run(load, knobs, figures_of(load, recorder.finished())))
    return measured


def of_model(row: Row, runs: list[Run]) -> list[Figures]:
    """Run the model with the same messages, handler times and failures."""
    design = row.make()
    logs = [
        (one_run.load, design.simulate(one_run.load, Draws(one_run.load, one_run.knobs), one_run.knobs))
        for one_run in runs
    ]
    return [figures_of(load, log) for load, log in logs]


# --- the constants ---


class Constants:
    """The constants of the models on this machine, and where each is from."""

    def __init__(self) -> None:
        self.push, self.receive, self.poll, self.task = PushTimes(), ReceiveTimes(), PollTimes(), TaskTimes()
        self.told: dict[str, dict[str, Any]] = {}

    def note(self, name: str, value: float, how: str) -> None:
        self.told[name] = {"value": round(value), "how": how}


def probed(engine: Engine, *, prefetch: int = 10, gap_us: int = 0, count: int = PROBE) -> Recorder:
    """Run one consumer without failures, and return what was recorded."""
    load, knobs = messages(99, count=count, gap_us=gap_us), Knobs(consumers=1, prefetch=prefetch, seed=99)
    recorder = engine.run(load, Draws(load, knobs), knobs)
    recorder.finished()
    return recorder


def probe_rabbit(constants: Constants, rabbit: Engine) -> None:
    """Measure the overhead of a message (prefetch 10), and the way to the server and back (prefetch 1)."""
    sent_ahead, one_by_one = probed(rabbit).gap_us(), probed(rabbit, prefetch=1).gap_us()
    way_us = max(0.0, one_by_one - sent_ahead) / 2
    # A sleep takes longer than it says; what the handler really took is part of the overhead.
    overhead_us = sent_ahead + oversleep_us()
    constants.push = PushTimes(
        delivery_us=round(way_us), ack_us=round(way_us), overhead_us=round(overhead_us), jitter_us=0
    )
    constants.note(
        "rabbitmq.delivery_us and ack_us", way_us, "probe: half of what prefetch 1 adds between two handlings"
    )
    constants.note(
        "rabbitmq.overhead_us", overhead_us, "probe: between two handlings with prefetch 10, and the oversleep"
    )


def oversleep_us() -> float:
    """Return how much longer a sleep of a millisecond takes on this machine."""
    import time

    samples = []
    for _ in range(200):
        begun = time.perf_counter()
        time.sleep(0.001)
        samples.append((time.perf_counter() - begun) * 1e6 - 1000)
    return mean(samples)


def idle_us(recorder: Recorder) -> float:
    """Return the median time from a message's arrival until its handling begins."""
    begins = {message: begin_us for begin_us, _, _, message, _ in recorder.log.attempts}
    return max(0.0, median(begins[message] - arrived for message, arrived in enumerate(recorder.arrived_us)))


def probe_sqs(constants: Constants, sqs: Engine) -> None:
    recorder = probed(sqs)
    receive_us, delete_us = (median(recorder.spent_us[name]) for name in ("receive", "delete"))
    constants.receive = ReceiveTimes(
        receive_us=round(receive_us), message_us=round(oversleep_us()), delete_us=round(delete_us), calls_per_s=None
    )
    constants.note("sqs.receive_us", receive_us, "probe: one client's median receive")
    constants.note("sqs.delete_us", delete_us, "probe: one client's median delete of a batch")


def probe_kafka(constants: Constants, kafka: Engine) -> None:
    recorder = probed(kafka, gap_us=10 * PACED_GAP_US, count=150)
    poll_us = idle_us(recorder)
    commit_us = median(recorder.spent_us["commit"])
    constants.poll = PollTimes(poll_us=round(poll_us), record_us=round(oversleep_us()), commit_us=round(commit_us))
    constants.note("kafka.poll_us", poll_us, "probe: from the send to the begin, one consumer that is idle")
    constants.note("kafka.commit_us", commit_us, "probe: one consumer's median commit")


def probe_worker(constants: Constants, worker: Engine) -> None:
    receive_us = idle_us(probed(worker, gap_us=10 * PACED_GAP_US, count=150))
    busy = probed(worker)
    settle_us = busy.gap_us(same_group=True) + oversleep_us()
    constants.task = TaskTimes(receive_us=round(receive_us), settle_us=round(settle_us), commit_us=500)
    constants.note("inturn.receive_us", receive_us, "probe: from the send to the begin, a worker that is idle")
    constants.note("inturn.settle_us", settle_us, "probe: between two handlings of one group, and the oversleep")


def fit_jitter(constants: Constants, rows: Sequence[tuple[Row, list[Run]]]) -> None:
    """Choose the jitter with which the fitted rows are nearest."""
    base = constants.push
    best: tuple[float, PushTimes] | None = None
    for jitter_us in range(0, 601, 50):
        constants.push = msgspec.structs.replace(
            base, jitter_us=jitter_us, overhead_us=max(0, base.overhead_us - jitter_us // 2)
        )
        miss = 0.0
        for row, measured in rows:
            real = median(one_run.figures["out_of_turn_share"] for one_run in measured)
            model = median(figures["out_of_turn_share"] for figures in of_model(row, measured))
            miss += ((model - real) / max(real, 0.01)) ** 2
        if best is None or miss < best[0]:
            best = miss, constants.push
    assert best is not None
    constants.push = best[1]
    constants.note("rabbitmq.jitter_us", constants.push.jitter_us, "fitted on the share out of turn of the fitted rows")


# --- the rows ---


def rabbit_rows(constants: Constants, url: str, name: str) -> Iterator[Row]:
    """Yield the set-ups on RabbitMQ."""
    classic, quorum = Rabbit(url, name), Rabbit(url, name, QUORUM)
    alone, quorum_alone = Rabbit(url, name, SINGLE), Rabbit(url, name, QUORUM | SINGLE)
    hashed = Rabbit(url, name, is_hashed=True)
    share = ("out_of_turn_share", "throughput_per_s")
    latency = ("out_of_turn_share", "p50_us", "p95_us", "p99_us")

    def row(engine: Rabbit, design: Any, consumers: int, prefetch: int, failures: float, **more: Any) -> Row:
        words = f"{consumers} consumer{'s' if consumers > 1 else ''}, prefetch {prefetch}, {failures:.0%} requeued"
        knobs = Knobs(consumers=consumers, prefetch=prefetch, failure_rate=failures, handler=UniformTime())
        measures = latency if more.get("is_paced") else share
        words += ", paced" if more.get("is_paced") else ""
        return Row(engine, lambda: design(constants.push), knobs, words, measures, **more)

    yield row(classic, CompetingConsumers, 1, 1, 0.02)
    yield row(classic, CompetingConsumers, 1, 10, 0.02, is_fitted=True)
    yield row(classic, CompetingConsumers, 4, 1, 0.0, is_fitted=True)
    yield row(classic, CompetingConsumers, 4, 1, 0.02)
    yield row(classic, CompetingConsumers, 4, 10, 0.02, is_fitted=True)
    yield row(quorum, QuorumConsumers, 4, 10, 0.02)
    yield row(alone, SingleActiveConsumer, 4, 10, 0.02)
    yield row(quorum_alone, QuorumSingleActiveConsumer, 4, 1, 0.02)
    yield row(hashed, ConsistentHash, 8, 1, 0.02)
    yield row(hashed, ConsistentHash, 8, 10, 0.02, is_fitted=True)
    yield row(classic, CompetingConsumers, 4, 10, 0.02, is_paced=True)


def other_rows(engine: Engine, design: Any, times: Callable[[], Any]) -> Iterator[Row]:
    """Yield the set-ups of an engine that keeps the order: all waiting, and arriving one by one."""
    knobs = Knobs(consumers=4, failure_rate=0.02, handler=UniformTime(), backoff_s=0.01)
    order = ("out_of_turn_share", "overlaps")
    yield Row(engine, lambda: design(times()), knobs, "4 consumers, 2% failures", (*order, "throughput_per_s"))
    latency = (*order, "p50_us", "p95_us", "p99_us")
    yield Row(engine, lambda: design(times()), knobs, "4 consumers, 2% failures, paced", latency, is_paced=True)


# --- the report ---


def compared(row: Row, runs: list[Run]) -> Iterator[dict[str, Any]]:
    """Yield each figure of the engine beside that of the model."""
    model = of_model(row, runs)
    for measure in row.measures:
        seen = [one_run.figures[measure] for one_run in runs]
        middle, modelled = median(seen), median(figures[measure] for figures in model)
        is_share = measure in {"out_of_turn_share", "overlaps"}
        allowed = max(0.25 * middle, 0.01 if measure == "out_of_turn_share" else 0) if is_share else 0.2 * middle
        yield {
            "design": row.make().name,
            "engine": row.engine.name,
            "setup": row.setup,
            "measure": measure,
            "unit": {"out_of_turn_share": "share", "overlaps": "count", "throughput_per_s": "per_s"}.get(measure, "us"),
            "engine_median": round(middle, 4),
            "engine_low": round(min(seen), 4),
            "engine_high": round(max(seen), 4),
            "model_median": round(modelled, 4),
            "role": "fitted" if row.is_fitted and measure == "out_of_turn_share" else "held out",
            "holds": abs(modelled - middle) <= allowed,
        }


def published_rows(constants: Constants) -> Iterator[dict[str, Any]]:
    """Yield the rows of Confluent's Parallel Consumer, whose seconds are its README's and not measured here.

    10,000 messages, a handler of 0 to 5 ms, 16 threads. A constant for each message is fitted on the row of one key,
    and the time of the start on that of 10,000 keys.
    """
    constants.note("key-parallel.settle_us", PUBLISHED_SETTLE_US, "fitted on the published row of one key")
    constants.note("key-parallel.start_us", PUBLISHED_START_S * 1e6, "fitted on the published row of 10,000 keys")
    knobs = Knobs(consumers=16, handler=UniformTime(low_ms=0, high_ms=5))
    design = KeyParallel(TaskTimes(receive_us=0, settle_us=PUBLISHED_SETTLE_US))
    for keys, seconds in PUBLISHED_S.items():
        load = messages(1, count=10_000, groups=keys)
        log = design.simulate(load, Draws(load, knobs), knobs)
        rate = 10_000 / (max(end_us for _, end_us, *_ in log.attempts) / 1e6 + PUBLISHED_START_S)
        real = 10_000 / seconds
        yield {
            "design": design.name,
            "engine": "Confluent Parallel Consumer, as published",
            "setup": f"16 threads, {keys:,} key{'s' if keys > 1 else ''}",
            "measure": "throughput_per_s",
            "unit": "per_s",
            "engine_median": round(real, 1),
            "engine_low": round(real, 1),
            "engine_high": round(real, 1),
            "model_median": round(rate, 1),
            "role": "fitted" if keys in {1, 10_000} else "held out",
            "holds": abs(rate - real) <= 0.2 * real,
        }


def validate(runs: int) -> dict[str, Any]:
    """Run all engines and models, and return the document that the lab's pages read."""
    constants, measured = Constants(), list[tuple[Row, list[Run]]]()
    console = Console(stderr=True)

    def take(rows: Iterator[Row]) -> list[tuple[Row, list[Run]]]:
        results = []
        for row in rows:
            results.append((row, of_engine(row, runs)))
            console.print(f"{row.engine.name}: {row.setup}")
        measured.extend(results)
        return results

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        worker, sqs = Worker(folder), Sqs(folder)
        probe_worker(constants, worker)
        take(other_rows(worker, Inturn, lambda: constants.task))
        probe_sqs(constants, sqs)
        take(other_rows(sqs, SqsFifo, lambda: constants.receive))
        if reason := missing():
            console.print(f"not validated: {reason}")
        else:
            (folder / "rabbitmq").mkdir()
            url, name = stack.enter_context(rabbitmq(folder / "rabbitmq")), "RabbitMQ 3.10.8"
            probe_rabbit(constants, Rabbit(url, name))
            measured_rows = take(rabbit_rows(constants, url, name))
            fit_jitter(constants, [row for row in measured_rows if row[0].is_fitted])
        jars = CACHE / f"kafka-{KAFKA_VERSION}"
        if reason := fetch(jars):
            console.print(f"not validated: {reason}")
        else:
            (folder / "kafka").mkdir()
            broker = KafkaServer(folder / "kafka", jars / "jars")
            stack.callback(broker.kill)
            kafka = Kafka(broker.servers, f"Kafka {KAFKA_VERSION}")
            probe_kafka(constants, kafka)
            take(other_rows(kafka, KafkaBlocking, lambda: constants.poll))
    rows = [compared_row for row, real in measured for compared_row in compared(row, real)]
    rows += published_rows(constants)
    return {
        "checked_on": dt.datetime.now(dt.UTC).date().isoformat(),
        "inturn": inturn.__version__,
        "machine": f"{cpu_count()} cores, {platform.system()} {platform.machine()}",
        "runs": runs,
        "rows": rows,
        "constants": constants.told,
    }


def show(document: dict[str, Any]) -> None:
    """Print the rows."""
    table = Table(
        "design",
        "set-up",
        "figure",
        "engine",
        "model",
        "",
        title=f"The lab beside real engines, {document['runs']} runs",
    )
    for row in document["rows"]:
        low, high = row["engine_low"], row["engine_high"]
        mark = ("holds" if row["holds"] else "[red]misses[/red]") + (" (fitted)" if row["role"] == "fitted" else "")
        engine = f"{row['engine_median']:,.4g} ({low:,.4g} to {high:,.4g})"
        table.add_row(row["design"], row["setup"], row["measure"], engine, f"{row['model_median']:,.4g}", mark)
    Console(width=160).print(table)


def run(runs: int, *, keep: bool) -> bool:
    """Validate, print, and write the document where the pages read it; return whether every row holds."""
    document = validate(runs)
    show(document)
    if keep:
        RESULT.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")
    return all(row["holds"] for row in document["rows"])
