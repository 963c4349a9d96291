"""Lives of a worker or a consumer of which some die of a message, and what they leave behind.

    python -m worker.programs.poisoned work|decide|wait|deliver|consume DATABASE

Each life is a fork, and begins when the leases of the one before are over. The handler of one message ends its process:
as it comes (``work`` and ``consume``), after people have let its group go on (``decide``), or once a gap before it has
ended (``wait``). With ``deliver`` the delivery of its output does. The last life is the first that finds nothing to do.
Prints one document of JSON for the test; what a life handles or delivers it also prints on stderr.
"""

import json
import os
import sys
import time
from typing import Any, Final

import inturn
from clocks import wall_clock_ms
from inturn.consumer import Consumer
from inturn.queue import Message, QueueSettings, draft
from inturn.results.inspection import DatabaseInspector
from inturn.worker import Worker

GROUPS: Final = 60
POISON: Final = ("g30", 2)
STUCK: Final = ("g10", "g30", "g50")
DIED: Final = 9
LIVES: Final = 30


def fold(state: Any, message: Any) -> Any:
    if (message["group"], message["number"] % 10) == POISON:
        os._exit(DIED)
    return state | {"done": state.get("done", 0) + 1}, []


def fold_first(state: Any, message: Any) -> Any:
    if message["group"] in STUCK and message["number"] == POISON[1]:
        raise ValueError("not yet")
    return fold(state, message)


def emit(state: Any, message: Any) -> Any:
    return state | {"done": state.get("done", 0) + 1}, [message]


def deliver(output: Any, _effect_id: str) -> None:
    if (output["group"], output["number"]) == POISON:
        os._exit(DIED)
    os.write(2, f"{output['group']} {output['number']}\n".encode())


def handle(message: Message) -> None:
    deliver(message.body, "")


def ledger(handler: Any) -> Any:
    skip = inturn.Wait("1 minute", then="skip")
    return inturn.Pipeline(name="ledger", group="group", order=inturn.Gapless("number"), handler=handler, on_gap=skip)


def engine(kind: str, queue: Any) -> Any:
    if kind == "consume":
        return Consumer(queue, handle)
    if kind == "deliver":
        return Worker(ledger(emit), queue, deliver=deliver)
    return Worker(ledger(fold), queue)


def prepare(kind: str, target: str) -> None:
    """Send the messages, and for decisions let three groups fail and people decide."""
    with inturn.open(target, durable=False, clock=wall_clock_ms) as db:
        queue = db.queue("q", QueueSettings(visibility_timeout_s=60))
        names = [f"g{n}" for n in range(GROUPS)]
        sent = [(name, n) for n in (1, 2, 3) for name in names]
        if kind == "wait":
            sent = [(name, n + 10 * (name in STUCK and n > 1)) for name, n in sent]
        queue.send_many([draft({"group": name, "number": n}, group=name) for name, n in sent])
        if kind == "decide":
            with Worker(ledger(fold_first), queue) as first:
                first.drain(120)
            db.pipeline("ledger").resume(all=True, by="ann")


def live(target: str, kind: str, number: int) -> None:
    """One life, until nothing is left to do or it dies."""
    with inturn.open(target, durable=False, clock=lambda: wall_clock_ms() + number * 61_000) as db:
        queue = db.queue("q")
        with engine(kind, queue) as running:
            running.drain(120)
            until_s = time.monotonic() + 120
            while kind in ("decide", "wait") and is_left(db):
                running.check()
                if time.monotonic() > until_s:
                    raise TimeoutError(kind)
                time.sleep(0.01)


def is_left(db: Any) -> bool:
    """Return whether a decision is not taken, or a wait not over."""
    inspector = DatabaseInspector(db, "ledger")
    return any(group.status == "waiting" for group in inspector.groups()) or bool(inspector.pending_decisions("g30"))


def main(kind: str, target: str) -> None:
    """Let them live and die."""
    prepare(kind, target)
    ends: list[int] = []
    while len(ends) < LIVES and 0 not in ends:
        if (child := os.fork()) == 0:
            live(target, kind, len(ends) + 1)
            os._exit(0)
        ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    result: dict[str, Any] = {"ends": ends}
    with inturn.open(target, durable=False, clock=wall_clock_ms) as db:
        result["messages"] = db.queue("q").depth().messages
        if kind == "consume":
            result["parked"] = {parked.group: parked.note for parked in db.queue("q").parked()}
        else:
            inspector = DatabaseInspector(db, "ledger")
            groups = list(inspector.groups())
            result["done"] = {group.group: group.state.get("done", 0) for group in groups}
            result["parked"] = {group.group: group.error for group in groups if group.status == "failed"}
            result["refused"] = {group.group: group.error for group in inspector.failing()}
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
