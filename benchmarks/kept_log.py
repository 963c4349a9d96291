"""The cost of a kept log: CPU time of a message that is sent, received and acknowledged, with the log and without.

    python benchmarks/kept_log.py [--messages 2000] [--rounds 20] [--length 1000000] [--json]

The queues are in one SQLite file without fsync, which would hide the cost. A round is one run of each variant in turn;
the table shows the medians of the ratios within a round, and the least CPU time. Then the kept log grows up to
``--length`` messages, and the same is measured at each length: the cost must not grow with it. `trim` is a queue that
keeps by size: from some length on each run removes as many messages as it adds.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import inturn
from inturn.core.queue.messages import QueueSettings
from inturn.queue import draft

GOAL = 1.2
BATCH, GROUPS = 100, 1_000
BODY = {"type": "deposit", "amount": 5, "note": "x" * 150}
SETTINGS = {
    "plain": QueueSettings(),
    "kept": QueueSettings(keep_for="30 days"),
    "trim": QueueSettings(keep_bytes=2_000_000),
}


def run(queue: Any, messages: int) -> dict[str, float]:
    """Send, receive and acknowledge; CPU microseconds of a message, for each part."""
    drafts = [
        [draft(BODY, group=f"g{(start + n) % GROUPS}", revision=n) for n in range(BATCH)]
        for start in range(0, messages, BATCH)
    ]
    began = time.process_time()
    for batch in drafts:
        queue.send_many(batch)
    sent = time.process_time()
    done = 0
    while done < messages:
        received = queue.receive(BATCH)
        queue.ack(received)
        done += len(received)
    ended = time.process_time()
    return {"send": (sent - began) / messages * 1e6, "all": (ended - began) / messages * 1e6}


def grow(queue: Any, length: int) -> None:
    """Send and acknowledge until so many were sent."""
    info = queue.info()
    missing = length - (info.last - (info.number << 44))
    if missing > 0:
        run(queue, missing // BATCH * BATCH or BATCH)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--length", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    results: dict[str, Any] = {"ratios": {}, "lengths": {}}
    with tempfile.TemporaryDirectory() as directory:
        db = inturn.open(str(Path(directory) / "log.db"), durable=False)
        queues = {name: db.queue(name, settings) for name, settings in SETTINGS.items()}
        rounds = [{name: run(queue, args.messages) for name, queue in queues.items()} for _ in range(args.rounds)]
        for name in ("kept", "trim"):
            for part in ("send", "all"):
                ratio = statistics.median(figures[name][part] / figures["plain"][part] for figures in rounds)
                least = (
                    min(figures[name][part] for figures in rounds),
                    min(figures["plain"][part] for figures in rounds),
                )
                results["ratios"][f"{name} {part}"] = [ratio, *least]
        length = 10_000
        while length <= args.length:
            for name in ("kept", "trim"):
                grow(queues[name], length)
            extra_rounds = [{name: run(queue, args.messages) for name, queue in queues.items()} for _ in range(5)]
            results["lengths"][length] = {
                name: [min(figures[name][part] for figures in extra_rounds) for part in ("send", "all")]
                for name in queues
            }
            length *= 10
        db.close()
    if args.json:
        print(json.dumps(results))
        return
    print(f"{'':12}{'ratio':>8}{'us':>8}{'plain us':>10}   goal {GOAL} for 'kept'")
    for name, (ratio, least, plain) in results["ratios"].items():
        print(f"{name:12}{ratio:8.2f}{least:8.1f}{plain:10.1f}")
    print(f"\n{'messages':>12}" + "".join(f"{f'{name}: send':>14}{'all':>8}" for name in SETTINGS))
    for size, row in results["lengths"].items():
        print(f"{size:12,}" + "".join(f"{row[name][0]:14.1f}{row[name][1]:8.1f}" for name in SETTINGS))


if __name__ == "__main__":
    main()
