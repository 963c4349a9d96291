"""A phantom record: the first webhook to arrive creates the record, the others add their fields.

Two services send webhooks about an order, in any sequence and with different clocks. Times are compared within one
source only; a decision is never changed; when the record is complete, one output is emitted. Run it with ``python
examples/phantom_record.py``. It prints:

    1: approved True, paid 30, parcel P-7, sent True
    2: approved False, paid None, parcel None, sent False
    Dispatch(order_id='1', amount=30, parcel='P-7'), duplicates 1
"""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from inturn import Arrival, Pipeline


@dataclass(frozen=True)
class Webhook:
    id: str
    order_id: str
    source: str | None = None
    at: datetime | None = None  # by the clock of its source
    approved: bool | None = None
    amount: int | None = None
    parcel: str | None = None
    offset: int = 0


@dataclass(frozen=True)
class Dispatch:
    order_id: str
    amount: int
    parcel: str


@dataclass(frozen=True)
class Record:
    approved: bool | None = None
    amount: int | None = None
    parcel: str | None = None
    sent: bool = False
    heard: dict[str, datetime] = field(default_factory=dict)  # field and source, and when by that source's clock


def assemble(record: Record, message: Webhook) -> tuple[Record, list[Dispatch]]:
    for name in ("approved", "amount", "parcel"):
        value, key = getattr(message, name), f"{name} {message.source}"
        is_older = key in record.heard and (message.at is None or message.at < record.heard[key])
        if value is None or is_older or (name == "approved" and record.approved is not None):
            continue
        changed: dict[str, Any] = {name: value}
        record = replace(record, heard=record.heard | ({key: message.at} if message.at else {}), **changed)
    if record.sent or not record.approved or record.amount is None or record.parcel is None:
        return record, []
    return replace(record, sent=True), [Dispatch(message.order_id, record.amount, record.parcel)]


KINDS: Any = {"message": Webhook, "state": Record, "handler": assemble}
orders = Pipeline(name="orders", group="order_id", order=Arrival(), id="id", arrival="offset", **KINDS)

if __name__ == "__main__":
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    before, behind = noon - timedelta(minutes=1), noon - timedelta(days=365)  # the warehouse's clock is a year behind
    came = [
        Webhook("w2", "1", "warehouse", behind, parcel="P-7"),
        Webhook("w1", "1", "warehouse", behind - timedelta(minutes=1), parcel="P-6"),  # it comes too late
        Webhook("p1", "1", "payments", noon, approved=True),
        *[Webhook("p2", "1", "payments", before, amount=30)] * 2,  # older, but nobody has said it yet
        Webhook("p3", "2", "payments", noon, approved=False),
        Webhook("p4", "2", "payments", noon, approved=True),  # a decision once made is kept
    ]
    result = orders.replay(replace(webhook, offset=offset) for offset, webhook in enumerate(came))
    for order_id, each in result.states.items():
        print(f"{order_id}: approved {each.approved}, paid {each.amount}, parcel {each.parcel}, sent {each.sent}")
    print(f"{result.outputs[0].output}, duplicates {result.counts.duplicate}")
