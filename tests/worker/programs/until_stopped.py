"""Works with one group at a time, each of which takes a moment, until it is stopped; prints what it has applied."""

import sys
import time
from typing import Any

import inturn


def slowly(state: Any, message: Any) -> Any:
    print("begun", flush=True)
    time.sleep(0.3)
    return state, []


with inturn.open(sys.argv[1]) as db:
    ledger = inturn.Pipeline(name="ledger", group="account", order=inturn.Gapless("revision"), handler=slowly)
    print(inturn.work(ledger, db.queue("q"), concurrency=1).applied)
