"""State types that change between runs: one rule in every engine, and one way out."""

import contextlib
import datetime as dt
import enum
import re
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, make_dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shop import Shop

from inturn import Gapless, Pipeline
from inturn.core.errors import PipelineError, StateError
from inturn.core.pipeline.decision import Decision, DecisionAction
from inturn.core.pipeline.versions import OldState, as_json, change, shape_of
from inturn.core.values.states import kind_of
from inturn.results.stored_place import stored_place
from inturn.worker import Worker
from kernel_harness import Bench

if TYPE_CHECKING:
    from inturn.core.pipeline.replay import Replay

Row = dict[str, Any]
SCHEMA = pa.schema({"account": pa.string(), "revision": pa.int64(), "amount": pa.int64()})


class Engine(Protocol):
    """A pipeline that is stopped after every step, and begun again as another version of itself."""

    def step(self, pipeline: Pipeline, rows: list[Row], *decided: Decision) -> None: ...

    def standing(self, pipeline: Pipeline) -> dict[str, tuple[str, str]]:
        """Of each group its status, and the last line of why it is parked."""
        ...

    def states(self, pipeline: Pipeline) -> dict[str, Any]: ...


class InReplay:
    def __init__(self) -> None:
        self.last: Replay | None = None

    def step(self, pipeline: Pipeline, rows: list[Row], *decided: Decision) -> None:
        self.last = pipeline.replay(rows, after=self.last, decisions=decided)

    def standing(self, pipeline: Pipeline) -> dict[str, tuple[str, str]]:
        assert self.last is not None
        return {name: (timeline.status, _end(timeline.error)) for name, timeline in self.last.timelines.items()}

    def states(self, pipeline: Pipeline) -> dict[str, Any]:
        assert self.last is not None
        return self.last.states


class InKernel:
    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    def step(self, pipeline: Pipeline, rows: list[Row], *decided: Decision) -> None:
        self.bench.pipeline = pipeline
        for decision in decided:
            self.bench.store.decisions.append(decision)
        self.bench.step(rows)

    def standing(self, pipeline: Pipeline) -> dict[str, tuple[str, str]]:
        last = self.bench.store.latest()
        assert last is not None
        rows = {row["group"]: row for level in last.levels for row in self.bench.rows(level.groups)}
        return {name: (row["status"], _end(row["error"])) for name, row in rows.items()}

    def states(self, pipeline: Pipeline) -> dict[str, Any]:
        self.bench.pipeline = pipeline
        return self.bench.seen().states


class InWorker:
    def __init__(self, shop: Shop) -> None:
        self.shop = shop

    def step(self, pipeline: Pipeline, rows: list[Row], *decided: Decision) -> None:
        for decision in decided:
            self.shop.decide(decision)
        self.shop.send(rows)
        with Worker(pipeline, self.shop.queue) as worker:
            until = time.monotonic() + 60
            while any(self.shop.ask(lambda store, number: store.decisions(number, 9)) for _ in decided):
                worker.check()
                assert time.monotonic() < until
                time.sleep(0.001)
            worker.drain(60)

    def standing(self, pipeline: Pipeline) -> dict[str, tuple[str, str]]:
        lines = self.shop.ask(lambda store, number: store.list_groups(number, "", 100))
        return {record.group: (record.status, _end(stored_place(record).error)) for record in lines}

    def states(self, pipeline: Pipeline) -> dict[str, Any]:
        return {group: state for group, (state, _) in self.shop.seen_lines(pipeline).items()}


def _end(error: str | None) -> str:
    return (error or "").strip().rpartition("\n")[2]


ENGINES = ["replay", "kernel", "memory", "sqlite", "postgres"]


@contextmanager
def engine_of(name: str, path: Path, url: Callable[[], str]) -> Iterator[Engine]:
    if name == "replay":
        yield InReplay()
    elif name == "kernel":
        with Bench(ledger(Old), SCHEMA) as bench:
            yield InKernel(bench)
    else:
        with Shop(name, path / "shop.db", url) as shop:
            yield InWorker(shop)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    with engine_of(request.param, tmp_path, lambda: request.getfixturevalue("postgres_url")) as made:
        yield made


@dataclass
class Item:
    sku: str = ""


@dataclass
class Old:
    name: str = "none"
    amount: int = 0
    items: list[Item] = field(default_factory=list)


def add(state: Any, message: Row) -> tuple[Any, list[Any]]:
    return replace(state, amount=state.amount + message["amount"]), []


def ledger(state: Any = Old, handler: Any = add, **more: Any) -> Pipeline:
    return Pipeline(name="ledger", group="account", order=Gapless("revision"), state=state, handler=handler, **more)


def rows(*revisions: int, account: str = "a") -> list[Row]:
    return [{"account": account, "revision": revision, "amount": 5} for revision in revisions]


NAME, AMOUNT, ITEMS = ("name", str, "none"), ("amount", int, 0), ("items", list[Item], field(default_factory=list))
CHANGED = {
    "renamed": ([("owner", str, "none"), AMOUNT, ITEMS], "state.name was removed"),
    "removed": ([AMOUNT, ITEMS], "state.name was removed"),
    "float for int": ([NAME, ("amount", float, 0.0), ITEMS], "state.amount has changed from int to float"),
    "text for int": ([NAME, ("amount", str, ""), ITEMS], "state.amount has changed from int to str"),
    "optional": ([("name", str | None, None), AMOUNT, ITEMS], r"state.name has changed from str to str \| NoneType"),
    "within": (
        [NAME, AMOUNT, ("items", list[make_dataclass("Item", [("number", str, "")])], field(default_factory=list))],  # type: ignore[misc]
        r"state.items\[\].sku was removed",
    ),
    "any": (
        [NAME, AMOUNT, ("items", list, field(default_factory=list))],
        r"state.items has changed from list\[a record of sku\] to list",
    ),
}


@pytest.mark.parametrize("case", CHANGED)
def test_an_incompatible_state_type_is_refused_before_anything_is_written(engine: Engine, case: str) -> None:
    engine.step(ledger(), rows(1))
    fields, reason = CHANGED[case]
    other = ledger(make_dataclass("Old", fields))
    with pytest.raises(StateError, match=f"{reason}; .*Pipeline\\(version=2, upgrade=fn\\)"):
        engine.step(other, rows(2))
    assert engine.states(ledger()) == {"a": Old(amount=5)}
    engine.step(ledger(), rows(3))


def test_fields_with_defaults_may_be_added_to_a_state_and_to_nested_records(engine: Engine) -> None:
    item = make_dataclass("Item", [("sku", str, ""), ("count", int, 1)])
    grown = make_dataclass(
        "Old", [NAME, AMOUNT, ("items", list[item], field(default_factory=list)), ("note", str, "-")]
    )  # type: ignore[valid-type]
    engine.step(ledger(handler=lambda state, message: (replace(state, items=[Item("x")]), [])), rows(1))
    engine.step(ledger(grown), rows(2))
    assert engine.states(ledger(grown)) == {"a": grown(amount=5, items=[item("x")])}
    with pytest.raises(StateError, match=r"state.items\[\].count was removed"):
        engine.step(ledger(), rows(3))


@dataclass
class New:
    owner: str = "nobody"
    cents: int = 0
    version: int = 3


def upgrade(state: Any, version: int) -> New:
    if version < 2:
        state["amount"] *= 100
    return New(state["name"], state["amount"], version)


def in_place(state: Any, version: int) -> Any:
    """The same as JSON values."""
    return {"owner": state["name"], "cents": state["amount"] * (100 if version < 2 else 1), "version": version}


def add_cents(state: New, message: Row) -> tuple[New, list[Any]]:
    return replace(state, cents=state.cents + message["amount"]), [state.version]


@pytest.mark.parametrize("upgrade", [upgrade, in_place])
def test_a_new_pipeline_version_continues_with_the_upgraded_states(engine: Engine, upgrade: Any) -> None:
    new = ledger(New, add_cents, version=3, upgrade=upgrade)
    second = replace(ledger(), version=2, upgrade=lambda state, version: Old(state["name"], state["amount"] * 100))
    engine.step(ledger(), rows(1) + rows(1, 2, account="b") + rows(2, account="c"))  # c waits
    engine.step(second, rows(3, account="b"))
    with pytest.raises(StateError, match=r"stored by version 2, but this is version 3; .*upgrade=fn"):
        engine.step(replace(new, upgrade=None), rows(2))
    engine.step(new, rows(2) + rows(1, account="c"))
    engine.step(new, rows(4, account="b"))
    states = engine.states(new)
    assert {name: state.cents for name, state in states.items()} == {"a": 505, "b": 1010, "c": 10}
    assert states["b"].owner == "none"
    with pytest.raises(StateError, match="stored by version 3, but this is version 1; run version 3 or newer"):
        engine.step(ledger(), rows(9))


def test_an_untyped_state_is_upgraded(engine: Engine) -> None:
    count = lambda state, message: ({"n": state.get("n", 0) + 1}, [])  # noqa: E731
    engine.step(ledger(dict, count), rows(1, 2))
    numbered = lambda state, message: (state + 1, [])  # noqa: E731
    number = ledger(int, numbered, version=2, upgrade=lambda state, version: state["n"] * 10)
    with pytest.raises(StateError, match="state has changed from dict to int"):
        engine.step(replace(number, version=1), rows(3))
    engine.step(number, rows(3))
    assert engine.states(number) == {"a": 21}


def raises(state: Row, version: int) -> Any:
    state.clear()
    msg = "half \udc80"
    raise ValueError(msg)


WRONG = {
    "raises": (raises, r"StateError: pipeline 'ledger': upgrade raised half \\udc80 on a state of version 1: {}"),
    "no state": (lambda state, version: [], "upgrade returned an invalid state for a state of version 1"),
    "a field too many": (
        lambda state, version: {"cents": 1, "x": 1},
        "version 1: state.x is not a field of the",
    ),
    "a wrong field": (lambda state, version: {"cents": "1"}, "of version 1: Expected `int`, got `str`"),
    "wrong fields": (lambda state, version: New(cents="many"), "of version 1: state.cents"),  # type: ignore[arg-type]
}


def to_third(state: Row, version: int) -> New:
    return New(**state) if version == 2 else upgrade(state, version)


def resume(group: str, at_us: int) -> Decision:
    return Decision(id="r", action=DecisionAction.RESUME, group=group, by="ann", at_us=at_us)


@pytest.mark.parametrize("case", WRONG)
def test_a_group_whose_state_cannot_be_upgraded_is_the_only_failed_group(engine: Engine, case: str) -> None:
    wrong, reason = WRONG[case]
    engine.step(ledger(), rows(1) + rows(1, 2, account="b") + rows(1, 2, account="c"))
    only = lambda state, version: (wrong if state["amount"] == 5 else upgrade)(state, version)  # noqa: E731
    new = ledger(New, add_cents, version=2, upgrade=only)

    engine.step(new, rows(3, account="b"))  # nobody asks for a
    assert engine.standing(new)["a"] == ("open", "")
    engine.step(new, rows(2) + rows(4, account="b") + rows(1, account="d"))
    engine.step(new, rows(3) + rows(5, account="b"))
    standing, states = engine.standing(new), engine.states(new)
    assert standing["a"][0] == "failed"
    assert re.search(reason, standing["a"][1])
    assert {name: status[0] for name, status in standing.items() if name != "a"} == dict.fromkeys("bcd", "open")
    assert (states["b"].cents, states["d"].cents) == (1015, 5)
    old = states["a"]
    assert isinstance(old, OldState)
    assert (old.version, old.value) == (1, {"name": "none", "amount": 5, "items": []})

    engine.step(new, [], resume("a", 1))  # it fails again, and nothing is lost
    assert engine.standing(new)["a"][0] == "failed"
    mended = ledger(New, add_cents, version=2 if case == "raises" else 3, upgrade=to_third)
    engine.step(mended, rows(4), resume("a", 2))
    engine.step(mended, rows(3, account="c"))
    assert {name: state.cents for name, state in engine.states(mended).items()} == {
        "a": 515,
        "b": 1015,
        "c": 1005,
        "d": 5,
    }
    assert {status[0] for status in engine.standing(mended).values()} == {"open"}


def test_a_remaining_state_of_an_older_version_requires_the_upgrade_function(engine: Engine) -> None:
    engine.step(ledger(), rows(1) + rows(1, account="b"))
    new = ledger(New, add_cents, version=2, upgrade=raises)
    engine.step(new, rows(2))
    with contextlib.suppress(StateError):  # a worker may have many such states left, and stops
        engine.step(replace(new, upgrade=None), rows(2, account="b"))
    assert isinstance(engine.states(new)["b"], OldState)
    mended = replace(new, upgrade=upgrade)
    engine.step(mended, rows(1, account="c"))
    states = engine.states(mended)
    assert states["a"].cents == 500
    assert states["b"].cents == (505 if isinstance(engine, InWorker) else 500)  # its message was given back


def test_invalid_version_and_upgrade_arguments_are_refused() -> None:
    for version in (0, True, 1.5, 2**31):
        with pytest.raises(PipelineError, match=r"Pipeline\(version=.*expected a whole number from 1"):
            ledger(version=version)
    for wrong in ("fn", lambda state: state, 7):
        with pytest.raises(PipelineError, match=r"Pipeline\(upgrade=.*expected a plain function"):
            ledger(version=2, upgrade=wrong)


# -- what upgrade gets ---------------------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Rich:
    at: dt.datetime
    day: dt.date
    time: dt.time
    span: dt.timedelta
    price: Decimal
    raw: bytes
    colour: Colour
    uid: uuid.UUID
    names: dict[int, tuple[str, float]]
    item: Item | None = None


rich = st.builds(
    Rich,
    st.datetimes(timezones=st.just(dt.UTC)),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.binary(max_size=3),
    st.just(Colour.RED),
    st.uuids(),
    st.dictionaries(
        st.integers(-3, 3), st.tuples(st.text(max_size=2), st.floats(allow_nan=False, allow_infinity=False)), max_size=2
    ),
    st.none() | st.builds(Item),
)


@given(rich)
@settings(max_examples=settings.default.max_examples // 2)
def test_as_json_gives_a_state_the_same_json_values_as_a_store(state: Rich) -> None:
    decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(state))
    assert (
        as_json(state) == msgspec.to_builtins(decoded, str_keys=True) == msgspec.json.decode(msgspec.json.encode(state))
    )


@pytest.mark.parametrize("kind", [Rich, Old, dict, list[int], dict[str, Item | None], tuple[int, str], int | None])
def test_a_state_shape_survives_json_and_has_no_change_to_itself(kind: Any) -> None:
    shape = shape_of(kind_of(kind))
    assert change(msgspec.json.decode(msgspec.json.encode(shape)), shape) is None


@dataclass
class Node:
    value: int = 0
    next: "Node | None" = None


def test_a_recursive_type_has_a_shape() -> None:
    shape = shape_of(kind_of(Node))
    assert change(shape, shape) is None
    assert change(shape, shape_of(kind_of(Item))) == "state.value was removed"
