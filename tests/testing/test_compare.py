"""The differential test finds what it is for: a wrong engine, books that do not balance, a handler that is not pure."""

import datetime as dt
import os
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from inturn import Arrival, Gapless, Monotone, Pipeline, Retry, Timestamp, Wait
from inturn.core import limits
from inturn.core.errors import HandlerError, InputError, PipelineError, Retryable, StoreError
from inturn.core.pipeline.journal import Counts
from inturn.testing import Different, EngineResult, NotDeterministic, compare, disorder, same
from inturn.testing.outcome import differences
from inturn.worker import codec, group_task

Row = dict[str, Any]


def post(state: Row, message: Row) -> tuple[Row, list[Any]]:
    state["balance"] = state.get("balance", 0) * 3 + message["amount"]
    if message["amount"] < 0:
        msg = "below zero"
        raise ValueError(msg)
    return state, [state["balance"]]


def pipeline(order: Any = None, handler: Any = post, **more: Any) -> Pipeline:
    return Pipeline(name="p", group="account", order=order or Gapless("revision"), handler=handler, **more)


CLEAN = [{"account": a, "revision": n, "amount": n} for n in range(1, 40) for a in "abc"]
BAD = disorder(CLEAN, seed=1, lost=0.02, contradict=lambda message: {**message, "amount": 7})

# -- what engines differ in ------------------------------------------------------------------------------------

WHOLE = EngineResult(
    states={"a": {"n": 1, "m": 2}},
    outputs={"a": {"e1": 5, "e2": 6}},
    statuses={"a": "waiting"},
    places={"a": (0, 3, ())},
    held={"a": [(0, 5, "", "d5")]},
    rejected={"a": {"conflict": 2, "late": 1}},
    counts=Counts(received=9, applied=3, duplicate=2, held=1, rejected={"conflict": 2, "late": 1}),
)


def told(**other: Any) -> list[str]:
    return [str(difference) for difference in differences("replay", WHOLE, "batch", replace(WHOLE, **other))]


def test_equal_results_have_no_differences() -> None:
    assert told() == []
    stale = Counts(received=9, applied=3, duplicate=1, stale=1, held=1, rejected={"conflict": 2, "late": 1})
    assert told(counts=stale) == []


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (
            {"states": {"a": {"n": 1, "m": 3}}},
            "group 'a' has different states: replay has {'m': 2}, batch has {'m': 3}",
        ),
        ({"states": {}}, "group 'a' has different states: replay has {'n': 1, 'm': 2}, batch has no value"),
        (
            {"outputs": {"a": {"e1": 5, "e3": 6}}},
            "group 'a' has different outputs: replay has {'e2': 6}, batch has {'e3': 6}",
        ),
        (
            {"outputs": {}},
            "group 'a' has different outputs: replay has {'e1': 5} and 1 more, batch has no value",
        ),
        ({"statuses": {"a": "open"}}, "group 'a' has different statuses: replay has 'waiting', batch has 'open'"),
        ({"places": {"a": (0, 4, ())}}, "group 'a' has different places: replay has (0, 3, ()), batch has (0, 4, ())"),
        (
            {"errors": {"a": "KeyError"}},
            "group 'a' has different errors: replay has no value, batch has 'KeyError'",
        ),
        (
            {"held": {"a": [(0, 5, "", "d6")]}},
            "group 'a' has different held: replay has [(0, 5, '', 'd5')], batch has [(0, 5, '', 'd6')]",
        ),
    ],
)
def test_each_kind_of_difference_is_reported(other: dict[str, Any], words: str) -> None:
    assert told(**other) == [words]


def test_inconsistent_counts_of_an_engine_are_reported() -> None:
    lost = Counts(received=8, applied=3, duplicate=2, held=1, rejected={"conflict": 2})
    assert told(counts=lost) == [
        "batch: 8 of 9 messages were counted as received",
        "batch: {'conflict': 2} messages were counted as rejected, but {'conflict': 2, 'late': 1} are stored",
    ]
    assert told(counts=replace(WHOLE.counts, applied=4))[0].startswith("batch: the counts do not balance: Counts(")
    assert told(broken=["the counts of step 2 do not balance"]) == ["batch: the counts of step 2 do not balance"]
    held = replace(WHOLE.counts, held=3, released=1, applied=2)
    assert told(counts=held) == [
        "batch: 3 messages were counted as held and 1 as released, but 1 are held at the end",
        "batch: 2 messages were applied, but 3 in replay",
    ]


def test_a_conflict_beyond_the_remembered_revisions_may_be_counted_as_stale() -> None:
    """Where the history is cut decides what is remembered; but not more than lie so far back, and nothing else."""
    counts = replace(WHOLE.counts, stale=1, rejected={"conflict": 1, "late": 1})
    other = replace(WHOLE, rejected={"a": {"conflict": 1, "late": 1}}, counts=counts)
    assert "different rejected" in next(map(str, differences("replay", WHOLE, "batch", other)))
    assert list(differences("replay", replace(WHOLE, forgotten={"a": 1}), "batch", other)) == []


def test_remembered_revisions_limits_the_tolerance_for_stale_conflicts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REMEMBERED_REVISIONS", 4)
    clean = [{"account": "a", "revision": n, "amount": n} for n in range(1, 21)]
    comparison = compare(pipeline(), [*clean, clean[1] | {"amount": 9}, clean[18] | {"amount": 9}], engines=["worker"])
    assert comparison.results["replay"].forgotten == {"a": 1}
    assert comparison.differences == []


def test_different_effect_ids_of_an_engine_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    original = group_task.OutputRecord
    monkeypatch.setattr(group_task, "OutputRecord", lambda *row: original(*row)._replace(effect_id=f"other {row[-2]}"))
    with pytest.raises(
        Different, match=r"group 'a' has different outputs: replay has .* worker has .*'other [0-9a-f]+'"
    ):
        same(pipeline(), BAD)


def test_a_state_lost_by_an_engine_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    encode = codec.WorkerStateCodec.encode
    monkeypatch.setattr(codec.WorkerStateCodec, "encode", lambda self, state: encode(self, {**state, "balance": 0}))
    with pytest.raises(Different, match=r"group 'a' has different states: replay has .*, worker has {'balance': 0}"):
        same(pipeline(), BAD)


def test_an_engine_error_is_reported_as_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> EngineResult:
        msg = "the disk is full"
        raise StoreError(msg)

    monkeypatch.setattr(sys.modules["inturn.testing.compare"], "run_worker", full)
    comparison = compare(pipeline(), CLEAN, engines=["worker"])
    assert [difference.other for difference in comparison.differences] == ["worker"]
    assert str(comparison.differences[0]) == "worker: StoreError: the disk is full"
    assert not comparison.agrees("worker")


# -- handlers that are not pure --------------------------------------------------------------------------------

_seen: set[int] = set()
_calls: list[int] = []


def counts_calls(state: Row, message: Row) -> tuple[Row, list[Any]]:
    _calls.append(1)
    return state, [len(_calls)]


def remembers(state: Row, message: Row) -> tuple[Row, list[Any]]:
    """Drops copies by itself, in a place of its own."""
    if message["revision"] in _seen:
        return state, []
    _seen.add(message["revision"])
    return {"n": state.get("n", 0) + 1}, []


def raises_at_times(state: Row, message: Row) -> tuple[Row, list[Any]]:
    _calls.append(1)
    if len(_calls) % 7 == 0:
        raise KeyError(message["revision"])
    return state, []


HANDLERS: dict[str, Callable[[Row, Row], Any]] = {
    "chance": lambda state, message: ({"dice": random.random()}, []),
    "clock": lambda state, message: (state, [time.perf_counter_ns()]),
    "counter": counts_calls,
    "memory": remembers,
    "errors": raises_at_times,
}


@pytest.mark.parametrize("kind", HANDLERS)
def test_a_nondeterministic_handler_is_reported_with_the_message(kind: str) -> None:
    words = (
        r"the handler of pipeline 'p' is not deterministic: after the message {.*'revision': .*} of group '[abc]' one "
    )
    with pytest.raises(NotDeterministic, match=words):
        same(pipeline(handler=HANDLERS[kind]), BAD)


def test_a_handler_that_changes_the_message_is_reported_as_not_pure() -> None:
    def pops(state: Row, message: Row) -> tuple[Row, list[Any]]:
        return {"n": message.pop("amount")}, []

    with pytest.raises(NotDeterministic, match=r"is not pure: .* it has changed the message to {'account': 'a', "):
        same(pipeline(handler=pops), CLEAN)


def test_a_process_dependent_handler_passes_within_one_process() -> None:
    """Run twice it does the same; only an engine in another process shows it, see the tests on Spark."""
    same(pipeline(handler=lambda state, message: (state, [os.getpid()])), BAD)


def test_an_invalid_handler_signature_or_result_is_reported() -> None:
    with pytest.raises(PipelineError, match="cannot take two arguments"):
        pipeline(handler=lambda state: state)
    for handler in (lambda state, message: None, lambda state, message: (state, None)):
        with pytest.raises(HandlerError, match=r"the handler of pipeline 'p' must take \(state, message\)"):
            same(pipeline(handler=handler), CLEAN)
    with pytest.raises(InputError, match="has no canonical form"):
        same(pipeline(handler=lambda state, message: ({"o": object()}, [])), CLEAN)


def test_a_handler_may_change_the_state_in_place() -> None:
    assert same(pipeline(), BAD).states["a"]["balance"] > 0


# -- what the engines are fed ----------------------------------------------------------------------------------


def test_the_message_list_is_the_arrival_order() -> None:
    orders = [Monotone("revision"), Gapless("revision")]
    messages = [{"account": "a", "revision": n, "amount": n} for n in (2, 1, 3)]
    applied = [same(pipeline(order), messages).counts.applied for order in orders]
    assert applied == [2, 3], "in order of revision, Monotone would apply all three"


def test_messages_are_sorted_by_the_arrival_field_if_every_message_has_one() -> None:
    messages = [
        {"account": "a", "revision": n, "amount": n, "offset": offset} for n, offset in ((2, 7), (1, 3), (3, 9))
    ]
    definition = pipeline(Monotone("revision"), arrival="offset")
    assert same(definition, messages).counts.applied == 3
    unsaid = [{**message, "offset": None} for message in messages]
    assert same(definition, unsaid).counts.applied == 2, "none says: the list decides"
    partly = [messages[0], {**messages[1], "offset": None}, messages[2]]
    assert same(definition, partly).counts.applied == 3, (
        "it came with the one before it, and is before it by its revision"
    )
    with pytest.raises(InputError, match=r"the messages cannot be sorted by their field 'offset': '<' not supported"):
        same(definition, [messages[0], {**messages[1], "offset": "late"}])


@dataclass(frozen=True)
class Reading:
    device: str
    at: dt.datetime
    id: str
    offset: int = 0


def test_typed_records_without_arrival_values_keep_the_list_order() -> None:
    noon = dt.datetime(2024, 5, 1, 14, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    definition = Pipeline(
        name="r",
        group="device",
        order=Arrival(),
        id="id",
        arrival="offset",
        message=Reading,
        handler=lambda state, reading: ({"last": reading.id, "at": reading.at.isoformat()}, [reading.offset]),
    )
    result = same(definition, [Reading("a", noon, name) for name in "zyx"])
    assert result.states == {"a": {"last": "x", "at": "2024-05-01T12:00:00+00:00"}}, "times are in UTC"
    assert sorted(result.outputs["a"].values()) == [0, 1, 2]


def test_messages_without_group_or_revision_are_rejected_by_every_engine() -> None:
    messages: list[Any] = [*CLEAN, {"account": None, "revision": 1, "amount": 1}, {"account": "a", "amount": 1}, {}]
    assert same(pipeline(), messages).rejected == {"": {"invalid": 2}, "a": {"invalid": 1}}


@pytest.mark.parametrize("then", ["park", "skip", "fail"])
@pytest.mark.parametrize("timeout", ["0 seconds", "1 millisecond", "10 minutes"])
@pytest.mark.slow
def test_the_test_clock_advances_only_between_message_parts(then: Any, timeout: str) -> None:
    """Whatever the time is, and however long the engines take."""
    statuses = set()
    for seed in range(4):
        result = same(pipeline(on_gap=Wait(timeout, then=then)), BAD, seed=seed)
        statuses |= set(result.statuses.values())
    assert ("gap" in statuses, "waiting" in statuses) == (then == "park", then == "fail")


def test_handler_retries_do_not_pause_in_the_differential_test() -> None:
    def busy(state: Row, message: Row) -> tuple[Row, list[Any]]:
        if message["revision"] == 3:
            raise Retryable
        return state, []

    definition = pipeline(handler=busy, retry=Retry(5, "1 hour"))
    assert same(definition, CLEAN).errors == dict.fromkeys("abc", "Retryable")


def test_late_and_held_messages_agree_with_the_pure_timeline() -> None:
    noon = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
    messages = [
        {"account": "a", "id": str(n), "at": noon + dt.timedelta(seconds=n), "amount": n} for n in (5, 1, 30, 2, 29, 60)
    ]
    result = same(pipeline(Timestamp("at", lateness="10 seconds"), id="id"), messages)
    assert (result.rejected, result.holding()) == ({"a": {"late": 1}}, 1)


def test_no_messages_give_no_states() -> None:
    assert same(pipeline(), []).states == {}
