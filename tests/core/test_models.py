"""Models of pydantic as messages, states, outputs, bodies and arguments: like a dataclass with the same fields."""

import datetime as dt
import enum
import subprocess
import sys
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Generic, Literal, TypeVar

import msgspec
import pytest
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, PrivateAttr, RootModel, computed_field, field_validator

import inturn
from inturn import Gapless, Monotone, Pipeline
from inturn.core.errors import InputError, KeyConflict, PipelineError, StateError, ValueRefused
from inturn.core.identity import canonical
from inturn.core.pipeline.replay import Replay
from inturn.core.values.states import StateNormalizer
from inturn.idempotency import MemoryKeys, idempotent
from inturn.testing import disorder, same
from inturn.worker.codec import WorkerStateCodec

Row = dict[str, Any]
T = TypeVar("T")


class Kind(enum.Enum):
    IN = "in"
    OUT = "out"


class Line(BaseModel):
    sku: str
    price: Decimal = Decimal("1.50")
    raw: bytes | None = None


class Order(BaseModel):
    model_config = ConfigDict(frozen=True)
    account: str
    revision: int = Field(validation_alias=AliasChoices("version", "orderRevision"))
    amount: int = Field(gt=0, alias="orderAmount")
    kind: Kind = Kind.IN
    at: dt.datetime | None = None
    wait: dt.timedelta | None = None
    ref: uuid.UUID | None = None
    mode: Literal["a", "b"] = "a"
    data: bytes = b""
    tags: set[str] = set()
    lines: list[Line] = Field(default_factory=list)

    @field_validator("mode", mode="before")
    @classmethod
    def lower(cls, value: Any) -> Any:
        return value.lower() if isinstance(value, str) else value


@dataclass(frozen=True)
class PlainLine:
    sku: str
    price: Decimal = Decimal("1.50")
    raw: bytes | None = None


@dataclass(frozen=True)
class PlainOrder:
    account: str
    revision: int
    amount: int
    kind: Kind = Kind.IN
    at: dt.datetime | None = None
    wait: dt.timedelta | None = None
    ref: uuid.UUID | None = None
    mode: Literal["a", "b"] = "a"
    data: bytes = b""
    tags: set[str] = field(default_factory=set)
    lines: list[PlainLine] = field(default_factory=list)


class Balance(BaseModel):
    total: int = 0
    at: dt.datetime | None = None
    lines: dict[str, Line] = Field(default_factory=dict)
    raw: bytes = b""
    tags: frozenset[str] = frozenset()


class Paid(BaseModel):
    total: int
    tags: set[str] = {"b", "a"}

    @computed_field  # type: ignore[prop-decorator]
    @property
    def half(self) -> float:
        return self.total / 2


def pay(state: Balance, message: Order) -> tuple[Balance, list[Paid]]:
    assert type(state) is Balance
    assert type(message) is Order
    total = state.total + message.amount
    lines = {**state.lines, **{item.sku: item for item in message.lines}}
    balance = Balance(total=total, at=message.at, lines=lines, raw=message.data, tags=frozenset(message.tags))
    return balance, [Paid(total=total)]


def ledger(**more: Any) -> Pipeline:
    options = {"order": Gapless("revision"), "message": Order, "state": Balance, "handler": pay, **more}
    return Pipeline(name="ledger", group="account", **options)


FULL: Row = {
    "account": "a",
    "revision": 1,
    "amount": 5,
    "kind": "out",
    "at": "2024-02-03T04:05:06.000007Z",
    "wait": "P1DT2.5S",
    "ref": "12345678-1234-5678-1234-567812345678",
    "mode": "B",
    "data": "aGk=",
    "tags": ["x", "y"],
    "lines": [{"sku": "s", "price": "2.50", "raw": "/wA="}, {"sku": "t", "price": None}],
}
MESSAGES: list[Row] = [
    FULL,
    {"account": "a", "revision": 2, "amount": -5},
    {"account": "a", "revision": 2, "amount": 7, "lines": [{"sku": "t"}]},
    {"account": "a", "revision": 3, "amount": 1, "kind": "sideways"},
    {"account": "b", "revision": 1, "amount": 3, "tags": ["z"]},
    {"account": "b", "revision": 2},
]


def told(replay: Replay) -> list[str]:
    return [rejection.detail for rejection in replay.rejected]


def test_a_pydantic_model_equals_a_dataclass_with_the_same_fields() -> None:
    model = Order.model_validate({**FULL, "version": 1, "orderAmount": 5, "data": b"hi", "lines": []})
    plain = msgspec.convert({**FULL, "mode": "b", "lines": []}, PlainOrder, strict=False)
    assert canonical(model) == canonical(plain)
    histories = [
        Pipeline(
            name="p",
            group="account",
            order=Monotone("revision"),
            message=kind,
            state=dict,
            handler=lambda state, message: (state, [message]),
        ).replay([given, given])
        for kind, given in ((Order, model), (PlainOrder, plain))
    ]
    one, other = ([output.effect_id for output in history.outputs] for history in histories)
    assert one == other
    assert [history.counts.duplicate for history in histories] == [1, 1]


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(5))
def test_worker_equals_replay_with_pydantic_models(seed: int) -> None:
    history = [{"account": a, "revision": n, "amount": n, "lines": [{"sku": a}]} for n in range(1, 9) for a in "abc"]
    same(ledger(), [*disorder(history, seed=seed), *MESSAGES], seed=seed)


def test_a_message_is_validated_by_its_pydantic_model() -> None:
    result = ledger().replay(MESSAGES)
    assert told(result) == [
        "it is not a valid Order: amount: Input should be greater than 0",
        "it is not a valid Order: kind: Input should be 'in' or 'out'",
        "amount is null, expected int",
    ]
    state = result.states["a"]
    assert (state.total, state.raw) == (12, b"")
    assert state.lines == {"s": Line(sku="s", price=Decimal("2.50"), raw=b"\xff\x00"), "t": Line(sku="t")}


def test_a_message_may_use_field_aliases() -> None:
    aliased = {"account": "a", "orderRevision": 1, "orderAmount": 5}
    named = {"account": "a", "revision": 1, "amount": 5}
    assert ledger().replay([aliased, named]).counts.duplicate == 1
    same(ledger(), [named])
    with inturn.open(":memory:") as db:
        queue = db.queue("q")
        queue.send(Order.model_validate(aliased))
        (message,) = queue.receive()
        assert message.body["amount"] == 5  # bodies have the names


def test_strict_models_accept_json_values() -> None:
    class Strict(BaseModel):
        model_config = ConfigDict(strict=True)
        account: str
        revision: int
        at: dt.datetime
        price: Decimal

    def keep(state: Row, message: Strict) -> tuple[Row, list[str]]:
        return state, [message.at.isoformat(), str(message.price)]

    pipe = ledger(message=Strict, state=dict, handler=keep)
    rows: list[Row] = [
        {"account": "a", "revision": 1, "at": "2024-01-01T00:00:00Z", "price": "1.5"},
        {"account": "a", "revision": 2, "at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "price": Decimal("1.5")},
        {"account": "a", "revision": "3", "at": "2024-01-01T00:00:00Z", "price": "1.5"},
    ]
    result = pipe.replay(rows[:2])
    assert [output.output for output in result.outputs] == ["2024-01-01T00:00:00+00:00", "1.5"] * 2
    same(pipe, [rows[0], Strict.model_validate(rows[1])])
    (rejected,) = pipe.replay(rows).rejected
    assert (rejected.reason, rejected.group) == ("invalid", "a")
    assert "revision" in rejected.detail


def test_a_model_state_has_one_normal_form() -> None:
    normal = StateNormalizer(Balance)
    shared = Line(sku="s")
    partly = Balance(total=1, lines={"a": shared, "b": shared})
    normalized = normal(partly)
    assert normalized == partly
    assert normalized.lines["a"] is not normalized.lines["b"]  # they would come back as two
    assert normalized.model_fields_set == set(Balance.model_fields)  # as they all are when it is read again
    assert normal(normalized) is normalized
    aware = dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    assert normal(Balance(at=aware)).at.tzinfo is dt.UTC
    with pytest.raises(ValueRefused, match=r"state\.at is .* time zone; add one"):
        normal(Balance(at=dt.datetime(2024, 1, 1)))  # noqa: DTZ001 - that is the test
    with pytest.raises(ValueRefused, match=r"state\.total"):
        normal(Balance.model_construct(total="many"))


def test_models_with_private_extra_or_root_fields_are_refused_as_state() -> None:
    class Secret(BaseModel):
        total: int = 0
        _seen: int = PrivateAttr(0)

    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")

    class Names(RootModel[list[str]]):
        root: list[str] = []

    for kind, reason in (
        (Secret, "private attribute '_seen'"),
        (Open, "extra fields that it allows"),
        (Names, "Names"),
    ):
        with pytest.raises(StateError, match=reason):
            StateNormalizer(kind)
    with pytest.raises(PipelineError, match="expected a dataclass"):
        ledger(message=Names)


def test_generic_and_recursive_models_work() -> None:
    class Envelope(BaseModel, Generic[T]):
        account: str
        revision: int
        of: T

    class Tree(BaseModel):
        name: str = ""
        parts: list["Tree"] = []

    def graft(state: Tree, message: Any) -> tuple[Tree, list[Any]]:
        assert type(message.of) is Line
        return Tree(name=message.of.sku, parts=[state]), []

    pipe = ledger(message=Envelope[Line], state=Tree, handler=graft)
    result = same(pipe, [{"account": "a", "revision": n, "of": {"sku": str(n)}} for n in (1, 2)])
    assert result.states["a"]["parts"][0]["name"] == "1"


def test_an_output_model_is_serialized_as_pydantic_does() -> None:
    with inturn.open(":memory:") as db:
        queue = db.queue("q")
        queue.send(Paid(total=3), group="a")
        (message,) = queue.receive()
        assert message.body | {"tags": sorted(message.body["tags"])} == {"total": 3, "tags": ["a", "b"], "half": 1.5}
        with pytest.raises(InputError, match=r"body\.score is nan"):
            queue.send(Score(score=float("nan")))
    pipe = ledger(handler=lambda state, _message: (state, [Score(score=float("inf"))]))
    result = pipe.replay(MESSAGES[:1])
    assert "outputs[0].score is inf" in (result.timelines["a"].error or "")
    same(pipe, MESSAGES[:1])


class Score(BaseModel):
    score: float


class OldBalance(BaseModel):
    total: int = 0


def test_states_of_an_older_model_are_upgraded() -> None:
    first = ledger(state=OldBalance, handler=lambda state, m: (OldBalance(total=state.total + m.amount), []))
    before = first.replay(MESSAGES[:1])
    grown = ledger().replay([{**FULL, "revision": 2}], after=before)
    assert grown.states["a"].total == 10

    def upgrade(state: Row, version: int) -> Balance:
        assert version == 1
        return Balance(total=state["total"] * 100)

    assert ledger(version=2, upgrade=upgrade).replay([{**FULL, "revision": 2}], after=before).states["a"].total == 505


@dataclass(frozen=True)
class Held:
    last: Line | None = None
    seen: list[Line] = field(default_factory=list)


@dataclass(frozen=True)
class Carrier:
    account: str
    revision: int
    line: Line
    more: list[Line] = field(default_factory=list)


def test_models_inside_dataclasses_work() -> None:
    def hold(state: Held, message: Carrier) -> tuple[Held, list[Any]]:
        assert type(message.line) is Line
        assert [type(item) for item in message.more] == [Line] * len(message.more)
        return Held(message.line, [*state.seen, message.line, *message.more]), [message.line]

    rows: list[Row] = [
        {"account": "a", "revision": 1, "line": {"sku": "s", "raw": "/wA="}, "more": [{"sku": "t", "price": None}]},
        {"account": "a", "revision": 2, "line": {"sku": None}},
        {"account": "a", "revision": 2, "line": {"sku": "u", "price": "2.5"}},
    ]
    result = same(ledger(message=Carrier, state=Held, handler=hold), rows)
    assert [item["sku"] for item in result.states["a"]["seen"]] == ["s", "t", "u"]
    assert result.rejected == {"a": {"invalid": 1}}


def test_worker_state_codec_decodes_a_state_of_an_older_model() -> None:
    now = WorkerStateCodec(ledger())
    stored = WorkerStateCodec(ledger(state=OldBalance)).encode(OldBalance(total=5))
    grown = now.decode(stored)
    assert grown == Balance(total=5)
    assert ledger().normalize(grown) is grown
    with pytest.raises(StateError, match="no longer a valid Balance"):
        now.decode(WorkerStateCodec(ledger(state=dict)).encode({"total": "many"}))


def test_idempotent_accepts_model_arguments_and_results() -> None:
    keys, ran = MemoryKeys(), []

    @idempotent(key=lambda order: order.account, store=keys, result_type=Paid)
    def charge(order: Order) -> Paid:
        ran.append(order)
        return Paid(total=order.amount)

    one, again, other = (Order.model_validate({**FULL, "version": 1, "orderAmount": n, "lines": []}) for n in (5, 5, 6))
    assert charge(one) == charge(again) == Paid(total=5)
    assert len(ran) == 1
    with pytest.raises(KeyConflict):
        charge(other)


def test_pydantic_is_not_imported_unless_used() -> None:
    program = """
import sys, dataclasses, inturn, inturn.worker, inturn.testing
@dataclasses.dataclass
class M:
    g: str
    n: int
line = inturn.Pipeline(name="p", group="g", order=inturn.Gapless("n"), message=M, handler=lambda s, m: (s, [m]))
inturn.testing.same(line, [{"g": "a", "n": 1}])
sys.exit(sorted({"pydantic", "pydantic_core", "sqlalchemy", "django"} & set(sys.modules)) or 0)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
