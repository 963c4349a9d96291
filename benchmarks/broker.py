"""What a turn costs: ``QueueBroker`` beside a semaphore with a lock per key, and beside a queue that is searched.

```
python benchmarks/broker.py                # CPU µs per task against tasks queued, ratios, goals
python benchmarks/broker.py --instant      # the same with tasks that await nothing
```

All contenders run the same tasks in one process, in turns. In the warm-up it is asserted that each runs every task
once, at most one of a group at a time, and each group's in order.
"""

import argparse
import asyncio
import gc
import json
import platform
import statistics
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table

from inturn.broker import QueueBroker

SIZES = (100, 1_000, 10_000, 100_000)
GROUPS = 1_000
ACTIVE = 16
TASKS = 20_000  # in a measurement at least; small queues are filled and emptied again and again
DEADLINE_S = 600.0  # never reached
MOST_SEARCHED = 10_000  # more would take minutes
FLAT = 1.5  # times the cheapest size
AHEAD = 8.0  # times cheaper than semaphore and lock
AHEAD_AT = 10_000

Function = Callable[[int, int], Awaitable[None]]
Run = Callable[[Function, list[int]], Awaitable[None]]


async def by_submit(function: Function, groups: list[int], timeout_s: float | None = None) -> None:
    async with QueueBroker(max_active=ACTIVE, max_queued=len(groups)) as broker:
        for number, group in enumerate(groups):
            broker.submit(function, number, group, group=group, timeout_s=timeout_s)


async def by_post(function: Function, groups: list[int]) -> None:
    async with QueueBroker(max_active=ACTIVE, max_queued=len(groups)) as broker:
        for number, group in enumerate(groups):
            broker.post(function, number, group, group=group)


async def by_slot(function: Function, groups: list[int], timeout_s: float | None = None) -> None:
    broker = QueueBroker(max_active=ACTIVE, max_queued=len(groups))

    async def caller(number: int, group: int) -> None:
        async with broker.slot(group, timeout_s=timeout_s):
            await function(number, group)

    await asyncio.gather(*[asyncio.create_task(caller(*call)) for call in enumerate(groups)])


async def by_locks(function: Function, groups: list[int]) -> None:
    """A semaphore for all and a lock for each key, which is never forgotten: that would cost more."""
    semaphore, locks = asyncio.Semaphore(ACTIVE), defaultdict[int, asyncio.Lock](asyncio.Lock)

    async def caller(number: int, group: int) -> None:
        async with locks[group], semaphore:
            await function(number, group)

    await asyncio.gather(*[asyncio.create_task(caller(*call)) for call in enumerate(groups)])


async def by_locks_in_time(function: Function, groups: list[int]) -> None:
    """The same with a deadline on waiting."""
    semaphore, locks = asyncio.Semaphore(ACTIVE), defaultdict[int, asyncio.Lock](asyncio.Lock)

    async def caller(number: int, group: int) -> None:
        async with asyncio.timeout(DEADLINE_S) as wait:
            async with locks[group], semaphore:
                wait.reschedule(None)
                await function(number, group)

    await asyncio.gather(*[asyncio.create_task(caller(*call)) for call in enumerate(groups)])


async def by_search(function: Function, groups: list[int]) -> None:
    """One list: whenever a task has ended, the first is looked for whose group is free."""
    waiting: list[tuple[int, int]] = []
    busy: set[int] = set()
    ended = asyncio.Event()
    running: set[asyncio.Task[None]] = set()

    async def run(number: int, group: int) -> None:
        try:
            await function(number, group)
        finally:
            busy.discard(group)

    def go_on(task: asyncio.Task[None] | None = None) -> None:
        running.discard(task)  # type: ignore[arg-type]
        while len(running) < ACTIVE:
            index = next((index for index, (_, group) in enumerate(waiting) if group not in busy), None)
            if index is None:
                break
            number, group = waiting.pop(index)
            busy.add(group)
            started = asyncio.create_task(run(number, group))
            running.add(started)
            started.add_done_callback(go_on)
        if not running:
            ended.set()

    waiting.extend(enumerate(groups))
    go_on()
    await ended.wait()


@dataclass(frozen=True)
class Contender:
    """One way to do it, and the largest queue on which it is tried."""

    name: str
    run: Run
    most: int = SIZES[-1]


CONTENDERS = {
    "post": Contender("QueueBroker.post", by_post),
    "submit": Contender("QueueBroker.submit", by_submit),
    "submit-deadline": Contender("… with a deadline", partial(by_submit, timeout_s=DEADLINE_S)),
    "turn": Contender("QueueBroker.slot in an asyncio task", by_slot),
    "turn-deadline": Contender("… with a deadline", partial(by_slot, timeout_s=DEADLINE_S)),
    "locks": Contender("semaphore and lock per key", by_locks),
    "locks-deadline": Contender("… with a deadline", by_locks_in_time),
    "search": Contender("a list that is searched", by_search, MOST_SEARCHED),
}


def many(size: int) -> list[int]:
    """All groups side by side."""
    return [number % GROUPS for number in range(size)]


def hot(size: int) -> list[int]:
    """Every other task belongs to one group."""
    return [0 if number % 2 else 1 + number % GROUPS for number in range(size)]


WORKLOADS = {"many groups": many, "one hot group": hot}


async def once(number: int, group: int) -> None:  # noqa: ARG001 - as all tasks are called
    """A task that lets others run once."""
    await asyncio.sleep(0)


async def instant(number: int, group: int) -> None:
    """A task that awaits nothing."""


def check(run: Run, groups: list[int], loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Stop if a contender breaks a rule."""
    ran: dict[int, list[int]] = defaultdict(list)
    busy: set[int] = set()

    async def task(number: int, group: int) -> None:
        assert group not in busy
        assert len(busy) < ACTIVE
        busy.add(group)
        ran[group].append(number)
        await asyncio.sleep(0)
        busy.remove(group)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(run(task, groups))  # type: ignore[arg-type]
    assert sum(map(len, ran.values())) == len(groups)
    assert all(numbers == sorted(numbers) for numbers in ran.values())


@dataclass
class Cell:
    """CPU µs per task of one contender, for one workload and size."""

    workload: str
    contender: str
    size: int
    cpu_us: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Of all rounds."""
        return statistics.median(self.cpu_us)


def measure(cell: Cell, function: Function, loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    groups, run = WORKLOADS[cell.workload](cell.size), CONTENDERS[cell.contender].run
    times = max(1, TASKS // cell.size)

    async def fill_again() -> None:  # in one run: that of a Runner costs as much as thirty tasks
        for _ in range(times):
            await run(function, groups)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        gc.collect()
        before = time.process_time()
        runner.run(fill_again())
        cell.cpu_us.append((time.process_time() - before) / times / cell.size * 1e6)


def goals(cells: list[Cell]) -> list[tuple[str, float, bool]]:
    """Each goal in words, the ratio that was measured, and whether it is met."""
    medians = {(cell.workload, cell.contender, cell.size): cell.median for cell in cells}
    results = []
    for workload in WORKLOADS:
        costs = [cost for (name, contender, _), cost in medians.items() if (name, contender) == (workload, "post")]
        if costs:
            flat = max(costs) / min(costs)
            results.append((f"{workload}: the dearest size against the cheapest, at most {FLAT}", flat, flat <= FLAT))
        own, locks = medians.get((workload, "post", AHEAD_AT)), medians.get((workload, "locks", AHEAD_AT))
        if own and locks:
            text = f"{workload}: semaphore and lock against post at {AHEAD_AT:,}, at least {AHEAD:.0f}"
            results.append((text, locks / own, locks / own >= AHEAD))
    return results


def show(cells: list[Cell], options: argparse.Namespace, console: Console) -> None:
    for workload in WORKLOADS:
        table = Table(title=f"{workload}: CPU µs per task, medians of {options.rounds} rounds", title_justify="left")
        table.add_column("queued")
        for size in options.sizes:
            table.add_column(f"{size:,}", justify="right")
        own = {cell.size: cell.median for cell in cells if (cell.workload, cell.contender) == (workload, "submit")}
        for key in options.only:
            medians = {c.size: c.median for c in cells if (c.workload, c.contender) == (workload, key)}
            row = [
                f"{medians[size]:.1f}" + (f" ({medians[size] / own[size]:.1f}x)" if size in own else "")
                if size in medians
                else "-"
                for size in options.sizes
            ]
            table.add_row(CONTENDERS[key].name, *row)
        console.print(table)
    for text, ratio, met in goals(cells):
        console.print(f"{'[green]✓[/]' if met else '[red]✗[/]'} {text}: {ratio:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--instant", action="store_true", help="tasks that await nothing")
    parser.add_argument("--loop", choices=["uvloop", "asyncio"], default="uvloop")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args()
    loop_factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    if options.loop == "uvloop":
        import uvloop

        loop_factory = uvloop.new_event_loop
    cells = [
        Cell(workload, key, size)
        for workload in WORKLOADS
        for size in options.sizes
        for key in options.only
        if size <= CONTENDERS[key].most
    ]
    for key in options.only:
        for groups in WORKLOADS.values():
            check(CONTENDERS[key].run, groups(2_000), loop_factory)
    for number in range(options.rounds):
        first = number * len(cells) // options.rounds
        for cell in (*cells[first:], *cells[:first]):
            measure(cell, instant if options.instant else once, loop_factory)
    if options.json:
        machine = {"python": platform.python_version(), "loop": options.loop, "task": "instant" * options.instant}
        shown: dict[str, Any] = {
            "machine": machine,
            "cells": [vars(cell) | {"median_us": cell.median} for cell in cells],
            "goals": [{"goal": text, "ratio": ratio, "met": met} for text, ratio, met in goals(cells)],
        }
        print(json.dumps(shown, indent=2))
    else:
        show(cells, options, Console())


if __name__ == "__main__":
    main()
