"""Histories of webhooks from the field: which order and which handler is right for a sender, and which loses news.

W1 to W11 with the senders' own sequences where they are known. Each is taken in the order of arrival, in one step and
in steps of one message, as a worker may come to see them.
"""

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import inturn
from inturn.core.errors import PipelineError
from inturn.core.pipeline.order import Order
from inturn.core.pipeline.replay import Replay

Handler = Callable[[Any, Any], tuple[Any, list[Any]]]
T0 = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)


def at(seconds: float) -> dt.datetime:
    return T0 + dt.timedelta(seconds=seconds)


def last_wins(state: dict[str, Any], message: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    return {**state, "status": message["status"]}, []


def replayed(
    messages: Sequence[dict[str, Any]], order: Order, handler: Handler = last_wins, *, steps: bool = False, **more: Any
) -> Replay:
    identity = {"ignore": ("id",)} if order.has_revisions else {"id": "id"}
    pipeline = inturn.Pipeline(name="w", group="g", order=order, handler=handler, arrival="n", **identity)  # type: ignore[arg-type]
    rows = [{"g": "sub_7", "id": str(n)} | message | {"n": n} for n, message in enumerate(messages, 1)]
    if not steps:
        return pipeline.replay(rows, **more)
    replay = None
    for row in rows[:-1]:
        replay = pipeline.replay([row], after=replay)
    return pipeline.replay(rows[-1:], after=replay, **more)


def status(replay: Replay) -> str:
    (state,) = replay.states.values()
    return str(state["status"])


# --- W1 to W3: created and updated, in any order ---

U = {"id": "evt_B", "type": "updated", "created": at(1), "status": "active"}
C = {"id": "evt_A", "type": "created", "created": at(0), "status": "incomplete"}


def commuting(state: dict[str, Any], message: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """`created` sets the status only if none is set, `updated` only if it is not older than the last one."""
    if message["type"] == "created":
        return {"status": message["status"], "since": None} | state, []
    since, now = state.get("since"), message["created"].isoformat()
    if since is not None and now < since:
        return state, []
    return {"status": message["status"], "since": now}, []


def test_w1_an_update_before_its_creation_is_ordered_by_timestamp() -> None:
    wrong = replayed([U, C], inturn.Arrival())
    assert (status(wrong), wrong.counts.applied) == ("incomplete", 2)  # the last one wins, and is the older
    late = inturn.Timestamp("created", lateness="5 seconds")
    right = replayed([U, C], late, final=True)
    assert (status(right), right.counts.applied) == ("active", 2)
    assert replayed([U, C], late).counts.held == 2  # until something newer comes
    for steps in (False, True):
        strict = replayed([U, C], inturn.Timestamp("created", lateness="0 seconds"), final=True, steps=steps)
        assert (status(strict), strict.counts.rejected) == ("active", {"late": 1})
    numbered = [{**event, "created": number} for event, number in ((U, 1), (C, 0), (U, 1))]
    newest = replayed(numbered, inturn.Monotone("created"))
    assert (status(newest), newest.counts.applied, newest.counts.stale, newest.counts.duplicate) == ("active", 1, 1, 1)


@pytest.mark.parametrize("messages", [(U, C), (C, U), (U, C, U), (C, U, C)])
@pytest.mark.parametrize("same_second", [False, True])
@pytest.mark.parametrize("steps", [False, True])
def test_w1_w2_a_commutative_handler_gives_the_right_state_in_any_order(
    messages: Sequence[dict[str, Any]], same_second: bool, steps: bool
) -> None:
    when = {"created": at(0)} if same_second else {}
    assert (
        status(replayed([message | when for message in messages], inturn.Arrival(), commuting, steps=steps)) == "active"
    )


def test_w2_two_events_of_one_second_keep_their_arrival_order() -> None:
    """Stripe's `created` has whole seconds: no order by it tells these two apart, so that they stay as they came."""
    created = {"type": "created", "created": 5, "status": "incomplete", "id": "evt_1PJVXNBzH5DDPixH6s1mtfkF"}
    updated = {"type": "updated", "created": 5, "status": "active", "id": "evt_1PJVXNBzH5DDPixHId5cNSFm"}
    replay = replayed([created, updated], inturn.Monotone("created"))
    assert (status(replay), replay.counts.rejected) == ("incomplete", {"conflict": 1})
    times = [event | {"created": at(5)} for event in (updated, created)]
    order = inturn.Timestamp("created", lateness="5 seconds")
    assert status(replayed(times, order, final=True)) == "incomplete"
    assert status(replayed(times[::-1], order, final=True)) == "active"


def test_w4_a_handler_by_rank_never_reverts_an_invoice_status() -> None:
    ranks = {"draft": 1, "open": 2, "paid": 3}
    news = ["draft", "open", "open", "paid", "open", "paid", "open"]  # ends with invoice.finalized, though paid
    events = [{"status": value, "rank": ranks[value], "id": f"evt_{n}"} for n, value in enumerate(news)]

    def forward(state: dict[str, Any], message: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
        return (state if state.get("rank", 0) > message["rank"] else {**state, **message}), []

    assert status(replayed(events, inturn.Arrival())) == "open"
    assert status(replayed(events, inturn.Arrival(), forward)) == "paid"


@pytest.mark.parametrize("first", ["invoice", "session"])
def test_w5_a_handler_joins_two_objects_in_any_order(first: str) -> None:
    """The payment comes before the session that knows the user: whatever comes is kept until both are there."""

    def both(state: dict[str, Any], message: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
        state = state | {message["type"]: message["value"]}
        return state, [state] if state.keys() == {"invoice", "session"} else []

    events = [{"type": "invoice", "value": "paid"}, {"type": "session", "value": "user-1"}]
    replay = replayed(events if first == "invoice" else events[::-1], inturn.Arrival(), both, steps=True)
    assert [output.output for output in replay.outputs] == [{"invoice": "paid", "session": "user-1"}]


def test_w6_events_are_ordered_by_microsecond_timestamps() -> None:
    arrivals = [(1.5, "updated", "completed"), (1.6, "completed", "completed"), (0.0, "updated", "paid")]
    events = [{"at": at(s), "status": value, "type": kind} for s, kind, value in arrivals]
    assert status(replayed(events, inturn.Arrival())) == "paid"  # falls back
    right = replayed(events, inturn.Timestamp("at", lateness="5 seconds"), final=True, steps=True)
    assert (status(right), right.counts.applied) == ("completed", 3)
    strict = replayed(events, inturn.Timestamp("at", lateness="0 seconds"), final=True, steps=True)
    assert (status(strict), strict.counts.rejected) == ("completed", {"late": 1})


def test_w7_wrong_timestamps_need_a_commutative_handler() -> None:
    arrivals = [(19.482003, "active"), (19.604839, "updated"), (19.839710, "created")]
    events = [
        {"at": at(s), "status": "created" if kind == "created" else "active", "type": kind} for s, kind in arrivals
    ]
    assert status(replayed(events, inturn.Timestamp("at", lateness="5 seconds"), final=True)) == "created"
    rows = [event | {"created": event["at"]} for event in events]
    assert status(replayed(rows, inturn.Arrival(), commuting)) == "active"


RANKS = {"queued": 1, "in_progress": 2, "completed": 3}


@pytest.mark.parametrize(
    ("came", "stale"),
    [
        (("queued", "completed", "in_progress"), 1),
        (("completed", "in_progress", "queued"), 2),
        (("in_progress", "queued", "completed"), 1),
    ],
)
@pytest.mark.parametrize("steps", [False, True])
def test_w8_status_ranks_order_events_monotonically(came: Sequence[str], stale: int, steps: bool) -> None:
    events = [{"status": value, "rank": RANKS[value], "run_attempt": 1} for value in came]
    replay = replayed(events, inturn.Monotone("rank", epoch="run_attempt"), steps=steps)
    assert (status(replay), replay.counts.stale if not steps else stale) == ("completed", stale)
    retry = {"status": "queued", "rank": 1, "run_attempt": 2}
    assert status(replayed([*events, retry], inturn.Monotone("rank", epoch="run_attempt"), steps=steps)) == "queued"
    all_of_them = replayed(events, inturn.Gapless("rank"), steps=steps)
    assert status(all_of_them) == "completed"
    skipped = replayed([events[0], events[1]], inturn.Gapless("rank"))
    assert skipped.counts.held > 0 or came[:2] == ("in_progress", "queued")  # a job that is skipped waits for ever


def test_w9_gapless_versions_from_zero_need_start_0() -> None:
    events = [{"v": value, "status": str(value)} for value in (1, 0, 2, 1)]
    assert replayed(events, inturn.Gapless("v")).counts.rejected == {"invalid": 1}
    replay = replayed(events, inturn.Gapless("v", start=0))
    assert (status(replay), replay.counts.applied, replay.counts.duplicate) == ("2", 3, 1)


def test_w10_a_reordered_and_repeated_retry_is_applied_once_in_order() -> None:
    events = [{"rev": revision, "status": str(revision)} for revision in (2, 1, 1)]
    replay = replayed(events, inturn.Gapless("rev"), steps=True)
    assert (status(replay), replay.counts.duplicate) == ("2", 1)


def test_w11_two_events_of_one_change_need_the_previous_values() -> None:
    def welcome(state: dict[str, Any], message: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
        return state, ["welcome back"] if "status" in message["previous"] else []

    def naive(state: dict[str, Any], _message: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
        return state, ["welcome back"]

    card = {"id": "evt_1NUkqzzI", "created": 100, "previous": {"default_payment_method": None}}
    back = {"id": "evt_1NUkqyha", "created": 99, "previous": {"status": "canceled"}}
    events = [card, back, back]
    replay = replayed(events, inturn.Arrival(), naive)
    assert (len(replay.outputs), replay.counts.duplicate) == (2, 1)  # ids alone do not help
    assert len(replayed(events, inturn.Arrival(), welcome).outputs) == 1
    none = replayed(events, inturn.Monotone("created"), welcome)
    assert (len(none.outputs), none.counts.stale) == (0, 2)  # each event has a part of the news


def test_w11_a_redelivery_is_counted_once_by_its_id() -> None:
    def credit(state: dict[str, Any], message: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
        return {"credits": state.get("credits", 0) + message["credits"]}, []

    events = [{"id": "evt_paid", "credits": 10}] * 2
    replay = replayed(events, inturn.Arrival(), credit)
    assert (replay.states["sub_7"], replay.counts.duplicate) == ({"credits": 10}, 1)
    with pytest.raises(PipelineError):
        inturn.Pipeline(name="w", group="g", order=inturn.Arrival(), handler=credit)
