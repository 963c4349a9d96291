"""A phantom record: what to do where there is no order at all.

A shop hears of an order from two services that know nothing of each other. The payment service decides whether the
money is good, the warehouse says when a parcel is ready. Their webhooks come in any order, some twice, some long after
newer ones, and the clocks of the two differ. Still each order is to be sent once, as soon as it can be.

So whichever webhook comes first makes the record, and only the order's number must be in it. The others fill in what
they know. Four rules make this safe:

* times are compared within one source only: a newer word of the warehouse replaces its older one, never the payment's;
* an older word still fills in what nobody has said yet;
* a decision once made is kept: what was refused stays refused, whatever comes later;
* when all that is needed is there, one output says so, and only once.

``Arrival()`` is the order of such messages: none of them is ever held back for another. It needs ``id=``, by which a
webhook that comes twice is known.

Run it with ``python examples/phantom_record.py``. It prints:

    order 1: paid 30, parcel P-7, sent
    order 2: paid None, parcel P-8, refused
    order 3: paid None, parcel P-9, open
    output: Dispatch(order_id='1', amount=30, parcel='P-7')
    duplicates: 2
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from inturn import Arrival, Pipeline


@dataclass(frozen=True)
class Webhook:
    """What a service says of an order. Only its own id and the order's must be there.

    ``at`` is the time by the service's clock, ``offset`` the place in the log of all that came in.
    """

    id: str
    order_id: str
    source: str | None = None
    at: datetime | None = None
    approved: bool | None = None
    amount: int | None = None
    parcel: str | None = None
    offset: int = 0


@dataclass(frozen=True)
class Dispatch:
    """The output: this order can be sent."""

    order_id: str
    amount: int
    parcel: str


@dataclass(frozen=True)
class Record:
    """What is known of an order.

    Attributes:
        heard: for each field that was said: by which source, and when by that source's own clock.
        approved: the decision; None until there is one.
        amount: what was paid.
        parcel: the parcel's number.
        sent: whether the output has been emitted.
    """

    heard: tuple[tuple[str, str | None, datetime | None], ...] = ()
    approved: bool | None = None
    amount: int | None = None
    parcel: str | None = None
    sent: bool = False


def older(record: Record, field: str, message: Webhook) -> bool:
    """Whether the same source has said something newer about the field; another source's clock says nothing."""
    return any(
        name == field and source == message.source and at is not None and (message.at is None or message.at < at)
        for name, source, at in record.heard
    )


def fill_in(record: Record, message: Webhook) -> Record:
    """Take over what the message says and no newer message of its source has said already."""
    for field in ("approved", "amount", "parcel"):
        value = getattr(message, field)
        decided = field == "approved" and record.approved is not None
        if value is None or decided or older(record, field, message):
            continue
        others = tuple(each for each in record.heard if each[:2] != (field, message.source))
        heard = (*others, (field, message.source, message.at))
        record = replace(record, heard=heard, **{field: value})
    return record


def assemble(record: Record, message: Webhook) -> tuple[Record, list[Dispatch]]:
    """Fill in what the message says; emit the one output when the last missing part is there."""
    record = fill_in(record, message)
    if record.sent or not record.approved or record.amount is None or record.parcel is None:
        return record, []
    return replace(record, sent=True), [Dispatch(message.order_id, record.amount, record.parcel)]


orders = Pipeline(
    name="orders",
    group="order_id",
    order=Arrival(),
    id="id",
    arrival="offset",
    message=Webhook,
    state=Record,
    handler=assemble,
)


def main() -> None:
    """Three orders, as their webhooks happened to come in."""
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    behind = noon - timedelta(days=365)  # the warehouse's clock: a year behind, and it does not matter
    minute = timedelta(minutes=1)
    ready = Webhook("w2", "1", "warehouse", behind + 2 * minute, parcel="P-7")
    webhooks = [
        ready,  # the first to come makes the record
        Webhook("w1", "1", "warehouse", behind + minute, parcel="P-6"),  # older than the one before: it comes too late
        Webhook("p1", "1", "payments", noon, approved=True),
        ready,  # once more
        Webhook("p2", "1", "payments", noon - minute, amount=30),  # older too, but nobody has said it yet
        ready,
        Webhook("p3", "2", "payments", noon, approved=False),
        Webhook("p4", "2", "payments", noon + minute, approved=True),  # a decision once made is kept
        Webhook("w3", "2", "warehouse", behind, parcel="P-8"),
        Webhook("x1", "3"),  # nothing but the number
        Webhook("w4", "3", "warehouse", behind, parcel="P-9"),
    ]
    result = orders.replay(replace(webhook, offset=offset) for offset, webhook in enumerate(webhooks))
    for order_id, record in sorted(result.states.items()):
        status = "sent" if record.sent else "refused" if record.approved is False else "open"
        print(f"order {order_id}: paid {record.amount}, parcel {record.parcel}, {status}")
    for output in result.outputs:
        print("output:", output.output)
    print("duplicates:", result.counts.duplicate)


if __name__ == "__main__":
    main()
