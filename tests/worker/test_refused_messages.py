"""Types that check their values: a message that is refused is invalid alone, a first state that raises ends nothing
half-way; alike in every engine."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from shop import SHOPS, Shop

import inturn
from hostile import HOSTILE
from inturn import Gapless, Pipeline
from inturn.core.errors import InvalidMessage, PipelineError
from inturn.core.pipeline.decision import Decision, DecisionAction
from inturn.core.texts import storable
from inturn.worker import Worker
from kernel_harness import Bench

Row = dict[str, Any]
Seen = tuple[dict[str, Any], Counter[tuple[str, str]]]
SCHEMA = pa.schema(
    {
        "account": pa.string(),
        "revision": pa.int64(),
        "amount": pa.int64(),
        "item": pa.struct({"sku": pa.string()}),
    }
)


class Rude(Exception):
    def __str__(self) -> str:
        raise self


ERRORS: dict[str, Callable[[], Exception]] = {
    "a value": lambda: ValueError("amount is below zero"),
    "a type": lambda: TypeError("amount is no number"),
    "a key": lambda: KeyError("owner"),
    "no text": ZeroDivisionError,
    "rude": Rude,
    **{name: lambda name=name: ValueError(HOSTILE[name]) for name in HOSTILE},  # type: ignore[misc]
}
"""What the checks of a type raise."""
SAID = {
    "a value": "amount is below zero",
    "a type": "amount is no number",
    "a key": "KeyError: 'owner'",
    "no text": "ZeroDivisionError",
    "rude": "Rude: <str() of the exception raised Rude>",
    **{name: text or "ValueError" for name, text in HOSTILE.items()},
}
raised = "a value"


def check(amount: int) -> None:
    if amount < 0:
        raise ERRORS[raised]()


@dataclass
class Checked:
    account: str
    revision: int
    amount: int

    def __post_init__(self) -> None:
        check(self.amount)


class CheckedStruct(msgspec.Struct):
    account: str
    revision: int
    amount: int

    def __post_init__(self) -> None:
        check(self.amount)


def add(state: int, message: Any) -> tuple[int, list[Any]]:
    return state + message.amount, []


def ledger(message: Any, handler: Any = add, **more: Any) -> Pipeline:
    options = {"group": "account", "order": Gapless("revision"), "state": int, **more}
    return Pipeline(name="ledger", message=message, handler=handler, **options)


def row(account: str, revision: int, amount: int, **more: Any) -> Row:
    return {"account": account, "revision": revision, "amount": amount, **more}


ROWS = [row("a", 1, 5), row("b", 1, -1), row("b", 2, 7), row("c", 1, -2), row("a", 2, 6), row("d", 1, -3)]


def in_replay(pipeline: Pipeline, rows: list[Row], path: Path) -> Seen:
    result = pipeline.replay(rows)
    assert result.counts.balanced
    return result.states, Counter((rejection.reason, rejection.detail) for rejection in result.rejected)


def in_kernel(pipeline: Pipeline, rows: list[Row], path: Path) -> Seen:
    with Bench(pipeline, SCHEMA) as bench:
        bench.step(rows)
        seen = bench.seen()
        rejected = Counter((reason, detail) for (_, reason, detail, _) in seen.rejected.elements())
        return seen.states, rejected


def in_worker(pipeline: Pipeline, rows: list[Row], path: Path) -> Seen:
    with Shop("sqlite", path / "shop.db") as shop:
        shop.send(rows)
        shop.work(pipeline)
        states = {group: state for group, (state, _) in shop.seen_lines(pipeline).items()}
        rejected = shop.ask(lambda store, number: store.rejections(number, 0, 100))
        return states, Counter((rejection.reason, rejection.detail) for _, rejection in rejected)


ENGINES = {"replay": in_replay, "kernel": in_kernel, "worker": in_worker}


@pytest.fixture(params=ENGINES)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Pipeline, list[Row]], Seen]:
    return lambda pipeline, rows: ENGINES[request.param](pipeline, rows, tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [Checked, CheckedStruct])
@pytest.mark.parametrize("error", ERRORS)
def test_a_message_refused_by_its_type_is_the_only_invalid_message(
    run: Callable[[Pipeline, list[Row]], Seen], kind: Any, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.raised", error)
    states, rejected = run(ledger(kind), ROWS)
    assert {name: state for name, state in states.items() if state} == {"a": 11}
    reason = storable(f"it is not a valid {kind.__name__}: {SAID[error]}")
    assert rejected == {("invalid", reason): 3}


@pytest.mark.parametrize("kind", [Checked, CheckedStruct])
def test_on_invalid_fail_stops_at_a_message_refused_by_its_type(
    run: Callable[[Pipeline, list[Row]], Seen], kind: Any
) -> None:
    with pytest.raises(InvalidMessage, match=f"it is not a valid {kind.__name__}: amount is below zero"):
        run(ledger(kind, on_invalid="fail"), ROWS)


@dataclass
class Item:
    sku: str

    def __post_init__(self) -> None:
        if self.sku == "bad":
            raise LookupError(self.sku)


def unlucky() -> int:
    msg = "no luck today"
    raise RuntimeError(msg)


@dataclass
class Order:
    account: str
    revision: int
    item: Item
    amount: int = field(default_factory=unlucky)


def test_an_error_of_a_nested_record_or_a_default_makes_the_message_invalid(
    run: Callable[[Pipeline, list[Row]], Seen],
) -> None:
    good, bad = {"sku": "x"}, {"sku": "bad"}
    absent = {"account": "c", "revision": 1, "item": good, "amount": None}
    states, rejected = run(ledger(Order), [row("a", 1, 5, item=good), row("b", 1, 6, item=bad), absent])
    assert {name: state for name, state in states.items() if state} == {"a": 5}
    assert [reason for reason, _ in rejected.elements()] == ["invalid"] * 2
    texts = sorted(detail for _, detail in rejected)
    assert any("LookupError: bad" in text for text in texts)
    assert any("RuntimeError: no luck today" in text for text in texts)


def test_a_body_that_is_nested_deeply_is_applied_or_invalid() -> None:
    """How deep it may be depends on how deep Python is already."""
    ledger = Pipeline(name="p", group="g", order=Gapless("r"), handler=lambda state, message: (state, []))
    depths = range(100, 1200, 100)
    with inturn.open(":memory:") as db:
        queue = db.queue("q")
        for depth in depths:
            queue.send(f'{{"g": "a{depth}", "r": 1, "v": {"[" * depth}{"]" * depth}}}', group=f"a{depth}")
        counts = inturn.work(ledger, queue, until="empty")
    assert counts.applied + counts.rejected["invalid"] == len(depths)
    assert counts.applied > 2


def test_a_replacement_keeps_the_fields_that_the_message_type_does_not_know() -> None:
    @dataclass
    class Amount:
        g: str
        r: int
        v: int

    def apply(state: Any, message: Amount) -> tuple[Any, list[Any]]:
        if message.v < 0:
            raise ValueError("below zero")
        return message.v, []

    ledger = Pipeline(name="p", group="g", order=Gapless("r"), handler=apply, message=Amount, state=int)
    with inturn.open(":memory:") as db:
        queue = db.queue("q")
        queue.send({"g": "a", "r": 1, "v": -1, "unknown": 3}, group="a")
        inturn.work(ledger, queue, until="empty")
        results = db.pipeline("p")
        report = results.replace("a", content={"v": 2}, by="ann")
        inturn.work(ledger, queue, until="empty")
        assert (results.updated(report).void, results.state("a")) == ({}, 2)


def test_a_replacement_refused_by_the_message_type_is_void(tmp_path: Path) -> None:
    pipeline = ledger(Checked)
    worse = Decision(
        id="d",
        action=DecisionAction.REPLACE,
        group="a",
        by="ann",
        at_us=1,
        position=2,
        old=row("a", 2, 6),
        new={"amount": -1},
    )
    first = pipeline.replay([row("a", 2, 6)])
    verdicts = [pipeline.replay([], after=first, decisions=[worse]).verdicts["d"]]
    with Bench(pipeline, SCHEMA) as bench:
        bench.step([row("a", 2, 6)])
        bench.store.decisions.append(worse)
        bench.step([])
        last = bench.store.latest()
        assert last is not None
        verdicts.append(last.decisions[0].void)
    assert verdicts == ["it is not a valid Checked: amount is below zero"] * 2


def failing() -> Row:
    msg = "no account \udc80"
    raise LookupError(msg)


@dataclass
class Unready:
    balance: int = 0

    def __post_init__(self) -> None:
        raise LookupError(self.balance)


@pytest.mark.parametrize(("state", "why"), [(failing, r"no account \\udc80"), (Unready, "0")])
def test_an_initial_state_that_raises_is_reported_before_anything_is_written(
    tmp_path: Path, state: Any, why: str
) -> None:
    pipeline = ledger(None, state=state)
    says = (
        rf"^Pipeline\(state={state.__name__}\) of pipeline 'ledger': .* raised LookupError: {why}; expected a group's"
    )
    with pytest.raises(PipelineError, match=says):
        pipeline.replay(ROWS)
    bench = Bench(pipeline, SCHEMA, root=tmp_path / "store")
    with pytest.raises(PipelineError, match=says):
        bench.step(ROWS)
    assert not (tmp_path / "store").exists()
    for kind in sorted(SHOPS.keys() - {"postgres"}):
        with Shop(kind, tmp_path / f"{kind}.db") as shop:
            shop.send(ROWS)
            with pytest.raises(PipelineError, match=says):
                Worker(pipeline, shop.queue)
            ready = replace(pipeline, state=dict, handler=lambda state, message: ({"n": message["amount"]}, []))
            assert shop.work(ready).counts.applied == 6, "and the way out works"
