"""Messages of one time in a worker: one order, whatever the store, the turns, and the parts in which they are read."""

import dataclasses
import datetime as dt
import random
from decimal import Decimal
from typing import Any

import pytest
from shop import Row, Shop

from inturn import Pipeline, Timestamp
from inturn.core import limits


def take(state: Row, message: Row) -> tuple[Row, list[Any]]:
    return {"taken": [*state.get("taken", []), message["number"]]}, []


def tied(**more: Any) -> Pipeline:
    return Pipeline(name="ledger", group="g", order=Timestamp("at", "1 hour"), id="id", handler=take, **more)


def message(number: int, **more: Any) -> Row:
    time = f"2026-05-01T12:00:00.00000{number % 2}5{number % 3}"
    return {"g": "a", "at": time, "id": f"{number * 7919 % 101}", "number": number, **more}


LAST = {"g": "a", "at": "2026-05-01T14:00:00", "id": "last", "number": -1, "came": 10**6}


@pytest.mark.parametrize("arrival", [None, "came"])
def test_messages_with_equal_times_are_applied_in_arrival_order(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, arrival: str | None
) -> None:
    """Of a held thousand only some are read at a time, and no part of them ends with a time."""
    monkeypatch.setattr(limits, "HELD_AT_ONCE", 3)
    chance, numbers = random.Random(3), range(40)
    sent = [message(number, came=chance.random()) for number in numbers]
    pipeline = tied(arrival=arrival)
    for begin in range(0, 40, 10):
        shop.send(sent[begin : begin + 10], "g")
        shop.work(pipeline)
    shop.send([LAST], "g")
    shop.work(pipeline)
    arrived = [
        content["number"] for content in (sorted(sent, key=lambda content: content["came"]) if arrival else sent)
    ]
    state, held = shop.seen_lines(pipeline)["a"]
    assert state["taken"] == sorted(arrived, key=lambda number: (number % 2, number % 3))
    assert held == 1


@pytest.mark.parametrize(
    "kind",
    [
        (dt.datetime, ["2026-05-01T12:00:00Z", "2026-05-01T12:00:00.5Z", "2026-05-01T14:00:01+02:00"]),
        (Decimal, ["9.5", "10", "10.5"]),
        (dt.timedelta, ["PT9S", "PT10S", "PT1M"]),
    ],
    ids=lambda kind: kind[0].__name__,
)
def test_the_arrival_of_a_typed_message_is_compared_by_value(shop: Shop, kind: Any) -> None:
    """Not by its text in JSON; and a time that is a decimal keeps its nanoseconds."""
    message_type = dataclasses.make_dataclass("Made", [("g", str), ("at", Decimal), ("id", str), ("came", kind[0])])
    pipeline = Pipeline(
        name="ledger",
        group="g",
        order=Timestamp("at", "1 hour", unit="s"),
        id="id",
        arrival="came",
        message=message_type,
        handler=lambda state, message: ({"ids": [*state.get("ids", []), message.id]}, []),
    )
    sent = [
        {"g": "a", "at": "1700000000.123456789", "id": str(9 - n), "came": arrival} for n, arrival in enumerate(kind[1])
    ]
    sent += [{**sent[2], "at": "1700000000.1234561", "id": "first"}, {**sent[2], "at": "1700009999", "id": "last"}]
    shop.send([*sent[-2::-1], sent[-1]], "g")
    shop.work(pipeline)
    assert shop.seen_lines(pipeline)["a"] == ({"ids": ["first", "9", "8", "7"]}, 1)


def test_the_first_message_of_equal_time_is_listed_first_in_a_parked_group(shop: Shop) -> None:
    def refuse(state: Row, message: Row) -> tuple[Row, list[Any]]:
        raise ValueError(message["number"])

    pipeline = Pipeline(name="ledger", group="g", order=Timestamp("at", "1 hour"), id="id", handler=refuse)
    shop.send([{**message(0), "id": ident} for ident in ("10", "9", "b", "a")] + [LAST], "g")
    shop.work(pipeline)
    held = shop.ask(lambda store, number: store.held(number, "a"))
    heads = shop.ask(lambda store, number: store.heads(number, ["a"]))
    assert [record.id for record in held] == ["10", "9", "b", "a", "last"]
    assert heads == {"a": held[0]}
