"""Lives of a writer of steps on an object store, which somebody else kills: ``crash_steps.py URL SEED LIVES``.

Every life goes on where the store is: step n takes the n-th part of the history. Some lives also decide about a group.
The steps run as tasks do, without Spark (see ``kernel_harness``). It prints lines of JSON: the process of each life,
how it ended, the decisions that it was about to make, and those that were acknowledged to it.
"""

import datetime as dt
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from programs.ledger import cut, history, ledger

from inturn.core.errors import InputError, StoreConflict, StoreError
from inturn.core.pipeline.decision import DecisionAction
from inturn.core.pipeline.timeline import Status
from inturn.spark.columns.hashing import group_hash
from inturn.spark.driver.inspection import SparkInspector
from inturn.spark.tables.manifest import SparkStore
from kernel_harness import DAWN, Bench

SCHEMA = pa.schema({"account": pa.string(), "revision": pa.int64(), "amount": pa.int64()})
STEPS = 12


def parts(seed: int) -> list[list[dict[str, Any]]]:
    """What each step takes, the first first."""
    return cut(history(seed, accounts=8), STEPS)


def now(step: int) -> dt.datetime:
    """The time of a step."""
    return DAWN + dt.timedelta(minutes=step)


def bench_at(url: str) -> Bench:
    """The store; its hashes are the true ones, since decisions go by them."""
    bench = Bench(ledger, SCHEMA, root=Path("unused"), buckets=1)
    bench.root, bench.store = url, SparkStore(url)  # type: ignore[assignment]  # a URL in place of a path
    bench.hash_of = group_hash  # type: ignore[method-assign]
    return bench


def live(url: str, seed: int, chance: random.Random, say: Any) -> None:
    """Take the steps that are left, and decide now and then."""
    bench, todo = bench_at(url), parts(seed)
    while (step := done(bench.store) + 1) <= len(todo):
        bench.step(todo[step - 1], now=now(step))
        if chance.random() < 0.3:
            decide(url, chance, say)


def done(store: SparkStore) -> int:
    """How many steps are committed."""
    last = store.latest() if store.identity() else None
    return last.step if last else 0


def decide(url: str, chance: random.Random, say: Any) -> None:
    """Skip the gap of a group that waits, or resume one that failed."""
    inspector = SparkInspector(url)
    for standing in chance.sample(parked := list(inspector.parked()), len(parked)):
        action = DecisionAction.RESUME if standing.status == Status.FAILED else DecisionAction.SKIP
        try:
            decision = inspector.decision(action, standing.group, by="ann")
        except InputError:
            continue  # it has no gap any more
        say(deciding=f"{decision.at_us:016d}-{decision.id}")  # it may be killed before it can say more
        try:
            say(decided=inspector.decide(decision))
        except StoreError as error:
            say(error=str(error))
        return


def main(url: str, seed: int, lives: int) -> None:
    """Begin life after life until one comes to the end; whoever reads the lines kills them."""
    for number in range(lives):
        child = os.fork()
        if child == 0:
            print(json.dumps({"life": os.getpid()}), flush=True)
            os._exit(_life(url, seed, random.Random(f"{seed}/{number}")))
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        print(json.dumps({"ended": code}), flush=True)
        if code == 0:
            return


def _life(url: str, seed: int, chance: random.Random) -> int:
    def say(**fields: str) -> None:
        print(json.dumps(fields), flush=True)

    try:
        live(url, seed, chance, say)
    except StoreConflict as error:
        say(conflict=str(error))
        return 3
    except StoreError as error:
        say(error=str(error))
        return 4
    return 0


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
