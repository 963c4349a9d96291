"""A console with people, whose messages have a secret wherever one can be, and browsers of each role."""

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

from console_shop import HOST, Shop
from starlette.testclient import TestClient

import inturn
from inturn.console import Account, ConsoleConfig, Role, console
from inturn.console.routes import RouteField
from inturn.core.errors import DeliveryRefused
from inturn.core.queue.messages import QueueSettings
from inturn.ingest import FolderSource, Ingest, MessageMapping

CARD = "4111-1111-1111-1111"
TOKENS = {role: f"token-of-a-{role}-{'x' * 20}" for role in Role}
PEOPLE = [Account(name=f"the {role}", role=role, token=token) for role, token in TOKENS.items()]


class Guarded:
    """The console of a shop, and who asks it."""

    def __init__(self, shop: Shop, folder: Path, payload: dict[str, Any] | None = None, mask: str = "card.*") -> None:
        self.shop, self.folder = shop, folder
        card = payload or {"card": {"number": CARD}, "raw": json.dumps({"card": {"number": CARD}})}
        failing = {"amount": -7} | card
        with inturn.open(shop.path) as db:
            payments = db.queue("payments")
            payments.send({"amount": 1} | card, group="eu-8", revision=1)
            payments.send(failing, group="eu-9", revision=1)
            payments.send(failing, group="eu-9", revision=2)
            inturn.work(quoting(), payments, deliver=_refusing, until="empty")
            db.create("dead")
            other = db.queue("texts", QueueSettings(dead_letter="dead", max_receives=1))
            for _ in range(2):
                other.send(card, group="t", attributes=card)
            (delivery,) = other.receive()
            delivery.nack()
            assert other.receive(), "the first is a dead letter, so the second is received"
            other.send(json.dumps(card), group="u")
            db.pipeline("ledger").replace("eu-9", content={"amount": 3} | card, by="ann")
            drop = folder / "drop"
            drop.mkdir()
            (drop / "1.jsonl").write_text(json.dumps(card) + "\n" + json.dumps(json.dumps(card)) + "\n")
            mapping = MessageMapping(group="body.account", revision="body.n")
            Ingest(FolderSource(drop), db.queue("payments"), mapping, name="bank").run(until="caught up")
        (folder / "audit").mkdir()
        (folder / "audit" / "report.html").write_text(f"<h1>{json.dumps(card)}</h1>")
        self.config = ConsoleConfig(
            people=PEOPLE, mask=[mask], actions_log=str(folder / "actions.jsonl"), reports=(str(folder / "audit"),)
        )
        self.app = console(shop.path, config=self.config)
        self.fields = {
            "store": shop.store, "group": "eu-9", "action": "drop", "first": "x", "database": shop.path,
            "queue": "texts", "q": "eu-9", "again": "texts", "body": "1", "source": "bank",
            "within": "",
        }  # fmt: skip

    def fields_of(self, fields: tuple[RouteField, ...]) -> dict[str, str]:
        """Return a value for each field that a route takes."""
        return {field.name: self.fields[field.name] for field in fields if field.name in self.fields}

    def browser(self, role: Role | None) -> TestClient:
        """Return a program with the token of a role."""
        headers = {} if role is None else {"authorization": f"Bearer {TOKENS[role]}"}
        return TestClient(self.app, base_url=HOST, headers=headers)

    def logged_in(self, role: Role | None) -> TestClient:
        """Return a browser in which a person of a role has logged in."""
        browser = TestClient(self.app, base_url=HOST, follow_redirects=False)
        if role is not None:
            form = {"token": form_token(browser.get("/login").text), "secret": TOKENS[role]}
            assert browser.post("/login", data=form).status_code == 303
        return browser


def form_token(page: str) -> str:
    """Return the token of a page's forms."""
    return unescape(re.findall(r'name="token" value="([^"]+)"', page)[0])


def quoting() -> inturn.Pipeline:
    """Return the shop's pipeline with a handler that keeps messages, and quotes them in its errors."""

    def apply(state: Any, message: Any) -> tuple[Any, list[Any]]:
        if message["amount"] < 0:
            raise ValueError(f"cannot apply {message}")
        return {"last": message}, [message]

    return inturn.Pipeline(name="ledger", group="account", order=inturn.Gapless("revision"), handler=apply)


def _refusing(output: Any, effect_id: str) -> None:
    raise DeliveryRefused(f"cannot deliver {output}")
