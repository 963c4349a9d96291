"""A group may remember and hold any number of messages: a turn reads and writes what it moves, over every store."""

import datetime as dt
import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shop import Row, Shop, expected, ledger, row, stepwise

from inturn import Arrival, Gapless, Monotone, Timestamp, Wait
from inturn.core import limits
from inturn.core.pipeline.grades import RECORD
from inturn.core.pipeline.order import Order
from inturn.worker.codec import timeline_of

MANY = 1_200
TURN = 40
ORDERS = [
    Gapless("revision"),
    Gapless("revision", epoch="epoch"),
    Monotone("revision"),
    Arrival(),
    Timestamp("revision", lateness=dt.timedelta(microseconds=5)),
]
SERIOUS = pytest.mark.parametrize("shop", ["sqlite", "postgres"], indirect=True)
"""The memory store copies all that it has with each transaction."""


def count(state: Row, message: Row) -> tuple[Row, list[Any]]:
    return {"n": state.get("n", 0) + 1, "last": message["amount"]}, []


class Books:
    """Notes what turns read and write beside the line of their group."""

    def __init__(self, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
        self.turns: list[Any] = []
        self.read: list[int] = []
        pipelines = shop.store.pipelines
        keep = pipelines.save_updates

        def kept_too(info: Any, every: Any, *more: Any) -> Any:
            self.turns += every
            return keep(info, every, *more)

        monkeypatch.setattr(pipelines, "save_updates", kept_too)
        for name in ("held", "held_from", "held_longest", "marks"):
            monkeypatch.setattr(pipelines, name, self._reading(getattr(pipelines, name)))

    def _reading(self, ask: Any) -> Any:
        def asked(*arguments: Any) -> Any:
            rows = ask(*arguments)
            self.read.append(len(rows))
            return rows

        return asked


def parts(messages: list[Row]) -> Iterator[list[Row]]:
    for begin in range(0, len(messages), TURN):
        yield messages[begin : begin + TURN]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HELD_AT_ONCE", 2)
    monkeypatch.setattr(limits, "REMEMBERED_TOGETHER", 2)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("order", ORDERS, ids=str)
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(0, 40), max_size=6), bad=st.integers(0, 40))
@pytest.mark.thorough
def test_a_task_that_reads_part_of_its_group_decides_like_the_pure_timeline(
    order: Order, seed: int, cuts: list[int], bad: int
) -> None:
    chance = random.Random(seed)
    messages = [
        row(revision, -1 if revision == bad else 1, id=str(revision), epoch=int(revision > 25))
        for revision in range(1, 31)
    ]
    if chance.random() < 0.8:
        messages.sort(key=lambda message: message["revision"] + chance.randrange(chance.choice([1, 8, 40])))
    messages += chance.choices(messages, k=10)
    pipeline = ledger(order, **({"id": "id"} if isinstance(order, Arrival | Timestamp) else {}))
    bounds = [0, *sorted(cut for cut in cuts if cut < len(messages)), len(messages)]
    with Shop("memory") as shop:
        for begin, end in pairwise(bounds):
            shop.send(messages[begin:end])
            shop.work(pipeline)
            for stored in shop.ask(lambda store, number: store.list_groups(number, "", 9)):
                held = shop.ask(lambda store, number, group=stored.group: store.held(number, group))
                assert stored.oldest_us == min((record.since_us for record in held), default=None)
        assert shop.seen(pipeline) == expected(stepwise(pipeline, messages))
        assert shop.counts().balanced


@SERIOUS
def test_a_task_writes_only_the_new_ids_of_a_group(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline, books = ledger(Arrival(), count, id="id"), Books(shop, monkeypatch)
    messages = [row(0, number, id=f"id-{number}") for number in range(MANY)]
    for part in parts(messages):
        shop.send(part)
        shop.work(pipeline)
    longest = max(len(timeline_of(pipeline, update.record).memory) for update in books.turns)
    assert longest <= (limits.REMEMBERED_TOGETHER + TURN) * RECORD.size, "all that is remembered is written each turn"
    mark_count = sum(len(update.marks) for update in books.turns)
    assert MANY - limits.REMEMBERED_TOGETHER <= mark_count <= MANY, "each id is written beside the group once"
    (stored,) = shop.ask(lambda store, number: store.records(number, ["a"]))
    assert timeline_of(pipeline, stored).external_ids == mark_count
    assert sum(books.read) == 0, "no id was known"
    shop.send(messages)
    shop.send([{**messages[0], "amount": -7}, row(0, 5, id="new")])
    shop.work(pipeline)
    counts = shop.counts()
    assert (counts.applied, counts.duplicate, counts.rejected) == (MANY + 1, MANY, {"conflict": 1})
    assert shop.seen(pipeline)["states"] == {"a": {"n": MANY + 1, "last": 5}}


@SERIOUS
def test_ids_stored_inline_by_an_earlier_version_are_moved_to_their_own_rows(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the version before kept them."""
    pipeline = ledger(Arrival(), count, id="id")
    messages = [row(0, number, id=f"id-{number}") for number in range(300)]
    with monkeypatch.context() as patch:
        patch.setattr(limits, "REMEMBERED_TOGETHER", 10_000)
        shop.send(messages)
        shop.work(pipeline)
    for _ in range(2):
        shop.send([*messages, row(0, 0, id="new")])
        shop.work(pipeline)
    counts = shop.counts()
    assert (counts.applied, counts.duplicate) == (301, 601)


@SERIOUS
@pytest.mark.parametrize(
    "order", [Gapless("revision"), Timestamp("revision", lateness=dt.timedelta(microseconds=MANY // 2))], ids=str
)
def test_a_task_reads_only_the_held_messages_that_it_applies(
    shop: Shop, order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the gapless group the first half comes last, in order; the other holds what is within the lateness."""
    monkeypatch.setattr(limits, "HELD_AT_ONCE", 10)
    books = Books(shop, monkeypatch)
    ids = {"id": "id"} if isinstance(order, Timestamp) else {"on_gap": Wait("10 minutes")}
    pipeline = ledger(order, count, **ids)
    half = MANY // 2
    late = [*range(half + 2, MANY + 1), *range(1, half + 1)]
    revisions = late if isinstance(order, Gapless) else list(range(1, MANY + 1))
    messages = [row(revision, revision, id=str(revision)) for revision in revisions]
    for part in parts(messages):
        books.read.clear()
        update_count = len(books.turns)
        shop.send(part)
        shop.work(pipeline)
        update_count = len(books.turns) - update_count
        assert sum(books.read) <= 8 * TURN + 20 * update_count, "all that is held was read"
    assert sum(len(update.held) + len(update.removed) for update in books.turns) <= 2 * MANY
    if isinstance(order, Gapless):
        shop.send([row(half + 1, half + 1)])
        shop.work(pipeline)
    assert shop.seen(pipeline) == expected(pipeline.replay([*messages, row(half + 1, half + 1, id="x")][:MANY]))
