"""The cost of logs, metrics and traces: CPU time of a message from its send to the delivery of its output.

    python benchmarks/telemetry.py [--messages 3000] [--rounds 9] [--baseline PATH/TO/OTHER/CHECKOUT] [--json]

Each run is a process of its own: messages of 100 groups are sent one by one to an SQLite file, then worked off by a
trivial handler with one output each, which is delivered. A round is one run of each variant in turn, and the table
shows medians of the ratios within a round, so that a busy machine is unkind to all.

- off: as installed; with `--baseline`, beside the same code of another checkout.
- prometheus: the collector is registered, and a page is made each second.
- traces 1 %, 10 %: OpenTelemetry's SDK, parent-based sampling of so many, spans exported in batches to nowhere.
- otel metrics: OpenTelemetry's metrics alone, with a reader in memory.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

VARIANTS = ("off", "prometheus", "traces 1 %", "traces 10 %", "otel metrics")
GOALS = {"off": 1.0, "prometheus": 1.03, "traces 1 %": 1.05, "traces 10 %": 1.05}
HERE = Path(__file__).resolve().parents[1]


def count(state: dict[str, int], message: dict[str, Any]) -> tuple[dict[str, int], list[Any]]:
    amount = state.get("amount", 0) + message["amount"]
    return {"amount": amount}, [{"amount": amount}]


def begin(variant: str, db: Any) -> None:
    """Switch on what the variant measures."""
    if variant == "prometheus":
        from prometheus_client import REGISTRY, generate_latest

        from inturn import telemetry

        telemetry.prometheus(db)

        def look() -> None:
            while True:
                generate_latest(REGISTRY)
                time.sleep(1)

        threading.Thread(target=look, daemon=True).start()
    elif variant.startswith("traces"):
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
        from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

        from inturn import telemetry

        class Nowhere(SpanExporter):
            def export(self, spans: Any) -> SpanExportResult:
                return SpanExportResult.SUCCESS

        provider = TracerProvider(sampler=ParentBasedTraceIdRatio(int(variant.split()[1]) / 100))
        provider.add_span_processor(BatchSpanProcessor(Nowhere()))
        telemetry.instrument(tracer_provider=provider)
    elif variant == "otel metrics":
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        from opentelemetry.trace import NoOpTracerProvider

        from inturn import telemetry

        meters = MeterProvider([InMemoryMetricReader()])
        telemetry.instrument(db, tracer_provider=NoOpTracerProvider(), meter_provider=meters)


def run(variant: str, messages: int) -> dict[str, float]:
    """One run in this process; CPU microseconds of a message."""
    import inturn

    line = inturn.Pipeline(name="ledger", group="account", order=inturn.Gapless("revision"), handler=count)
    with tempfile.TemporaryDirectory() as folder, inturn.open(Path(folder) / "shop.db") as db:
        queue = db.queue("q")
        begin(variant, db)
        began = time.process_time()
        for n in range(messages):
            queue.send({"amount": 1}, group=f"g{n % 100}", revision=n // 100 + 1)
        sent = time.process_time()
        counts = inturn.work(line, queue, until="empty", deliver=lambda _output, _effect_id: None)
        worked = time.process_time()
        assert counts.applied == messages
    return {
        name: cpu_s / messages * 1e6
        for name, cpu_s in {"send": sent - began, "work": worked - sent, "both": worked - began}.items()
    }


def elsewhere(variant: str, messages: int, checkout: Path) -> dict[str, float]:
    """One run in a process of its own, with the code of a checkout."""
    command = [sys.executable, __file__, "--one", variant, "--messages", str(messages)]
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--baseline", type=Path)
    parser.add_argument("--one")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(run(asked.one, asked.messages)))
        return
    checkouts = dict.fromkeys(VARIANTS, HERE)
    if asked.baseline:
        checkouts = {"baseline": asked.baseline.resolve(), **checkouts}
    base = next(iter(checkouts))
    rounds = [
        {
            variant: elsewhere("off" if variant == "baseline" else variant, asked.messages, checkout)
            for variant, checkout in checkouts.items()
        }
        for _ in range(asked.rounds)
    ]
    table = []
    for variant in checkouts:
        against = base if variant == "off" else "off"
        ratio = {
            part: statistics.median(each[variant][part] / each[against][part] for each in rounds)
            for part in ("send", "work", "both")
        }
        cpu_us = statistics.median(each[variant]["both"] for each in rounds)
        table.append({"variant": variant, "cpu_us": cpu_us, "against": against, **ratio, "goal": GOALS.get(variant)})
    if asked.json:
        print(json.dumps(table))
        return
    for row in table:
        ratios = "  ".join(f"{part} {row[part]:.3f}" for part in ("send", "work", "both"))
        goal = "" if row["goal"] is None else f"  goal {row['goal']:.2f}"
        print(f"{row['variant']:14} {row['cpu_us']:7.1f} µs  / {row['against']:8}  {ratios}{goal}")


if __name__ == "__main__":
    main()
