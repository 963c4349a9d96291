"""The differential test that users get: it passes where engines agree, and names what differs where they do not."""

import datetime as dt
import random
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from shop import Row, ledger, post, row

import inturn
from inturn import Arrival, Gapless, Monotone, MonotoneFields, Pipeline, Timestamp
from inturn.core.errors import InputError
from inturn.core.pipeline.order import Order
from inturn.results.inspection import DatabaseInspector
from inturn.testing import Different, same

ORDERS = [
    Gapless("revision"),
    Gapless("revision", start="first"),
    Monotone("revision", epoch="epoch"),
    MonotoneFields(("revision",), epoch="epoch"),
    Arrival(),
    Timestamp("revision"),
]


def history(seed: int) -> list[Row]:
    """Every kind of disorder: shuffled, repeated, contradicted, failing, with holes."""
    chance = random.Random(seed)
    messages = [
        row(revision, chance.choice([1, 2, 2, -1] if revision > 20 else [1, 2]), account, id=f"{account}{revision}")
        | {"epoch": chance.choice([0, 0, 1])}
        for account in "abcdef"
        for revision in range(1, 30)
        if chance.random() > 0.02
    ]
    messages += [message | {"amount": 9} for message in chance.sample(messages, 5)] + chance.sample(messages, 20)
    return sorted(messages, key=lambda message: message["revision"] + chance.uniform(0, 8))


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.thorough
def test_same_passes_for_late_duplicated_and_conflicting_messages(order: Order, seed: int) -> None:
    ids = {"id": "id"} if isinstance(order, Arrival | Timestamp) else {}
    story = same(ledger(order, **ids), history(seed), seed=seed)
    assert "failed" in story.statuses.values()
    assert story.outputs


@dataclass
class Paid:
    account: int
    revision: int
    day: dt.date
    amount: float


@dataclass
class Account:
    last: dt.date | None = None
    balance: float = 0


def pay(state: Account, message: Paid) -> tuple[Account, list[Any]]:
    return Account(message.day, state.balance + message.amount), [message]


def test_same_passes_for_typed_messages_and_states() -> None:
    pipeline = Pipeline(name="p", group="account", order=Gapless("revision"), message=Paid, state=Account, handler=pay)
    messages = [Paid(7, n, dt.date(2024, 1, n), n / 3) for n in (2, 1, 3)]
    assert same(pipeline, messages).states == {"7": {"last": "2024-01-03", "balance": 2.0}}


@dataclass(frozen=True)
class Noted:
    account: str
    revision: int
    note: str = "none"
    marks: tuple[int, ...] = ()


class NotedStruct(msgspec.Struct, frozen=True):
    account: str
    revision: int
    note: str = "none"
    marks: tuple[int, ...] = ()


@pytest.mark.parametrize("kind", [Noted, NotedStruct])
def test_an_absent_field_has_its_default_in_an_output_of_the_message(kind: type) -> None:
    pipeline = Pipeline(
        name="p",
        group="account",
        order=Gapless("revision"),
        message=kind,
        handler=lambda state, noted: (state, [noted]),
    )
    story = same(pipeline, [{"account": "a", "revision": 1}])
    assert list(story.outputs["a"].values()) == [{"account": "a", "revision": 1, "note": "none", "marks": []}]


@dataclass
class Spent:
    at: dt.datetime
    amount: Decimal
    names: set[str]
    day: dt.date


def test_an_output_is_stored_as_the_same_json_text_as_on_spark() -> None:
    spent = Spent(dt.datetime(2024, 1, 1, tzinfo=dt.UTC), Decimal("1.50"), {"b", "c", "a"}, dt.date(2024, 1, 1))
    with inturn.open(":memory:") as db:
        queue = db.queue("q")
        queue.send({"revision": 1}, group="a")
        inturn.work(ledger(handler=lambda state, message: (state, [spent, {"b": 1, "a": 2}])), queue, until="empty")
        with db.transaction() as tx:
            texts = [text for (text,) in tx.execute("select output from inturn_outputs order by number")]
    assert texts == [
        '{"at":"2024-01-01T00:00:00Z","amount":"1.50","names":["a","b","c"],"day":"2024-01-01"}',
        '{"a":2,"b":1}',
    ]


def test_an_output_that_is_not_json_parks_its_group() -> None:
    with inturn.open(":memory:") as db:
        queue = db.queue("q")
        queue.send({"revision": 1}, group="a")
        inturn.work(ledger(handler=lambda state, message: (state, [object()])), queue, until="empty")
        (parked,) = DatabaseInspector(db, "ledger").parked()
    assert "of type object: it is not JSON; use JSON values, a dataclass, a msgspec.Struct or a model" in (
        parked.error or ""
    )


def test_same_names_the_message_for_a_nondeterministic_handler() -> None:
    chance = random.Random(1)

    def dice(state: Row, message: Row) -> tuple[Row, list[Any]]:
        return ({"dice": chance.random()} if message["revision"] == 2 else state), []

    with pytest.raises(Different, match=r"not deterministic: after the message .*'revision': 2.* of group 'a' one run"):
        same(ledger(handler=dice), [row(1), row(2), row(3)])


def test_same_names_the_engine_and_group_whose_states_differ() -> None:
    def types(state: Row, message: Row) -> tuple[Row, list[Any]]:
        return {"type": type(message["day"]).__name__}, []

    with pytest.raises(Different, match=r"group 'a' has different states: replay has .*'date'.*, worker has .*'str'"):
        same(ledger(handler=types), [row(1, day=dt.date(2024, 1, 1))])
    with pytest.raises(InputError, match="expected one or several of replay, worker"):
        same(ledger(handler=post), [], engines=["flink"])
