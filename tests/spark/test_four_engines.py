"""One history with every kind of disorder, one answer: the pure timeline, the worker, the batch and the stream."""

import datetime as dt
import enum
import os
import random
import runpy
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession

from inturn import Arrival, Gapless, Monotone, MonotoneFields, Pipeline, Retry, Timestamp, Wait
from inturn.core.errors import InputError, Retryable
from inturn.spark import batch
from inturn.testing import Comparison, Different, EngineResult, compare, disorder, same, spark_engines

ALL = ("replay", "worker", "batch", "stream")
NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
Row = dict[str, Any]


def post(state: Row, message: Row) -> tuple[Row, list[Any]]:
    """Changes the state in place, and only then looks whether it can."""
    state["balance"] = (state.get("balance", 0) * 31 + message["amount"]) % 10_007
    if message["amount"] == 13:
        raise KeyError(message["revision"])
    if message["amount"] == 14:
        raise Retryable
    return state, [{"balance": state["balance"], "of": [message.get("id"), message.get("note")]}] * (
        message["amount"] % 3
    )


def ledger(order: Any, **more: Any) -> Pipeline:
    ids = {"id": "id"} if isinstance(order, Arrival | Timestamp) else {}
    return Pipeline(name="ledger", group="account", order=order, handler=post, retry=Retry(1, "1 hour"), **ids, **more)


def history(seed: int, epochs: int = 1, **more: Any) -> list[Row]:
    """Two of the accounts have a message each that the handler does not take."""
    chance = random.Random(seed)
    clean = [
        {
            "account": f"acct-{account}",
            "revision": revision,
            "source": {
                "lsn": f"{revision // 8:0{1 + revision % 3}X}:{revision // 2:x}",
                "serial": None if revision % 2 == 0 else str(9 + revision % 2),
            },
            "epoch": epoch,
            "id": f"{account}-{epoch}-{revision}",
            "at": NOON + dt.timedelta(seconds=30 * epoch + revision),
            "amount": 8 + account if account > 4 and revision == 12 else chance.randrange(0, 999, 5),
        }
        | ({"note": "odd"} if revision % 2 else {})
        for epoch in range(epochs)
        for revision in range(1, 30)
        for account in range(7)
    ]
    delivered = disorder(clean, seed=seed, lost=0.02, contradict=lambda message: {**message, "amount": 1}, **more)
    return [*delivered, {**clean[0], "account": None}, {**clean[1], "id": None, "revision": None, "source": None}]


CASES = {
    "gapless": (ledger(Gapless("revision")), history(1)),
    "gapless, one epoch after the other": (ledger(Gapless("revision", epoch="epoch")), history(2, epochs=2)),
    "skips": (ledger(Gapless("revision"), on_gap=Wait("1 second", then="skip")), history(3)),
    "parks": (ledger(Gapless("revision", epoch="epoch"), on_gap=Wait("1 day", then="park")), history(4, epochs=2)),
    "monotone": (ledger(Monotone("revision", epoch="epoch")), history(5, epochs=2)),
    "fields": (ledger(MonotoneFields(("source.lsn", "source.serial"), epoch="epoch")), history(8, epochs=2)),
    "timestamp": (ledger(Timestamp("at", lateness="9 seconds"), arrival="n"), history(6, arrival="n")),
    "arrival": (ledger(Arrival()), history(7)),
}


IN_CI = {"gapless, one epoch after the other", "skips", "parks"}  # tens of seconds each


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.slow if case in IN_CI else ()) for case in CASES]
)
def test_all_four_engines_agree_on_every_kind_of_disorder(spark: SparkSession, case: str) -> None:
    pipeline, delivered = CASES[case]
    result = same(pipeline, delivered, engines=ALL, seed=len(case), spark=spark)
    assert result.outputs
    assert "failed" in result.statuses.values()
    assert {"KeyError", "Retryable"} <= set(result.errors.values()), result.errors
    assert result.holding() > 5
    assert {"invalid", "conflict"} <= result.counts.rejected.keys(), result.counts
    assert any(skipped for *_, skipped in result.places.values()) == (case == "skips")
    assert ("gap" in result.statuses.values()) == (case == "parks")


@pytest.mark.parametrize("arrival", ["n", None])
def test_all_four_engines_order_messages_of_equal_time_alike(spark: SparkSession, arrival: str | None) -> None:
    """Half of the ids are numbers, and the times differ in their nanoseconds."""
    chance = random.Random(8)
    messages = [
        {"account": f"acct-{account}", "id": ident, "at": f"2024-05-01T12:00:0{number % 2}.0000001{finer}", "n": 0}
        | {"amount": number + account * 100, "revision": number}
        for account in range(6)
        for number, (ident, finer) in enumerate((chance.choice(["", "x"]) + str(n), n % 3) for n in range(7, 40))
    ]
    chance.shuffle(messages)
    last = [{**message, "id": "z", "at": "2024-05-01T14:00:00"} for message in messages[:40]]
    pipeline = ledger(Timestamp("at", lateness="1 hour"), **({"arrival": arrival} if arrival else {}))
    delivered = [
        {**message, "n": n}
        for n, message in enumerate([*messages, *{message["account"]: message for message in last}.values()])
    ]
    result = same(pipeline, delivered, engines=ALL, spark=spark)
    assert result.counts.applied > 150
    assert not result.counts.rejected


PHANTOM = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "phantom_record.py"))


def test_all_four_engines_agree_on_a_phantom_record_handler(spark: SparkSession) -> None:
    chance, webhook = random.Random(1), PHANTOM["Webhook"]
    clean = [
        webhook(
            f"{order}-{number}",
            str(order),
            chance.choice(["payments", "warehouse", None]),
            chance.choice([NOON + dt.timedelta(minutes=chance.randrange(60)), None]),
            chance.choice([None, True, True, False]),
            chance.choice([None, 30]),
            chance.choice([None, "P-7"]),
        )
        for number in range(6)
        for order in range(20)
    ]
    result = same(PHANTOM["orders"], disorder(clean, seed=1, arrival="offset"), engines=ALL, spark=spark)
    assert {len(outputs) for outputs in result.outputs.values()} == {1}
    assert 3 < len(result.outputs) < 20


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Item(msgspec.Struct, frozen=True):
    sku: str
    number: int


@dataclass(frozen=True)
class Order:
    customer: int
    number: int
    at: dt.datetime
    day: dt.date
    price: Decimal
    raw: bytes
    colour: Colour
    uid: uuid.UUID
    items: list[Item]
    tags: dict[str, int]
    item: Item | None = None
    ratio: float | None = None


@dataclass
class Customer:
    at: dt.datetime | None = None
    spent: Decimal = Decimal(0)
    colours: list[Colour] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    tags: dict[str, int] = field(default_factory=dict)
    last: Order | None = None


def take(customer: Customer, order: Order) -> tuple[Customer, list[Any]]:
    colours = [*customer.colours, order.colour]
    tags = {**customer.tags, **order.tags}
    after = Customer(order.at, customer.spent + order.price, colours, order.items, tags, order)
    return after, [
        order,
        {"colours": {colour.value for colour in colours}, "spent": after.spent, "took": order.at - NOON},
    ]


def test_all_four_engines_agree_on_types_without_a_json_form(spark: SparkSession) -> None:
    """A state, a message and an output are the same values, and the same text, wherever they have been."""
    chance, berlin = random.Random(2), dt.timezone(dt.timedelta(hours=2))
    clean = [
        Order(
            customer=customer,
            number=number,
            at=(NOON + dt.timedelta(microseconds=chance.randrange(10**9))).astimezone(berlin),
            day=dt.date(2024, 2, 1 + number),
            price=Decimal(chance.randrange(10_000)) / 100,
            raw=bytes([number]),
            colour=chance.choice(list(Colour)),
            uid=uuid.UUID(int=chance.getrandbits(128)),
            items=[Item(f"s{index}", index) for index in range(number % 3)],
            tags={f"k{number % 4}": number},
            item=Item("x", number) if number % 2 else None,
            ratio=number / 7 if number % 3 else None,
        )
        for number in range(1, 15)
        for customer in range(5)
    ]
    pipeline = Pipeline(
        name="orders", group="customer", order=Gapless("number"), message=Order, state=Customer, handler=take
    )
    delivered = disorder(clean, seed=2, contradict=lambda message: replace(message, raw=b"other"))
    result = same(pipeline, delivered, engines=ALL, seed=1, spark=spark)
    assert result.states["3"]["last"]["number"] == 14
    assert "conflict" in result.counts.rejected


# -- a wrong answer is found -----------------------------------------------------------------------------------

CLEAN = [{"account": f"acct-{a}", "revision": n, "amount": 5 * n} for n in range(1, 12) for a in range(4)]


def found(pipeline: Pipeline, messages: Sequence[Row], spark: SparkSession, engine: str) -> Comparison:
    return compare(pipeline, messages, engines=[engine], spark=spark)


def test_a_process_dependent_handler_is_detected_by_the_batch_engine(spark: SparkSession) -> None:
    pipeline = replace(ledger(Gapless("revision")), handler=lambda state, message: ({"pid": os.getpid()}, []))
    with pytest.raises(Different, match=r"group 'acct-0' has different states: replay has {'pid': \d+}, batch has {'p"):
        same(pipeline, CLEAN, engines=["batch"], spark=spark)


def test_a_message_lost_by_a_batch_is_detected(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def lossy(pipeline: Pipeline, df: DataFrame, **more: Any) -> Any:
        return batch(pipeline, df.where("account != 'acct-2' OR revision != 5"), **more)

    monkeypatch.setattr(spark_engines, "batch", lossy)
    differences = list(map(str, found(ledger(Gapless("revision")), CLEAN, spark, "batch").differences))
    assert {words[:15] for words in differences if words.startswith("group")} == {"group 'acct-2' "}
    assert "batch: 43 of 44 messages were counted as received" in differences


def test_a_batch_that_ignores_the_arrival_order_is_detected(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the column that says when messages came does decide; without it the same messages come to something else."""
    pipeline, delivered = ledger(Monotone("revision")), disorder(CLEAN, seed=3, displaced=1)
    comparison = found(pipeline, delivered, spark, "batch")
    assert comparison.differences == []
    (note,) = comparison.notes
    assert note.startswith("without arrival= a batch applies these messages in its own order, and 4 groups")
    assert note.endswith("then, such as 'acct-0'; name the column with the order of arrival: Pipeline(arrival=…)")
    monkeypatch.setattr(spark_engines.SparkEngines, "_depends_on_arrival", False)
    assert not found(pipeline, delivered, spark, "batch").agrees("batch")


def test_a_stream_that_reads_everything_again_is_detected(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_engines, "_forget_last", shutil.rmtree)
    differences = found(ledger(Gapless("revision")), CLEAN, spark, "stream").differences
    assert [str(difference) for difference in differences] == ["stream: 88 of 44 messages were counted as received"]


def test_an_engine_that_cannot_read_the_messages_reports_why(spark: SparkSession) -> None:
    """The pure timeline takes any value for an id; a batch wants a column of names."""
    pipeline, delivered = (
        ledger(Timestamp("revision")),
        [{**message, "id": index + 0.5} for index, message in enumerate(CLEAN)],
    )
    (difference,) = found(pipeline, delivered, spark, "batch").differences
    assert str(difference).startswith("batch: InputError: the column 'id' is double; expected string")
    with pytest.raises(InputError, match="the values of the field 'amount' have no common type"):
        found(ledger(Gapless("revision")), [CLEAN[0], {**CLEAN[1], "amount": "5"}], spark, "batch")


def test_no_messages_give_an_empty_result_and_keep_the_spark_session(spark: SparkSession) -> None:
    assert same(ledger(Gapless("revision")), [], engines=ALL) == EngineResult(seconds=pytest.approx(0, abs=60))
    assert spark.range(1).count() == 1, "it was not stopped"


def test_an_object_that_is_not_a_message_is_refused_like_in_the_replay(spark: SparkSession) -> None:
    with pytest.raises(InputError, match="a message of pipeline 'ledger' is 'text'; expected a dict"):
        same(ledger(Gapless("revision")), ["text"], engines=ALL, spark=spark)
