"""Ready-made pipelines against brute force, over change logs that are shuffled, duplicated and contain deletes."""

import datetime as dt
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inturn import Arrival, Gapless, Monotone, Pipeline, pipelines
from inturn.core.errors import PipelineError
from inturn.core.pipeline.replay import Replay
from waiting import PROGRAM_S

Row = dict[str, Any]
PLACEHOLDER = "__debezium_unavailable_value"
NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Account:
    owner: str | None = None
    balance: Decimal | None = None
    opened: dt.date | None = None
    note: str | None = None
    is_deleted: bool = False


class Version(msgspec.Struct, frozen=True):
    valid_from: dt.datetime | None = None
    row: Account | None = None
    is_current: bool = False


ROWS = st.none() | st.fixed_dictionaries(
    {"owner": st.sampled_from(["ann", "ben", None]), "balance": st.sampled_from(["1.1", "2"])},
    optional={"opened": st.sampled_from(["2024-05-01", None]), "note": st.sampled_from(["long text", PLACEHOLDER])},
)
LATEST: Row = {"name": "a", "group": "id", "order": Monotone("n")}
LOGS = st.lists(ROWS, min_size=1, max_size=8)


def events(rows: list[Row | None], group: str = "a") -> list[Row]:
    """Return the change log of a group: revisions from 1, a minute apart."""
    return [
        {"id": group, "n": n, "op": "u", "at": (NOON + dt.timedelta(minutes=n)).isoformat(), "after": row}
        for n, row in enumerate(rows, 1)
    ]


def emitted_by(result: Replay[Any, Any]) -> list[Any]:
    return [each.output for each in result.outputs]


def resolved(rows: list[Row | None]) -> list[Row | None]:
    """Return the rows without nulls, each placeholder replaced by the value before it."""
    before: Row = {}
    result: list[Row | None] = []
    for row in rows:
        now = {k: before.get(k) if v == PLACEHOLDER else v for k, v in (row or {}).items()}
        before = {k: v for k, v in now.items() if v is not None}
        result.append(None if row is None else before)
    return result


def disordered(data: st.DataObject, messages: list[Row]) -> list[Row]:
    again = data.draw(st.lists(st.sampled_from(messages), max_size=4))
    return data.draw(st.permutations([*messages, *again]))


@given(LOGS, st.data())
def test_latest_is_the_last_row_of_a_shuffled_log(rows: list[Row | None], data: st.DataObject) -> None:
    pipeline = pipelines.latest("accounts", group="id", order=Gapless("n"), row="after")
    typed = pipelines.latest("accounts", group="id", order=Gapless("n"), row="after", state=Account)
    delivered = disordered(data, events(rows))
    last = resolved(rows)[-1]
    assert pipeline.replay(delivered).states == {"a": {"is_deleted": True} if last is None else last}
    expected = Account(is_deleted=True) if last is None else msgspec.convert(last, Account)
    assert typed.replay(delivered).states == {"a": expected}


class Model(pydantic.BaseModel):
    owner: str | None = None
    opened: dt.date | None = None
    is_deleted: bool = False


class ModelVersion(pydantic.BaseModel):
    valid_from: dt.datetime | None = None
    row: Model | None = None
    is_current: bool = False


def test_the_states_can_be_models_of_pydantic() -> None:
    arguments: Row = {"group": "id", "order": Gapless("n"), "row": "after"}
    log = events([{"owner": "ann", "opened": "2024-05-01"}, {"owner": "ben", "opened": PLACEHOLDER}])
    latest = Model(owner="ben", opened=dt.date(2024, 5, 1))
    assert pipelines.latest("m", state=Model, **arguments).replay(log).states == {"a": latest}
    result = pipelines.history("m", time="at", state=ModelVersion, **arguments).replay([*log, {**log[1], "n": 3}])
    since = NOON + dt.timedelta(minutes=2)
    assert result.states == {"a": ModelVersion(valid_from=since, row=latest, is_current=True)}
    assert [each["row"].owner for each in emitted_by(result)] == ["ann"]


@given(st.lists(ROWS, min_size=1, max_size=8), st.data())
def test_latest_of_a_log_with_holes_never_goes_back(rows: list[Row | None], data: st.DataObject) -> None:
    """An older change that arrives late neither replaces the row nor restores a deleted one."""
    rows = [None if row is None else {k: v for k, v in row.items() if v != PLACEHOLDER} for row in rows]
    pipeline = pipelines.latest("accounts", group="id", order=Monotone("n"), row="after")
    delivered = data.draw(st.permutations(events(rows)))
    last = resolved(rows)[-1]
    assert pipeline.replay(delivered).states == {"a": {"is_deleted": True} if last is None else last}


@given(LOGS, st.data())
def test_history_has_each_version_once_with_its_times(rows: list[Row | None], data: st.DataObject) -> None:
    marks: list[tuple[Row | None, str]] = [(None, "")]
    for row, event in zip(resolved(rows), events(rows), strict=True):
        if row != marks[-1][0]:
            marks.append((row, event["at"]))
    closed = [
        {"valid_from": begin, "valid_to": end, "row": row}
        for (row, begin), (_, end) in pairwise(marks)
        if row is not None
    ]
    row, begin = marks[-1]
    pipeline = pipelines.history("accounts", group="id", order=Gapless("n"), row="after", time="at")
    delivered = disordered(data, events(rows))
    result = pipeline.replay(delivered)
    current = {"is_current": False} if row is None else {"valid_from": begin, "row": row, "is_current": True}
    assert result.states == {"a": current}
    assert emitted_by(result) == closed

    typed = pipelines.history("accounts", group="id", order=Gapless("n"), row="after", time="at", state=Version)
    result = typed.replay(delivered)
    assert result.states == {"a": msgspec.convert(current, Version)}
    assert [output["valid_to"].isoformat() for output in emitted_by(result)] == [each["valid_to"] for each in closed]


@given(st.lists(st.none() | st.integers(-9999, 9999), min_size=1, max_size=20), st.data())
def test_totals_add_each_message_once(cents: list[int | None], data: st.DataObject) -> None:
    values = [None if value is None else Decimal(value) / 100 for value in cents]
    messages = [
        {"id": "a", "n": n, "cents": cent, "text": None if value is None else str(value), "value": value}
        for n, (cent, value) in enumerate(zip(cents, values, strict=True), 1)
    ]
    delivered = disordered(data, messages)
    present, many = [value for value in values if value is not None], {"group": "id", "order": Gapless("n")}

    def state(pipeline: Pipeline[Any, Any, Any]) -> Any:
        return msgspec.to_builtins(pipeline.replay(delivered).states["a"], builtin_types=(Decimal,))

    assert state(pipelines.count("n", **many)) == {"count": len(values)}
    total = sum(present) if present else None
    for name in ("text", "value"):
        added = state(pipelines.sum("s", field=name, number=Decimal, **many))
        assert added == {"sum": total, "count": len(present)}
    added = state(pipelines.sum("s", field="cents", **many))
    assert added == {"sum": None if total is None else total * 100, "count": len(present)}
    added = state(pipelines.sum("s", field="cents", number=float, **many))
    assert added["sum"] == (None if total is None else float(total * 100))


@pytest.mark.parametrize(
    ("number", "values", "error"),
    [
        (int, [1.5], "v is 1.5; expected an integer"),
        (int, [True], "v is True; expected an integer"),
        (float, ["1"], "v is '1'; expected a number"),
        (Decimal, ["x"], "v is 'x'; expected a decimal number"),
        (Decimal, ["1e30", "1e-30"], "Inexact"),
        (int, [2**63 - 1, 1], "64 bits"),
    ],
)
def test_a_sum_that_would_not_be_exact_parks_its_group(number: type[Any], values: list[Any], error: str) -> None:
    pipeline = pipelines.sum("s", group="id", order=Gapless("n"), field="v", number=number)
    result = pipeline.replay([{"id": "a", "n": n, "v": value} for n, value in enumerate(values, 1)])
    assert error in result.errors["a"]


PARTS = ("payments", "stock", "customs")
SENT = st.lists(
    st.fixed_dictionaries(
        {"source": st.sampled_from([*PARTS, "audit", None])},
        optional={"amount": st.integers(0, 3), "parcel": st.sampled_from(["P-7", None])},
    ),
    max_size=12,
)


@given(SENT)
def test_a_phantom_record_is_emitted_once_with_all_parts(sent: list[Row]) -> None:
    messages = [{"order": "1", "id": str(n), "offset": n, **message} for n, message in enumerate(sent)]
    record: dict[str, Row] = {}
    emitted: list[Any] = []
    for message in sent:
        if message["source"] in PARTS:
            was, part = len(record), record.get(message["source"], {})
            values = {k: v for k, v in message.items() if k != "source" and v is not None}
            record = {**record, message["source"]: {**part, **values}}
            emitted += [record] if len(record) == len(PARTS) > was else []
    pipeline = pipelines.phantom("orders", group="order", part="source", parts=PARTS, id="id", arrival="offset")
    copies = [{**message, "offset": message["offset"] + 100} for message in messages]
    result = pipeline.replay([*messages, *copies])
    assert result.states == ({"1": record} if messages else {})
    assert emitted_by(result) == emitted


@dataclass(frozen=True)
class Part:
    amount: int | None = None
    parcel: str | None = None


@dataclass(frozen=True)
class Shipment:
    payments: Part | None = None
    stock: Part | None = None


@dataclass(frozen=True)
class Hook:
    id: str
    order: str
    source: str
    data: Row = field(default_factory=dict)


def test_a_phantom_record_has_the_types_of_its_state() -> None:
    pipeline = pipelines.phantom(
        "o",
        group="order",
        part="source",
        parts=["payments", "stock"],
        id="id",
        row="data",
        message=Hook,
        state=Shipment,
    )
    hooks = [
        Hook("1", "1", "stock", {"parcel": "P-7"}),
        Hook("2", "1", "stock", {"amount": 2}),
        Hook("3", "1", "payments", {"amount": 30}),
        Hook("4", "1", "payments", {"amount": 31}),
    ]
    result = pipeline.replay(hooks)
    stock = Part(2, "P-7")
    assert result.states == {"1": Shipment(Part(31), stock)}
    assert emitted_by(result) == [Shipment(Part(30), stock)]


@pytest.mark.parametrize("is_deleted", [("op", "d"), "gone"])
def test_a_flag_marks_a_delete_and_what_is_ignored_is_not_in_the_row(is_deleted: Any) -> None:
    """The row is the message itself here, and its field ``is_deleted`` is not the state's."""
    pipeline = pipelines.latest(
        "a", group="id", order=Monotone("n"), is_deleted=is_deleted, ignore="received", arrival="offset"
    )
    made = {"id": "a", "n": 1, "op": "c", "gone": False, "is_deleted": True, "received": 7, "offset": 1}
    left = {"id": "a", "n": 1, "op": "c", "gone": False}
    assert pipeline.replay([made]).states == {"a": left}
    gone = {**made, "n": 2, "op": "d", "gone": True, "offset": 2}
    assert pipeline.replay([gone, {**made, "offset": 3}]).states == {"a": {"is_deleted": True}}


def test_history_of_whole_messages_compares_only_what_does_not_place_them() -> None:
    pipeline = pipelines.history("a", group="id", order=Gapless("n"), time="at", is_deleted="gone")
    base = {"id": "a", "owner": "ann", "gone": False}
    log = [{**base, "n": 1, "at": 1}, {**base, "n": 2, "at": 2}, {**base, "n": 3, "at": 3, "owner": "ben"}]
    result = pipeline.replay(log)
    assert result.states == {"a": {"valid_from": 3, "row": {"owner": "ben"}, "is_current": True}}
    assert emitted_by(result) == [{"valid_from": 1, "valid_to": 3, "row": {"owner": "ann"}}]


@pytest.mark.parametrize(
    ("message", "error"), [({"after": 5}, "after is 5; expected a row"), ({"at": None}, "at is null")]
)
def test_a_change_without_row_or_time_parks_its_group(message: Row, error: str) -> None:
    pipeline = pipelines.history("a", group="id", order=Gapless("n"), time="at", row="after")
    result = pipeline.replay([{"id": "a", "n": 1, "at": 1, "after": {}, **message}])
    assert error in result.errors["a"]


@pytest.mark.parametrize(
    ("make", "arguments", "error"),
    [
        (pipelines.latest, {"row": "aftr"}, "no field 'aftr' in the message; existing fields: id, n, op, after, gone"),
        (pipelines.latest, {"row": "after.row"}, "no field 'after.row'"),
        (pipelines.latest, {"row": "after", "is_deleted": "delted"}, "no field 'delted'"),
        (pipelines.latest, {"row": "after", "is_deleted": ("opp", "d")}, "no field 'opp'"),
        (
            pipelines.latest,
            {"is_deleted": "gone"},
            r"gone is 'true'; expected a boolean, or is_deleted=\('gone', 'true'\)",
        ),
        (pipelines.latest, {"is_deleted": "n"}, "n is 1; expected a boolean"),
        (pipelines.history, {"row": "after", "time": "att"}, "no field 'att'"),
        (pipelines.phantom, {"part": "sorce", "parts": ["x"]}, "no field 'sorce'"),
    ],
)
def test_a_wrong_path_or_mark_parks_the_group_and_deletes_nothing(
    make: Callable[..., Any], arguments: Row, error: str
) -> None:
    message = {"id": "a", "n": 1, "op": "u", "after": {"owner": "ann"}, "gone": "true"}
    result = make(**{**LATEST, **arguments}).replay([message])
    assert result.states == {"a": {}}
    assert re.search(error, result.errors["a"]), result.errors["a"]


def test_a_null_is_a_delete_by_its_row_and_none_by_its_flag() -> None:
    by_row = pipelines.latest(**LATEST, row="change.after")
    log: list[Row] = [{"id": "a", "n": 1, "change": None}, {"id": "b", "n": 1, "change": {"after": None}}]
    assert by_row.replay(log).states == {"a": {"is_deleted": True}, "b": {"is_deleted": True}}
    by_flag = pipelines.latest(**LATEST, is_deleted="gone")
    assert by_flag.replay([{"id": "a", "n": 1, "gone": None}]).states == {"a": {"id": "a", "n": 1}}


@dataclass
class Owed:
    owner: str
    is_deleted: bool = False


@dataclass
class Unflagged:
    owner: str = ""


@dataclass
class Misflagged:
    is_deleted: None = None


class Renamed(msgspec.Struct, rename="camel"):
    is_deleted: bool = False


@pytest.mark.parametrize(
    ("make", "arguments", "error"),
    [
        (pipelines.latest, {"row": ""}, r"latest\(row=''\); expected the path"),
        (pipelines.latest, {"row": "after", "order": Monotone("id"), "message": Hook}, "Hook has no field 'after'"),
        (pipelines.latest, {"is_deleted": 5}, r"latest\(is_deleted=5\); expected the path of a boolean"),
        (pipelines.latest, {"is_deleted": ("", 1)}, r"latest\(is_deleted=''\)"),
        (pipelines.latest, {"state": Owed}, r"latest\(state=Owed\): the field 'owner' has no default"),
        (
            pipelines.latest,
            {"state": Unflagged},
            r"latest\(state=Unflagged\) has no field 'is_deleted'; .* is_deleted: bool = False",
        ),
        (pipelines.latest, {"rwo": "after"}, "latest has no option 'rwo'; existing options: name, .* row, .* upgrade"),
        (pipelines.count, {"handler": len}, "count has no option 'handler'"),
        (pipelines.phantom, {"part": "s", "parts": ["x", "y", "x"]}, "names a part twice"),
        (pipelines.latest, {"state": Misflagged}, "expected is_deleted: bool = False"),
        (pipelines.latest, {"state": Renamed}, "renames its fields"),
        (pipelines.latest, {"state": int}, "expected dict, a dataclass"),
        (pipelines.latest, {"ignore": 5}, "ignore=5"),
        (pipelines.history, {"time": None}, r"history\(time=None\)"),
        (pipelines.history, {"time": "at", "state": Account}, "has no field 'valid_from'"),
        (pipelines.sum, {"field": ""}, r"sum\(field=''\)"),
        (pipelines.sum, {"field": "x", "number": str}, r"sum\(number=<class 'str'>\); expected int, float or Decimal"),
        (pipelines.phantom, {"part": "source", "parts": "source"}, r"phantom\(parts='source'\)"),
        (pipelines.phantom, {"part": "source", "parts": ["x"], "state": Shipment}, "has no field 'x'"),
        (pipelines.phantom, {"part": "s", "parts": ["x"], "order": Arrival()}, "id="),
    ],
)
def test_a_wrong_argument_is_refused_by_name(make: Callable[..., Any], arguments: Row, error: str) -> None:
    with pytest.raises(PipelineError, match=error):
        make(**{**LATEST, **arguments})


def test_ready_made_pipelines_can_be_pickled_and_need_no_spark() -> None:
    pipeline = pipelines.latest("a", group="id", order=Monotone("n"), state=Account)
    assert pickle.loads(pickle.dumps(pipeline)) == pipeline  # noqa: S301 - our own
    code = "import sys, inturn.pipelines; sys.exit('pyspark' in sys.modules or 'inturn.store' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PROGRAM_S)
