"""A held message is replaced where the arrival is a column beside it, of which its type knows nothing."""

from pathlib import Path
from typing import Any

import msgspec

import inturn


class Amount(msgspec.Struct, frozen=True):
    account: str
    revision: int
    amount: int


def apply(state: dict[str, Any], message: Amount) -> tuple[dict[str, Any], list[Any]]:
    if message.amount < 0:
        raise ValueError(f"amount {message.amount} is below zero")
    return {"balance": state.get("balance", 0) + message.amount}, []


def test_a_replaced_message_keeps_its_arrival(tmp_path: Path) -> None:
    pipeline = inturn.Pipeline(
        name="ledger",
        group="account",
        order=inturn.Gapless("revision"),
        message=Amount,
        handler=apply,
        arrival="offset",
    )
    with inturn.open(tmp_path / "shop.db") as db:
        payments = db.queue("payments")
        payments.send({"amount": -5}, group="a", revision=1)
        inturn.work(pipeline, payments, until="empty")
        (held,) = db.pipeline("ledger").inspector.held("a")
        assert held.content["offset"] > 0
        report = db.pipeline("ledger").replace("a", content=held.content | {"amount": 5}, by="ann")
        inturn.work(pipeline, payments, until="empty")
        assert db.pipeline("ledger").updated(report).void == {}
        assert db.pipeline("ledger").group("a").state == {"balance": 5}
