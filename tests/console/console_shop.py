"""A shop with parked and waiting groups, and a browser at its console."""

import re
from html import unescape
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

import inturn
from inturn.console import console
from inturn.console.config import ConsoleConfig

HOST = "http://127.0.0.1:9325"
AMOUNTS = [
    ("eu-1", 1, 7),
    ("eu-1", 2, -5),
    ("eu-1", 3, 1),
    ("eu-1", 5, 1),
    ("eu-2", 1, -5),
    ("us-1", 2, 5),
    ("us-2", 1, 3),
]


def apply(state: dict[str, Any], message: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    if message["amount"] < 0:
        raise ValueError(f"amount {message['amount']} is below zero")
    return {"balance": state.get("balance", 0) + message["amount"]}, []


LEDGER = inturn.Pipeline(name="ledger", group="account", order=inturn.Gapless("revision"), handler=apply)


class Shop:
    """A database with a ledger, and a browser at its console."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "shop.db")
        self.store = f"{self.path}#ledger"
        self.browser = TestClient(
            console(self.path, by="ann", config=ConsoleConfig(actions_log=str(folder / "actions.jsonl"))), base_url=HOST
        )

    def send(self, *amounts: tuple[str, int, int]) -> None:
        """Send amounts, and work until the queue is empty."""
        with inturn.open(self.path) as db:
            payments = db.queue("payments")
            for account, revision, amount in amounts:
                payments.send({"amount": amount}, group=account, revision=revision)
            inturn.work(LEDGER, payments, until="empty")

    def page(self, path: str, **fields: str) -> str:
        """Return the text of a page that must be there."""
        answer = self.browser.get(path, params=fields)
        assert answer.status_code == 200, answer.text
        return answer.text

    def token(self) -> str:
        """Return the token of the forms."""
        page = self.page("/group", store=self.store, group="eu-1")
        return unescape(re.findall(r'name="token" value="([^"]+)"', page)[0])

    def decide(self, **fields: str) -> Any:
        """Send the form of a decision, and return the page that follows."""
        return self.browser.post("/decide", data={"token": self.token(), "store": self.store, **fields})
