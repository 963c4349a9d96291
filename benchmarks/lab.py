"""The lab's simulator: its speed, design by design, and its models beside the engines that they stand for.

```
python benchmarks/lab.py --speed           # simulated messages a CPU second, with and without the figures
python benchmarks/lab.py --validate        # real RabbitMQ, Kafka, inturn serve and inturn.work beside their models
```

The speed is that of one process: 100,000 messages in 1,000 groups, four consumers, one handling of a hundred fails. The
goals are 500,000 messages a second for the simplest design and 150,000 for each.
"""

import argparse
import json
import random
import sys
import time

from rich.console import Console
from rich.table import Table

from inturn.lab import Knobs, LabMessage
from inturn.lab.designs import DESIGNS
from inturn.lab.draws import Draws
from inturn.lab.judge import Judge
from inturn.lab.measure import measure
from inturn.lab.workload import Workload

MESSAGES, GROUPS, GAP_US, RUNS = 100_000, 1_000, 400, 3
GOALS = {"competing-classic": 500_000}
GOAL = 150_000


def backlog() -> Workload:
    """Return the messages, in order of arrival."""
    chance, revisions = random.Random(0), [0] * GROUPS  # noqa: S311 - a simulation, not a secret
    messages = []
    for number in range(MESSAGES):
        group = chance.randrange(GROUPS)
        revisions[group] += 1
        messages.append(LabMessage(at_us=number * GAP_US, group=f"g{group}", revision=revisions[group]))
    return Workload(messages)


def speeds() -> dict[str, dict[str, float]]:
    """Return messages a CPU second of each design: the simulation alone, and with the figures; best of three runs."""
    load, knobs = backlog(), Knobs(failure_rate=0.01)
    draws, judge = Draws(load, knobs), Judge(load, None)
    results = {}
    for design in DESIGNS:
        alone_s, all_s = [], []
        for _ in range(RUNS):
            began = time.process_time()
            log = design().simulate(load, draws, knobs)
            alone_s.append(time.process_time() - began)
            measure(design(), load, log, judge)
            all_s.append(time.process_time() - began)
        results[design.name] = {"simulated": MESSAGES / min(alone_s), "measured": MESSAGES / min(all_s)}
    return results


def show_speeds(*, as_json: bool) -> bool:
    """Print the speeds, and return whether they reach the goals."""
    results = speeds()
    if as_json:
        print(json.dumps(results, indent=1))
    else:
        table = Table("design", "simulated a CPU second", "with its figures", "goal", title="The lab's speed")
        for name, speed in results.items():
            goal = GOALS.get(name, GOAL)
            mark = "" if speed["simulated"] >= goal else " missed"
            table.add_row(name, f"{speed['simulated']:,.0f}", f"{speed['measured']:,.0f}", f"{goal:,}{mark}")
        Console().print(table)
    return all(speed["simulated"] >= GOALS.get(name, GOAL) for name, speed in results.items())


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--speed", action="store_true", help="print the speed of each design (default)")
    parser.add_argument("--validate", action="store_true", help="run the real engines beside their models")
    parser.add_argument("--runs", type=int, default=5, help="runs of each engine (5)")
    parser.add_argument("--keep", action="store_true", help="write the result where the lab's pages read it")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if options.validate:
        from lab_validate import run

        sys.exit(not run(options.runs, keep=options.keep))
    sys.exit(not show_speeds(as_json=options.json))


if __name__ == "__main__":
    main()
