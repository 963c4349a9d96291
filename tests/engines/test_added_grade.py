"""A grade of order is one class with its timeline: one that is added here runs in every engine as it is."""

import ast
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inturn
from inturn import Pipeline
from inturn.core.errors import PipelineError
from inturn.core.identity import TimelineEntry
from inturn.core.pipeline.grades import KeyedTimeline
from inturn.core.pipeline.order import Order, StoredOrder
from inturn.core.pipeline.replay import Replay
from inturn.core.pipeline.timeline import Key, Relation
from inturn.queue import QueueSettings
from inturn.results.inspection import DatabaseInspector
from kernel_harness import Bench, expected

SOURCES = Path(inturn.__file__).parent
GRADES = {"Gapless", "Monotone", "MonotoneFields", "Timestamp", "Arrival"}
SCHEMA = pa.schema([("g", pa.string()), ("r", pa.int64()), ("v", pa.int64()), ("seq", pa.int64())])


class SteppedTimeline(KeyedTimeline):
    """Each revision is some steps after the one before it; one between two steps is of no order at all: too late."""

    __slots__ = ()
    order: "Stepped"

    def next(self) -> int:
        return self.order.step + (self.reached or 0)

    def mark(self, entry: TimelineEntry) -> bytes:
        return struct.pack(">qq", 0, entry.position)

    def key(self, entry: TimelineEntry) -> Key:
        return (entry.position,)

    def relation(self, entry: TimelineEntry) -> Relation:
        if (known := self.recall(entry)) is not None:
            return known
        if entry.position % self.order.step:
            return Relation.LATE
        distance = entry.position - self.next()
        return Relation.NEXT if distance == 0 else Relation.AHEAD if distance > 0 else Relation.FORGOTTEN

    def ready(self) -> TimelineEntry | None:
        return None if self.parked or self.first() != (self.next(),) else self.pop()

    def record_applied(self, entry: TimelineEntry) -> None:
        super().record_applied(entry)
        self.reached = entry.position


@dataclass(frozen=True)
class Stepped(Order):
    """An order in which revisions rise by steps of one size."""

    column: str
    step: int = 10
    timeline_type = SteppedTimeline
    has_revisions = True

    def check(self) -> None:
        super().check()
        if self.step < 1:
            msg = f"Stepped(step={self.step})"
            raise PipelineError(msg)


def note(state: list[int], message: dict[str, Any]) -> tuple[list[int], list[Any]]:
    """Apply a message; a negative value fails and parks the group."""
    if message["v"] < 0:
        raise ValueError(message["v"])
    return [*state, message["v"]], [{"r": message["r"], "v": message["v"]}]


def pipeline() -> Pipeline:
    return Pipeline(name="stepped", group="g", order=Stepped("r"), handler=note, state=list, arrival="seq")


def by_worker(folder: Path, definition: Pipeline, history: list[dict[str, Any]]) -> dict[str, Any]:
    """Work a history off in SQLite, in two runs, and return each group's state and place."""
    with inturn.open(str(folder / "shop.db"), durable=False) as db:
        queue = db.queue("q", QueueSettings())
        for part in (history[: len(history) // 2], history[len(history) // 2 :]):
            for message in part:
                queue.send(message, group=message["g"])
            inturn.work(definition, queue, until="empty")
        inspector = DatabaseInspector(db, definition.name)
        assert inspector.order == StoredOrder(Stepped, has_epoch=False, start=1)
        groups = {group.group: (group.status, group.reached, group.held, group.state) for group in inspector.groups()}
        outputs = sorted(output.effect_id for output in inspector.outputs())
        rejected = sorted((str(record.group), record.reason) for record in inspector.rejected())
    return {"groups": groups, "outputs": outputs, "rejected": rejected}


def by_replay(result: Replay) -> dict[str, Any]:
    lines = result.timelines.items()
    return {
        "groups": {
            name: (timeline.status.value, timeline.reached, len(timeline.held), result.states[name])
            for name, timeline in lines
        },
        "outputs": sorted(output.effect_id for output in result.outputs),
        "rejected": sorted((str(record.group), record.reason) for record in result.rejected),
    }


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    strategy = st.fixed_dictionaries(
        {"g": st.sampled_from("ab"), "r": st.sampled_from([10, 20, 30, 40, 25]), "v": st.sampled_from([1, 2, 2, -1])}
    )
    return [
        {**message, "seq": index} for index, message in enumerate(draw(st.lists(strategy, min_size=1, max_size=12)))
    ]


@given(histories())
@settings(max_examples=15)
def test_a_custom_order_gives_the_same_result_in_every_engine(
    tmp_path_factory: pytest.TempPathFactory, history: list[dict[str, Any]]
) -> None:
    definition = pipeline()
    oracle = definition.replay(history)
    assert oracle.counts.balanced
    assert by_worker(tmp_path_factory.mktemp("worker"), definition, history) == by_replay(oracle)
    with Bench(definition, SCHEMA) as bench:
        bench.step(history)
        assert bench.seen() == expected(oracle, SCHEMA.names)


def test_a_custom_order_applies_its_own_rule() -> None:
    messages = [{"g": "a", "r": r, "v": r, "seq": index} for index, r in enumerate([20, 25, 10, 40, 10])]
    result = pipeline().replay(messages)
    assert result.states == {"a": [10, 20]}
    assert [entry.message["r"] for entry in result.held] == [40]
    assert [(rejected.reason, rejected.message["r"]) for rejected in result.rejected] == [("late", 25)]
    assert result.counts.duplicate == 1


def test_a_custom_order_checks_its_own_fields() -> None:
    with pytest.raises(PipelineError, match=r"Stepped\(step=0\)"):
        Pipeline(name="p", group="g", order=Stepped("r", 0), handler=note)


def named(node: ast.AST) -> set[str]:  # noqa: PLR0911 - one case a form of question
    """The names and texts that are compared: those of a node, of a tuple, of a union."""
    match node:
        case ast.Name(id=name) | ast.Constant(value=str(name)) | ast.Attribute(attr=name):
            return {name.removesuffix("Timeline")}
        case ast.Tuple(elts=parts) | ast.Set(elts=parts) | ast.List(elts=parts):
            return set().union(*map(named, parts))
        case ast.BinOp(left=left, right=right):
            return named(left) | named(right)
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kinds]):
            return named(kinds)
        case ast.Call(func=ast.Attribute(attr="startswith"), args=[texts]):
            return named(texts)
        case ast.MatchClass(cls=kind):
            return named(kind)
        case ast.Compare():
            return set().union(*map(named, [node.left, *node.comparators]))
    return set()


def test_no_code_tests_the_class_of_an_order() -> None:
    kinds = (ast.Call, ast.MatchClass, ast.Compare)
    type_checks = [
        f"{path.relative_to(SOURCES)}:{node.lineno}"
        for path in SOURCES.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, kinds) and named(node) & GRADES
    ]
    assert not type_checks, "an order says of itself what its traits are; see Order"
