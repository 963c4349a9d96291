"""The cost of logs, metrics and traces: CPU time of a message from its send to the delivery of its output.

    python benchmarks/telemetry.py [--messages 500] [--rounds 20] [--baseline PATH/TO/OTHER/CHECKOUT] [--json]

Messages of 100 groups are sent one by one to an SQLite file without fsync, which would hide the cost, then worked off
by a trivial handler with one output each, which is delivered. A round is one run of each variant in turn, in one
process, each over a queue of its own. The table shows medians of the ratios within a round, so that a busy machine is
unkind to all, and the least CPU time.

- off: as installed. With `--baseline` it is run in processes of its own, in turns with the code of another checkout.
- prometheus: workers are measured, and a page is made after each run.
- traces 1 %, 10 %: OpenTelemetry's SDK, `sample=0.01` and `0.1`, spans exported in batches to nowhere.
- SDK's 1 %: the same, sampled by the SDK's `ParentBasedTraceIdRatio`.
- OTel metrics: OpenTelemetry's metrics alone, with a reader in memory.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

GOALS = {"off": 1.0, "prometheus": 1.03, "traces 1 %": 1.05}
HERE = Path(__file__).resolve().parents[1]
Costs = dict[str, float]


def count(state: dict[str, int], message: dict[str, Any]) -> tuple[dict[str, int], list[Any]]:
    amount = state.get("amount", 0) + message["amount"]
    return {"amount": amount}, [{"amount": amount}]


def variants(db: Any) -> dict[str, Any]:
    """The observer of each variant; the first two have none."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
    from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
    from opentelemetry.trace import NoOpTracerProvider

    from inturn import telemetry
    from inturn.telemetry import observer

    class Nowhere(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    def traced(sdk: float, sample: float) -> Any:
        provider = TracerProvider(sampler=ParentBasedTraceIdRatio(sdk))
        provider.add_span_processor(BatchSpanProcessor(Nowhere()))
        telemetry.instrument(tracer_provider=provider, sample=sample)
        return observer.active

    observers = {
        "off": None,
        "prometheus": None,
        "traces 1 %": traced(1, 0.01),
        "traces 10 %": traced(1, 0.1),
        "SDK's 1 %": traced(0.01, 1),
    }
    telemetry.instrument(
        db, tracer_provider=NoOpTracerProvider(), meter_provider=MeterProvider([InMemoryMetricReader()])
    )
    observers["OTel metrics"] = observer.active
    telemetry.uninstrument()
    return observers


def run(db: Any, name: str, messages: int) -> Costs:
    """One run; CPU microseconds of a message."""
    import inturn

    pipeline = inturn.Pipeline(name="ledger", group="account", order=inturn.Gapless("revision"), handler=count)
    queue = db.queue(name)
    began = time.process_time()
    for n in range(messages):
        queue.send({"amount": 1}, group=f"{name} {n % 100}", revision=n // 100 + 1)
    sent = time.process_time()
    counts = inturn.work(pipeline, queue, until="empty", deliver=lambda _output, _effect_id: None)
    worked = time.process_time()
    assert counts.applied == messages
    parts = {"send": sent - began, "work": worked - sent, "both": worked - began}
    return {part: cpu_s / messages * 1e6 for part, cpu_s in parts.items()}


def side_by_side(messages: int, rounds: int) -> list[dict[str, Costs]]:
    """Rounds of all variants in this process."""
    from prometheus_client import CollectorRegistry

    import inturn
    from inturn import telemetry
    from inturn.telemetry import measures, observer
    from inturn.telemetry.collector import page

    results = []
    with tempfile.TemporaryDirectory() as folder, inturn.open(Path(folder) / "shop.db", durable=False) as db:
        items = list(variants(db).items())
        collector = telemetry.prometheus(db, registry=CollectorRegistry())
        for number in range(rounds):
            costs = {}
            for name, by in items[number % len(items) :] + items[: number % len(items)]:
                observer.active, measures.is_on = by, name == "prometheus"
                costs[name] = run(db, f"{name} {number}", messages)
                observer.active = None
                if name == "prometheus":
                    page(collector)
            results.append(costs)
    return results


def alone(messages: int) -> Costs:
    """The least of several runs with nothing switched on, in this process."""
    import inturn

    with tempfile.TemporaryDirectory() as folder, inturn.open(Path(folder) / "shop.db", durable=False) as db:
        runs = [run(db, f"off {number}", messages) for number in range(6)]
    return {part: min(costs[part] for costs in runs) for part in runs[0]}


def elsewhere(checkout: Path, messages: int) -> Costs:
    """The same in a process of its own, with the code of a checkout."""
    command = [sys.executable, __file__, "--alone", "--messages", str(messages)]
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    costs: Costs = json.loads(done.stdout)
    return costs


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--baseline", type=Path)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.alone:
        print(json.dumps(alone(args.messages)))
        return
    table = []
    if args.baseline:
        pairs = [
            {"baseline": elsewhere(args.baseline, args.messages), "off": elsewhere(HERE, args.messages)}
            for _ in range(max(args.rounds // 4, 1))
        ]
        table += [row(pairs, "baseline", "baseline"), row(pairs, "off", "baseline")]
    rounds = side_by_side(args.messages, args.rounds)
    table += [row(rounds, name, "off") for name in ("off", *(name for name in rounds[0] if name != "off"))]
    if args.json:
        print(json.dumps(table))
        return
    for entry in table:
        ratios = "  ".join(f"{part} {entry[part]:.3f}" for part in ("send", "work", "both"))
        goal = f"  goal {entry['goal']:.2f}" if entry["goal"] else ""
        print(f"{entry['variant']:14} {entry['cpu_us']:6.0f} µs  / {entry['against']:8}  {ratios}{goal}")


def row(rounds: list[dict[str, Costs]], name: str, against: str) -> dict[str, Any]:
    ratios = {
        part: statistics.median(figures[name][part] / figures[against][part] for figures in rounds)
        for part in rounds[0][name]
    }
    least = min(figures[name]["both"] for figures in rounds)
    return {"variant": name, "against": against, "cpu_us": least, "goal": GOALS.get(name), **ratios}


if __name__ == "__main__":
    main()
