"""A bank whose accounts are in all states that the console shows, and a console over it that a browser can open."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

import inturn
from inturn.console import ConsoleConfig, console
from inturn.core.pipeline.decision import DecisionAction
from inturn.core.queue.messages import QueueSettings
from inturn.definitions import load
from inturn.queue import draft
from inturn.worker.inspection import open_inspector
from waiting import DEADLINE_S

DEFINITION = '''"""A ledger: deposits and withdrawals of accounts, each with a revision."""

from dataclasses import dataclass, field
from typing import Literal

import inturn


@dataclass
class Transaction:
    account: str
    revision: int
    kind: Literal["deposit", "withdrawal"]
    amount: float
    note: str | None = None
    is_reviewed: bool = False
    tags: list[str] = field(default_factory=list)


@dataclass
class Account:
    balance: float = 0.0
    transactions: int = 0


def apply(state: Account, message: Transaction) -> tuple[Account, list[dict]]:
    if message.amount < 0:
        raise ValueError(f"amount {message.amount:g} is below zero")
    signed = message.amount if message.kind == "deposit" else -message.amount
    state.balance, state.transactions = round(state.balance + signed, 2), state.transactions + 1
    return state, [{"posted": message.revision, "balance": state.balance}]


ledger = inturn.Pipeline(
    name="ledger",
    group="account",
    order=inturn.Gapless("revision"),
    message=Transaction,
    state=Account,
    handler=apply,
)
'''
STUCK = "acct-1207"
"""The account of which revision 5 fails; 6, 7 and 10 wait, and 8 and 9 are missing."""
ERROR = "ValueError: amount -12.5 is below zero"


class Bank:
    """A database with accounts, and the definition of their ledger.

    Attributes:
        at: the address of the database.
        definition: the place of the pipeline, for ``--pipeline``.
        store: the title of the pipeline's store.
    """

    def __init__(self, folder: Path, at: str | None = None) -> None:
        self.folder = folder
        self.module = folder / "bank_ledger.py"
        self.module.write_text(DEFINITION)
        self.at = at or str(folder / "bank.db")
        self.definition, self.store = f"{self.module}:ledger", f"{self.at}#ledger"
        self._modules: dict[str, Any] = {}

    def mend(self) -> None:
        """Mend the handler: what is below zero is booked as it is."""
        self.module.write_text(DEFINITION.replace("if message.amount < 0:", "if message.amount < -1e9:"))
        self._modules.clear()

    def send(self, *sent: tuple[str, int, float], queue: str = "payments", **more: Any) -> None:
        """Send transactions: the account, the revision and the amount."""
        with inturn.open(self.at) as db:
            drafts = [
                draft({"kind": "deposit", "amount": amount, **more}, group=account, revision=revision)
                for account, revision, amount in sent
            ]
            opened = db.queue(queue)
            for first in range(0, len(drafts), 1000):
                opened.send_many(drafts[first : first + 1000])

    def work(self, deliver: Any = None) -> None:
        """Work until the queue is empty, which takes decisions too."""
        with inturn.open(self.at) as db:
            inturn.work(load(self.definition, self._modules), db.queue("payments"), deliver=deliver, until="empty")

    def story(self) -> None:
        """Make accounts in all states, a dead-letter queue with letters, and a queue in which one blocks others."""
        self.send((STUCK, 1, 100), (STUCK, 2, 20), (STUCK, 3, -7.25))
        self.work()
        with open_inspector(self.at, "ledger") as ledger:
            new = ledger.decision(
                DecisionAction.REPLACE, STUCK, by="bob", why="the sign was wrong", new={"amount": 7.25}
            )
            ledger.decide(new)
        self.work()
        self.send((STUCK, 4, 30), (STUCK, 5, -12.5), (STUCK, 6, 5), (STUCK, 7, 8), (STUCK, 10, 1), note="card payment")
        self.send(("acct-1311", 2, 40), ("acct-1402", 1, -3), ("acct-1402", 2, 9), ("acct-1500", 1, 5))
        self.work()
        with inturn.open(self.at) as db:
            db.queue("letters-failed")
            letters = db.queue("letters", QueueSettings(dead_letter="letters-failed", max_receives=3))
            for number in range(6):
                letters.send({"to": f"person {number}"}, group=f"city-{number % 3}", dedup_id=f"letter-{number}")
            for message in letters.receive(max_messages=3):
                message.reject(
                    "TimeoutError: the printer did not answer" if message.group != "city-1" else "no address"
                )
            letters.receive(max_messages=1, visibility_timeout_s=600)

    def stuck(self, count: int) -> None:
        """Make so many accounts that all stopped at one error."""
        self.send(*((f"eu-{number:06d}", 1, -12.5) for number in range(count)))
        self.work()

    @contextmanager
    def served(self, *stores: str, by: str = "ann", port: int = 0, **options: Any) -> Iterator[str]:
        """Serve the console over the bank, or over these stores; yield its address."""
        options.setdefault("pipelines", [self.definition])
        options.setdefault("config", ConsoleConfig(actions_log=str(self.folder / "actions.jsonl")))
        with serving(stores or [self.at], by=by, port=port, **options) as address:
            yield address


@contextmanager
def serving(stores: Sequence[str], *, port: int = 0, **options: Any) -> Iterator[str]:
    """Serve a console in a thread; yield its address."""
    config = uvicorn.Config(
        console(*stores, **options), port=port, log_level="critical", lifespan="off", timeout_graceful_shutdown=0
    )
    with config.bind_socket() as socket:
        socket.listen()
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([socket],), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{socket.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(DEADLINE_S)
