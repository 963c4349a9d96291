"""A definition that cannot work is refused at once, in words that name the value, what was expected and the mend."""

import datetime as dt
import re
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from reference import arrive, keep, pipeline

from inturn import Arrival, Gapless, Monotone, MonotoneFields, Pipeline, Retry, Timestamp, Wait
from inturn.core import limits
from inturn.core.errors import InputError, InvalidMessage, PipelineError

NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)


@dataclass
class Event:
    g: str | None
    r: int | None
    v: Any
    i: str | None = None


class EventStruct(msgspec.Struct):
    g: str
    r: int
    v: str = "default"


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "name is empty": ({"name": ""}, r"Pipeline\(name=''\); expected a text of 1 to 200 characters"),
    "name is no text": ({"name": 7}, r"Pipeline\(name=7\); expected a text"),
    "name is long": ({"name": "n" * (limits.NAME_LENGTH + 1)}, "expected a text of 1 to 200 characters"),
    "handler": ({"handler": "apply"}, r"Pipeline\(handler='apply'\); expected a function handler\(state, message\)"),
    "state": ({"state": {}}, r"Pipeline\(state=\{\}\); expected a type or function that returns the first state"),
    "on_invalid": ({"on_invalid": "drop"}, r"Pipeline\(on_invalid='drop'\); expected 'reject' or 'fail'"),
    "group is empty": ({"group": ""}, "the group field is ''; expected the name of a field"),
    "group is none": ({"group": None}, "the group field is None; expected the name of a field"),
    "id is no text": ({"id": 3}, "the id field is 3; expected the name of a field"),
    "id is empty": ({"id": ""}, "the id field is ''; expected the name of a field"),
    "arrival is no text": ({"arrival": True}, "the arrival field is True; expected the name of a field"),
    "epoch is no text": ({"order": Gapless("r", epoch=2)}, "the epoch field is 2; expected the name of a field"),  # type: ignore[arg-type]
    "turn is empty": ({"order": Monotone("")}, "the field of the order is ''; expected the name of a field"),
    "turn is two": ({"order": Monotone(("r", "q"))}, r"for several fields use MonotoneFields\(\('r', 'q'\)\)"),  # type: ignore[arg-type]
    "no fields": (
        {"order": MonotoneFields()},
        r"MonotoneFields\(fields=\(\)\); expected the names of fields, each once",
    ),
    "fields are text": ({"order": MonotoneFields("r")}, r"MonotoneFields\(fields='r'\); expected the names of fields"),  # type: ignore[arg-type]
    "a field twice": ({"order": MonotoneFields(("r", "r"))}, "expected the names of fields, each once"),
    "id beside fields": (
        {"order": MonotoneFields(("r",)), "id": "i"},
        "with MonotoneFields the position is .* id; leave id out",
    ),
    "a field is ignored": ({"order": MonotoneFields(("r", "q")), "ignore": ["q"]}, "'q' places messages"),
    "turn is none": (
        {"order": Timestamp(None), "id": "i"},
        "the field of the order is None; expected the name of a field",
    ),  # type: ignore[arg-type]
    "start is no number": ({"order": Gapless("r", start="1")}, r"Gapless\(start='1'\); expected a whole number"),  # type: ignore[arg-type]
    "start is a truth": ({"order": Gapless("r", start=True)}, r"Gapless\(start=True\); expected a whole number"),
    "lateness": (
        {"order": Timestamp("t", "soon"), "id": "i"},
        r"Timestamp\(lateness=…\) is 'soon'; expected a text such as",
    ),
    "gap without revisions": (
        {"order": Monotone("r"), "on_gap": Wait()},
        "needs an order that detects gaps; Monotone does not detect them: leave on_gap out, or use Gapless if",
    ),
    "gap in time": ({"order": Timestamp("t"), "id": "i", "on_gap": Wait("1 day")}, "Timestamp does not detect them"),
    "gap in arrival": ({"order": Arrival(), "id": "i", "on_gap": Wait()}, "Arrival does not detect them"),
    "no id with times": ({"order": Timestamp("t")}, r"Timestamp does not identify messages; .*, Pipeline\(id=…\)"),
    "no id with arrival": ({"order": Arrival()}, r"Arrival does not identify messages; .*, Pipeline\(id=…\)"),
    "group is the arrival": ({"arrival": "g"}, r"'g' places messages, so it cannot be named in arrival="),
    "revision is ignored": ({"ignore": ["x", "r"]}, r"'r' places messages, .* arrival= or ignore="),
    "epoch is ignored": ({"order": Gapless("r", epoch="e"), "ignore": ("e",)}, "'e' places messages"),
    "id is the arrival": ({"order": Arrival(), "id": "i", "arrival": "i"}, "'i' places messages"),
    "ignore is a number": ({"ignore": [3]}, r"Pipeline\(ignore=\[3\]\); expected the names of fields"),
    "ignore is nothing": ({"ignore": None}, r"Pipeline\(ignore=None\); expected the names of fields"),
    "order is text": (
        {"order": "r"},
        r"Pipeline\(order='r'\); expected Gapless, Monotone, MonotoneFields, Timestamp or Arrival",
    ),
    "order is a type": (
        {"order": Arrival, "id": "i"},
        "expected Gapless, Monotone, MonotoneFields, Timestamp or Arrival",
    ),
    "on_gap is a time": (
        {"on_gap": "1 day"},
        r"Pipeline\(on_gap='1 day'\); expected Wait\(…\), such as Wait\('10 minutes'",
    ),
    "retry is a number": (
        {"retry": 3},
        r"Pipeline\(retry=3\); expected Retry\(…\), such as Retry\(3, backoff='1 second'\)",
    ),
    "message is a dict": (
        {"message": dict},
        r"Pipeline\(message=<class 'dict'>\); expected a dataclass, a msgspec.Struct",
    ),
    "group is no field": (
        {"message": Event, "group": "account"},
        "Event has no field 'account'; existing fields: g, r, v, i",
    ),
    "revision is no field": (
        {"message": EventStruct, "order": Gapless("n")},
        "EventStruct has no field 'n'; existing fields: g, r, v",
    ),
    "id is no field": ({"message": EventStruct, "id": "i"}, "EventStruct has no field 'i'; existing fields: g, r, v"),
}


def define(**options: Any) -> Pipeline:
    return Pipeline(**{"name": "p", "group": "g", "order": Gapless("r"), "handler": keep, **options})


@pytest.mark.parametrize(("given", "text"), REFUSED.values(), ids=REFUSED)
def test_a_contradictory_pipeline_is_refused(given: dict[str, Any], text: str) -> None:
    with pytest.raises(PipelineError, match=text):
        define(**given)


def test_valid_pipeline_definitions_are_accepted() -> None:
    define(name="n" * limits.NAME_LENGTH, on_gap=Wait("1 hour", then="skip"), retry=Retry(3), on_invalid="fail")
    define(order=Gapless("r", start=-5, epoch="e"), message=None, ignore="seen", arrival="o")
    define(order=Monotone("r", epoch="e"), state=lambda: None)
    define(order=Timestamp("t", dt.timedelta(0)), id="i")
    define(order=Arrival(), id="i", message=Event, arrival="o")


def test_a_pipeline_is_immutable() -> None:
    pipe = define()
    with pytest.raises(AttributeError):
        pipe.name = "other"  # type: ignore[misc]


def test_pipeline_properties_used_by_runners() -> None:
    pipe = define()
    assert (pipe.key_fields, pipe.position, pipe.epoch, pipe.fields) == (("g", "r"), "r", None, None)
    assert (pipe.gap_policy, pipe.wait_us) == (Wait(), None)
    assert define(on_gap=Wait("1 second")).wait_us == 1_000_000
    epochs = define(order=Monotone("r", epoch="e"), id="i", arrival="o", ignore="seen")
    assert epochs.key_fields == ("g", "e", "r")
    assert [epochs.in_content(name) for name in ("g", "r", "e", "i", "o", "seen")] == [True] * 4 + [False] * 2
    arrival = define(order=Arrival(), id="i", message=Event)
    assert (arrival.key_fields, arrival.position, arrival.fields) == (("g", "i"), None, ("g", "r", "v", "i"))


# -- what is offered -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message", "why"),
    [
        (pipeline(), {"g": None, "r": 1}, "g is null"),
        (pipeline(), {"g": "a", "r": None}, "r is null"),
        (pipeline(Gapless("r", epoch="e")), {"g": "a", "r": 1, "e": None}, "e is null"),
        (pipeline(Gapless("r", start=5)), {"g": "a", "r": 4}, "r is 4, below the start 5"),
        (pipeline(Monotone("r")), {"g": "a", "r": None}, "r is null"),
        (pipeline(Timestamp("t")), {"g": "a", "t": None, "i": "x"}, "t is null"),
        (pipeline(Timestamp("t")), {"g": "a", "t": NOON, "i": None}, "i is null"),
        (pipeline(Arrival()), {"g": "a", "i": None}, "i is null"),
    ],
)
def test_a_message_without_a_key_field_is_rejected_or_stops_the_run(
    line: Pipeline, message: dict[str, Any], why: str
) -> None:
    result = line.replay([{"v": 1, "o": 0, **message}])
    assert result.counts.balanced
    assert (result.counts.received, result.counts.rejected, result.states) == (1, {"invalid": 1}, {})
    [rejected] = result.rejected
    assert (rejected.reason, rejected.detail) == ("invalid", why)
    assert rejected.message == {"v": 1, "o": 0, **message}
    strict = pipeline(line.order, on_invalid="fail")
    with pytest.raises(InvalidMessage, match=rf"{why}: \{{"):
        strict.replay([{"v": 1, "o": 0, **message}])


def test_an_invalid_message_does_not_block_other_messages() -> None:
    result = pipeline().replay(arrive([{"r": 1, "v": 1}, {"r": None, "v": 0}, {"r": 2, "v": 2}]))
    assert (result.states, result.counts.rejected) == ({"a": [1, 2]}, {"invalid": 1})


@pytest.mark.parametrize(
    ("order", "missing"), [(Gapless("r"), "g"), (Gapless("r"), "r"), (Gapless("r", epoch="e"), "e"), (Arrival(), "i")]
)
def test_a_missing_field_is_invalid_like_a_null_field(order: Any, missing: str) -> None:
    message = {name: 1 for name in "greivo" if name != missing}
    rejected = pipeline(order).replay([message, {**message, missing: None}]).rejected
    assert [(rejection.reason, rejection.detail) for rejection in rejected] == [("invalid", f"{missing} is null")] * 2


@pytest.mark.parametrize(("line", "expected"), [(pipeline(), "a dict"), (pipeline(message=Event), "a Event or a dict")])
@pytest.mark.parametrize("given", ["text", 5, None, EventStruct("a", 1)], ids=repr)
def test_a_value_that_is_not_a_message_stops_the_run(line: Pipeline, expected: str, given: Any) -> None:
    with pytest.raises(InputError, match=f"a message of pipeline 'p' is .*; expected {expected}"):
        line.replay([given])


def test_a_message_with_an_invalid_group_is_rejected_without_a_group() -> None:
    result = pipeline().replay([{"g": 1.5, "r": 1, "v": 1}, {"g": "a", "r": 1, "v": 1}])
    (rejected,) = result.rejected
    assert (rejected.group, rejected.reason) == (None, "invalid")
    assert rejected.detail == "invalid group 1.5 (float): expected str, int, date or UUID; cast it to text"
    assert result.states == {"a": [1]}


@pytest.mark.parametrize("type_", [Event, EventStruct])
def test_a_dict_is_converted_to_the_message_type_without_unknown_fields(type_: type) -> None:
    seen: list[Any] = []

    def handler(state: list[Any], message: Any) -> Any:
        seen.append(message)
        return state, []

    pipe = pipeline(message=type_, handler=handler)
    result = pipe.replay([{"g": "a", "r": 1, "v": "x", "o": 3, "kafka_offset": 5}, type_("a", 1, "x")])
    assert seen == [type_("a", 1, "x")]
    assert result.counts.duplicate == 1


def test_the_arrival_field_may_be_missing_from_the_message_type() -> None:
    pipe = pipeline(Arrival(), message=Event, handler=lambda state, message: ([*state, message.v], []))
    messages = [{"g": "a", "r": 0, "v": number, "i": str(number), "o": -number} for number in range(3)]
    assert pipe.replay(messages).states == {"a": [2, 1, 0]}


def test_a_field_with_a_default_may_be_absent() -> None:
    pipe = pipeline(message=EventStruct, handler=lambda state, message: ([*state, message.v], []))
    result = pipe.replay([{"g": "a", "r": 1}, {"g": "a", "r": 1, "v": "default"}])
    assert (result.states, result.counts.duplicate) == ({"a": ["default"]}, 1)


def test_replay_accepts_an_empty_step() -> None:
    result = pipeline().replay([])
    assert (result.states, result.counts.received, result.counts.balanced) == ({}, 0, True)


def test_replay_accepts_a_generator() -> None:
    assert pipeline().replay(message for message in arrive([{"r": 1, "v": 1}])).states == {"a": [1]}


WRONG: dict[str, tuple[Any, dict[str, Any], str]] = {
    "revision is text": (Gapless("r"), {"r": "1"}, "r is '1' of type str; expected a 64-bit integer"),
    "revision is a float": (Gapless("r"), {"r": 1.5}, r"r is 1\.5 of type float; expected a 64-bit integer"),
    "revision is a truth": (Gapless("r"), {"r": True}, "r is True of type bool; expected a 64-bit integer"),
    "number is text": (Monotone("r"), {"r": "1"}, "r is '1' of type str; expected a 64-bit integer"),
    "epoch is text": (Gapless("r", epoch="e"), {"r": 1, "e": "1"}, "e is '1' of type str; expected a 64-bit integer"),
    "time is text": (Timestamp("t"), {"t": "2024-05-01"}, "t is '2024-05-01' of type str; expected a datetime"),
    "time is a date": (
        Timestamp("t"),
        {"t": NOON.date()},
        r"t is .* of type date; expected a datetime: convert it first",
    ),
}


@pytest.mark.parametrize(("order", "places", "text"), WRONG.values(), ids=WRONG)
def test_a_key_field_of_the_wrong_type_is_invalid(order: Any, places: dict[str, Any], text: str) -> None:
    message = {"g": "a", "v": 1, "i": "x", "o": 0, **places}
    (rejected,) = pipeline(order).replay([message]).rejected
    assert (rejected.group, rejected.reason) == ("a", "invalid")
    assert re.match(text, rejected.detail)
    with pytest.raises(InvalidMessage, match=text):
        pipeline(order, on_invalid="fail").replay([message])


@pytest.mark.parametrize("number", [-(2**63), 2**63 - 1])
def test_revisions_of_64_bits_are_accepted(number: int) -> None:
    assert pipeline(Monotone("r")).replay([{"g": "a", "r": number, "v": 1, "o": 0}]).states == {"a": [1]}


@pytest.mark.parametrize(
    ("order", "places", "why"),
    [
        (Monotone("r"), {"r": 2**63}, "r is 9223372036854775808, which does not fit into 64 bits"),
        (Gapless("r"), {"r": 2**64}, "r is 18446744073709551616, which does not fit into 64 bits"),
        (Gapless("r", epoch="e"), {"r": 1, "e": -(2**63) - 1}, "e is -9223372036854775809, which does not fit"),
        (Timestamp("t"), {"t": 2**63}, "t is 9223372036854775808, which does not fit"),
        (Gapless("r"), {"r": 1, "o": 2**63}, "o is 9223372036854775808, which does not fit"),
        (Gapless("r"), {"r": 2**63 - 1}, "r is 9223372036854775807, the greatest 64-bit integer, so no next revision"),
    ],
)
def test_a_key_field_beyond_64_bits_rejects_only_its_message(order: Any, places: dict[str, Any], why: str) -> None:
    valid = {"g": "b", "r": 1, "e": 0, "t": 1, "v": 1, "i": "y", "o": 0}
    result = pipeline(order).replay([{**valid, "g": "a", "i": "x", **places}, valid])
    assert [(rejection.group, rejection.reason, rejection.detail[: len(why)]) for rejection in result.rejected] == [
        ("a", "invalid", why)
    ]
    assert "b" in result.timelines


@pytest.mark.parametrize("start", [-(2**63), 2**63 - 1, 2**63, True, 1.0])
def test_gapless_start_must_leave_a_revision_on_either_side(start: Any) -> None:
    with pytest.raises(PipelineError, match=r"Gapless\(start=.*expected a whole number from -9223372036854775807 to"):
        pipeline(Gapless("r", start=start))


def test_durations_beyond_the_maximum_are_refused() -> None:
    with pytest.raises(PipelineError, match="expected at most 52142 weeks"):
        Wait("1" + "0" * 400 + " weeks")
    with pytest.raises(PipelineError, match="expected at most"):
        Wait(dt.timedelta.max)
    assert Retry(5_000, "1 microsecond").pauses_s()[-1] == 60.0


@pytest.mark.parametrize("type_", [Event, EventStruct])
def test_a_field_without_a_default_must_be_present(type_: type) -> None:
    (rejected,) = pipeline(message=type_).replay([{"g": "a", "v": 1}]).rejected
    assert (rejected.reason, rejected.detail) == ("invalid", "r is null")


def test_a_message_with_a_null_arrival_is_invalid() -> None:
    result = pipeline().replay([{"g": "a", "r": 1, "v": 1, "o": None}, {"g": "a", "r": 2, "v": 2, "o": 1}])
    assert [(rejection.reason, rejection.detail) for rejection in result.rejected] == [("invalid", "o is null")]


def test_an_invalid_message_keeps_its_group() -> None:
    assert [rejection.group for rejection in pipeline().replay([{"g": "a", "r": None, "v": 1, "o": 0}]).rejected] == [
        "a"
    ]
