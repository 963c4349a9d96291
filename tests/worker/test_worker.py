"""The worker makes of a queue what the replay makes of the same messages, whatever the order in which they come."""

import datetime as dt
import enum
import random
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shop import Row, Shop, expected, ledger, post, row, stepwise

from hostile import RAISED
from inturn import Arrival, Gapless, Monotone, Pipeline, Timestamp
from inturn.core import limits
from inturn.core.errors import HandlerError, InputError, InvalidMessage, NoSuchQueue, StoreMismatch
from inturn.core.pipeline.order import Order
from inturn.queue import Queue, draft
from inturn.telemetry import log_payloads
from inturn.worker import Worker, work


def test_a_worker_applies_messages_in_order_and_gives_outputs_effect_ids(shop: Shop) -> None:
    pipeline = ledger()
    messages = [row(revision, revision, account) for revision in range(1, 6) for account in "abc"]
    shop.send(messages)
    worker = shop.work(pipeline)
    assert shop.seen(pipeline) == expected(pipeline.replay(messages))
    assert worker.counts == shop.counts() == pipeline.replay(messages).counts
    assert shop.queue.depth().messages == 0


@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_arrival_has_the_same_result(shop: Shop, seed: int) -> None:
    pipeline, chance = ledger(), random.Random(seed)
    messages = [row(revision, revision, account) for revision in range(1, 9) for account in "abc"]
    messages += chance.choices(messages, k=10)
    chance.shuffle(messages)
    for cut in range(0, len(messages), 7):
        shop.send(messages[cut : cut + 7])
        shop.work(pipeline)
    assert shop.seen(pipeline) == expected(pipeline.replay(messages))
    counts = shop.counts()
    assert counts.balanced
    assert (counts.received, counts.applied, counts.duplicate) == (34, 24, 10)


ORDERS = [
    Gapless("revision"),
    Gapless("revision", epoch="epoch"),
    Monotone("revision"),
    Monotone("revision", epoch="epoch"),
    Arrival(),
    Timestamp("revision", lateness=dt.timedelta(microseconds=2)),
]
ROWS = st.lists(
    st.builds(
        row,
        st.integers(1, 7),
        st.sampled_from([1, 1, 1, 2, -1]),
        st.sampled_from("ab"),
        id=st.sampled_from(["1", "2", "3", "4", "5"]),
        epoch=st.sampled_from([0, 0, 0, 1]),
    ),
    max_size=14,
)


@pytest.mark.parametrize("order", ORDERS, ids=str)
@given(parts=st.lists(ROWS, min_size=1, max_size=3))
@settings(max_examples=25)
@pytest.mark.thorough
def test_every_order_grade_decides_like_the_pure_timeline(order: Order, parts: list[list[Row]]) -> None:
    ids = {"id": "id"} if isinstance(order, Arrival | Timestamp) else {}
    messages = [message for part in parts for message in part]
    if isinstance(order, Timestamp):  # messages of one time are applied as they came to the queue, which numbers them
        ids["arrival"] = "came"
        messages = [{**message, "came": number} for number, message in enumerate(messages)]
    pipeline = ledger(order, **ids)
    with Shop("memory") as shop:
        for part in parts:
            shop.send(part)
            shop.work(pipeline)
        every = stepwise(pipeline, messages)
        assert shop.seen(pipeline) == expected(every)
        counts = shop.counts()
        assert counts.balanced
        assert len(every.held) == counts.held - counts.released
        assert (counts.applied, counts.duplicate, counts.stale, counts.rejected) == (
            every.counts.applied,
            every.counts.duplicate,
            every.counts.stale,
            every.counts.rejected,
        )


# -- what a message is -----------------------------------------------------------------------------------------


def test_absent_fields_are_filled_from_the_envelope(shop: Shop) -> None:
    pipeline = ledger(id="tx", arrival="offset", handler=lambda state, message: (state, [message]))
    shop.queue.send({"amount": 5}, group="a", revision=1, dedup_id="tx-1")
    sent = shop.queue.send({"amount": 6, "revision": None}, group="a", revision=2)
    shop.queue.send('{"amount": 7, "account": "a", "revision": 3, "tx": "tx-3"}')  # text, as SQS clients send it
    shop.work(pipeline)
    first, second, third = shop.outputs("a")
    assert {**first, "offset": 0} == {"amount": 5, "account": "a", "revision": 1, "tx": "tx-1", "offset": 0}
    assert second == {"amount": 6, "account": "a", "revision": 2, "offset": sent.sequence_number}
    assert third["tx"] == "tx-3"


@pytest.mark.parametrize(
    ("body", "envelope", "why"),
    [
        ({"account": "b", "amount": 1}, {"group": "a", "revision": 1}, "account is 'b' in the body but 'a' in the"),
        ({"revision": 2, "amount": 1}, {"group": "a", "revision": 1}, "revision is 2 in the body but 1 in the"),
        ({"tx": "2", "amount": 1}, {"group": "a", "revision": 1, "dedup_id": "1"}, "tx is '2' in the body but '1'"),
        ({"amount": 1}, {"group": "a"}, "revision is null"),
        ({"amount": 1}, {"revision": 1}, "account is null"),
        ({"account": 1.5, "revision": 1}, {}, "expected str, int, date or UUID"),
        ({"revision": "1"}, {"group": "a"}, "revision is '1' of type str; expected a 64-bit integer"),
        ({"revision": 0}, {"group": "a"}, "revision is 0, below the start 1"),
        ("hello", {"group": "a", "revision": 1}, "the body is text, not JSON"),
        (b"\xff", {"group": "a", "revision": 1}, "the body is bytes, not JSON"),
        ([1], {"group": "a", "revision": 1}, "the body is a JSON list; expected an object"),
    ],
)
def test_a_message_without_a_valid_group_or_order_is_rejected_as_invalid(
    shop: Shop, body: Any, envelope: Row, why: str
) -> None:
    pipeline = ledger(id="tx")
    shop.send([row(1, account="z")])
    shop.queue.send(body, **envelope)
    shop.send([row(2, account="z")])
    shop.work(pipeline)
    ((_, rejected),) = shop.ask(lambda store, number: store.rejections(number, 0, 10))
    assert (rejected.reason, why in rejected.detail) == ("invalid", True), rejected.detail
    assert shop.seen(pipeline)["states"]["z"]["balance"] == 2
    assert (shop.counts().rejected, shop.counts().balanced) == ({"invalid": 1}, True)


@pytest.mark.parametrize("group", ["a", None])
def test_on_invalid_fail_ends_the_worker_at_an_invalid_message(shop: Shop, group: str | None) -> None:
    pipeline = ledger(on_invalid="fail")
    shop.queue.send({"amount": 1}, group=group)
    with pytest.raises(InvalidMessage, match="is null"):
        shop.work(pipeline)
    assert shop.queue.depth().messages == 1


@dataclass
class Account:
    balance: int = 0
    since: dt.date | None = None
    seen: list[str] = field(default_factory=list)


class Transaction(msgspec.Struct, rename="camel"):
    account_id: int
    revision: int
    on_day: dt.date
    amount: int = 1


@dataclass
class Posted:
    day: dt.date
    balance: int


def typed(state: Account, message: Transaction) -> tuple[Account, list[Posted]]:
    state.balance += message.amount
    state.since = state.since or message.on_day
    return state, [Posted(message.on_day, state.balance)]


def test_typed_messages_and_states_are_converted_by_the_worker(shop: Shop) -> None:
    pipeline = Pipeline(
        name="ledger",
        group="account_id",
        order=Gapless("revision"),
        message=Transaction,
        state=Account,
        handler=typed,
    )
    bodies: list[Row] = [{"revision": n, "on_day": f"2024-01-0{n}", "amount": n, "more": 1} for n in (1, 3, 2)]
    shop.queue.send_many([draft(body, group=7) for body in bodies])
    shop.queue.send({"revision": 4, "on_day": "someday"}, group=7)
    shop.work(pipeline)
    messages = [Transaction(7, n, dt.date(2024, 1, n), n) for n in (1, 2, 3)]
    seen, replay = shop.seen(pipeline), expected(pipeline.replay(messages))
    assert seen["states"] == replay["states"] == {"7": Account(6, dt.date(2024, 1, 1))}
    assert seen["outputs"] == replay["outputs"]
    assert seen["rejected"] == [("7", "invalid")]


def test_a_datetime_in_a_dict_message_is_text_in_the_queue(shop: Shop) -> None:
    pipeline = ledger(
        Timestamp("at", lateness="1 minute"), handler=lambda state, m: ({"at": str(m["at"])}, []), id="id"
    )
    noon = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
    for minutes, number in ((0, "1"), (5, "2")):
        shop.queue.send({"at": noon + dt.timedelta(minutes=minutes), "id": number}, group="a")
    shop.queue.send({"at": "noon", "id": "3"}, group="a")
    shop.work(pipeline)
    seen = shop.seen_lines(pipeline)
    assert seen == {"a": ({"at": "2024-01-01 12:00:00+00:00"}, 1)}
    assert shop.counts().rejected == {"invalid": 1}


# -- what ends the worker --------------------------------------------------------------------------------------


def test_an_invalid_handler_result_ends_the_worker_and_commits_nothing(shop: Shop) -> None:
    shop.send([row(1)])
    with pytest.raises(HandlerError, match=r"must take \(state, message\) and return"):
        shop.work(ledger(handler=lambda state, message: state))
    assert shop.queue.depth() == shop.queue.depth()._replace(messages=1, in_flight=0)
    pipeline = ledger()
    shop.work(pipeline)
    assert shop.seen(pipeline) == expected(pipeline.replay([row(1)]))


def sometimes_wrong(state: Row, message: Row) -> Any:
    """A handler with a branch that returns nothing."""
    return None if message["amount"] < 0 else post(state, message)


@pytest.mark.parametrize("concurrency", [1, 8])
def test_an_invalid_result_parks_only_its_group_if_the_handler_applies_another_message(
    shop: Shop, concurrency: int
) -> None:
    """Also if the wrong one is the first of all."""
    pipeline = ledger(handler=sometimes_wrong)
    bad = [f"bad {number}" for number in range(5)]
    messages = [row(revision, revision - 2, account) for account in bad for revision in (1, 2)]
    messages.append(row(1, account="good"))
    shop.send(messages)
    shop.work(pipeline, concurrency=concurrency)
    assert shop.seen(pipeline) == expected(pipeline.replay(messages))
    assert shop.seen(pipeline)["status"] == {**dict.fromkeys(bad, "failed"), "good": "open"}


def test_a_handler_that_succeeded_before_a_restart_parks_only_the_failing_group(shop: Shop) -> None:
    pipeline = ledger(handler=sometimes_wrong)
    shop.send([row(1)])
    shop.work(pipeline)
    shop.send([row(1, -1, "bad")])
    shop.work(pipeline)
    assert shop.seen(pipeline)["status"] == {"a": "open", "bad": "failed"}
    shop.send([row(2)])
    with pytest.raises(HandlerError, match="got None"):  # another handler, which was never right
        shop.work(ledger(handler=lambda state, message: None))
    shop.work(pipeline)
    assert shop.seen(pipeline)["states"]["a"]["balance"] == 2


@pytest.mark.parametrize("groups", [3, 100])
def test_a_handler_with_only_invalid_results_ends_the_worker_and_commits_nothing(shop: Shop, groups: int) -> None:
    calls = []

    def handler(state: Row, message: Row) -> None:
        calls.append(message)

    messages = [row(revision, account=f"{number}") for number in range(groups) for revision in (1, 2)]
    shop.send(messages)
    with pytest.raises(HandlerError, match="got None"):
        shop.work(ledger(handler=handler), concurrency=1)
    assert len({call["account"] for call in calls}) <= limits.WORKER_DOUBTFUL
    assert shop.queue.depth() == shop.queue.depth()._replace(messages=len(messages), in_flight=0)
    assert shop.seen(ledger())["states"] == {}


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


def test_an_output_with_a_set_of_enum_members_does_not_park_its_group(shop: Shop) -> None:
    pipeline = ledger(handler=lambda state, message: (state, [{"colours": set([*Colour][: message["amount"]])}]))
    shop.send([row(1, 1), row(2, 2)])
    shop.work(pipeline)
    assert shop.outputs("a") == [{"colours": ["red"]}, {"colours": ["blue", "red"]}]


@pytest.mark.parametrize("raised", RAISED)
@pytest.mark.parametrize("shows", [False, True])
def test_any_exception_type_of_a_handler_parks_only_its_group(shop: Shop, raised: str, shows: bool) -> None:
    def handler(state: Row, message: Row) -> Any:
        if message["amount"] < 0:
            raise RAISED[raised]()
        return post(state, message)

    pipeline = ledger(handler=handler)
    messages = [row(1, -1, "bad"), row(1, account="good")]
    shop.send(messages)
    log_payloads(shows)
    try:
        shop.work(pipeline)
    finally:
        log_payloads(False)
    assert shop.seen(pipeline)["status"] == {"bad": "failed", "good": "open"}


@pytest.mark.parametrize(
    "wrong",
    [object(), float("nan"), {1}, {1: 2}, b"x", 2**63],
    ids=lambda value: type(value).__name__ if type(value) is object else repr(value),
)
def test_a_state_that_cannot_be_stored_and_read_back_parks_its_group(shop: Shop, wrong: Any) -> None:
    pipeline = ledger(handler=lambda state, message: ({"it": wrong if message["amount"] == 2 else (1, 2)}, []))
    rows = [row(1), row(2, 2), row(3), row(1, account="b")]
    shop.send(rows)
    shop.work(pipeline)
    seen = shop.seen(pipeline)
    assert seen == expected(pipeline.replay(rows))
    assert seen["states"] == {"a": {"it": [1, 2]}, "b": {"it": [1, 2]}}
    assert seen["status"] == {"a": "failed", "b": "open"}
    assert "ValueRefused: " in seen["errors"]["a"][0]


def test_another_pipeline_of_the_same_name_is_refused(shop: Shop) -> None:
    Worker(ledger(), shop.queue)
    with pytest.raises(StoreMismatch, match="has a pipeline 'ledger' with order"):
        Worker(ledger(Monotone("revision")), shop.queue)


def test_invalid_arguments_of_work_are_refused(shop: Shop) -> None:
    with pytest.raises(NoSuchQueue):
        work(ledger(), Queue(shop.writer, "nothing"))
    with pytest.raises(InputError, match="concurrency is 0"):
        work(ledger(), shop.queue, concurrency=0)
    for grace_s in (-1, float("nan"), "5", True):
        with pytest.raises(InputError, match=f"grace_s is {grace_s!r}; expected a number of seconds"):
            Worker(ledger(), shop.queue, grace_s=grace_s)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="until is 'done'"):
        work(ledger(), shop.queue, until="done")  # type: ignore[arg-type]


def test_work_returns_when_the_queue_is_empty(shop: Shop) -> None:
    shop.send([row(2), row(1), row(1)])
    counts = work(ledger(handler=post), shop.queue, until="empty")
    assert (counts.received, counts.applied, counts.duplicate, counts.balanced) == (3, 2, 1, True)
