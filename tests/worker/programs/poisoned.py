"""Lives of a worker or a consumer of which some die of a message, and what they leave behind.

    python -m worker.programs.poisoned work|consume DATABASE

Each life is a fork, and begins when the leases of the one before are over. The handler of one message ends its process.
The last life is the first that finds nothing left to do. Prints one document of JSON for the test; a consumer's lives
also print what they handle, on stderr.
"""

import json
import os
import sys
from typing import Any, Final

import inturn
from clocks import wall_clock_ms
from inturn.consumer import Consumer
from inturn.queue import Message, QueueSettings, draft
from inturn.results.inspection import DatabaseInspector
from inturn.worker import Worker

GROUPS: Final = 60
POISON: Final = ("g30", 2)
DIED: Final = 9
LIVES: Final = 30


def fold(state: Any, message: Any) -> Any:
    if (message["group"], message["number"]) == POISON:
        os._exit(DIED)
    return state | {"done": state.get("done", 0) + 1}, []


LEDGER: Final = inturn.Pipeline(name="ledger", group="group", order=inturn.Gapless("number"), handler=fold)


def handle(message: Message) -> None:
    if (message.group, message.body["number"]) == POISON:
        os._exit(DIED)
    os.write(2, f"{message.group} {message.body['number']}\n".encode())


def live(target: str, kind: str, number: int) -> None:
    """One life, until nothing is left to do or it dies."""
    with inturn.open(target, durable=False, clock=lambda: wall_clock_ms() + number * 61_000) as db:
        queue = db.queue("q")
        with Worker(LEDGER, queue) if kind == "work" else Consumer(queue, handle) as engine:
            engine.drain(120)


def main(kind: str, target: str) -> None:
    """Let them live and die."""
    with inturn.open(target, durable=False, clock=wall_clock_ms) as db:
        queue = db.queue("q", QueueSettings(visibility_timeout_s=60))
        names = [f"g{n}" for n in range(GROUPS)]
        queue.send_many([draft({"group": name, "number": n}, group=name) for n in (1, 2, 3) for name in names])
    ends: list[int] = []
    while len(ends) < LIVES and 0 not in ends:
        if (child := os.fork()) == 0:
            live(target, kind, len(ends) + 1)
            os._exit(0)
        ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    left: dict[str, Any] = {"ends": ends}
    with inturn.open(target, durable=False, clock=wall_clock_ms) as db:
        left["messages"] = db.queue("q").depth().messages
        if kind == "work":
            groups = list(DatabaseInspector(db, "ledger").groups())
            left["done"] = {each.group: each.state.get("done", 0) for each in groups}
            left["parked"] = {each.group: each.error for each in groups if each.status == "failed"}
        else:
            left["parked"] = {each.group: each.note for each in db.queue("q").parked()}
    print(json.dumps(left))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
