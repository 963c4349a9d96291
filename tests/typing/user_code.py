"""Code as users write it, which is read by type checkers alone: what is wrong is marked with ``# error``."""

from dataclasses import dataclass, field
from typing import Any, Literal, assert_type

import msgspec

import inturn
from inturn import Arrival, Gapless, Monotone, Pipeline, ToQueue, Wait, pipelines
from inturn.core.pipeline.replay import Replay


@dataclass
class Transaction:
    """A message."""

    account: str
    revision: int
    amount: int


class Order(msgspec.Struct):
    """A message of another kind."""

    account: str
    revision: int


@dataclass
class Account:
    """A state."""

    balance: int = 0
    notes: list[str] = field(default_factory=list)


@dataclass
class Posted:
    """An output."""

    amount: int


@dataclass
class Declined:
    """Another output."""

    why: Literal["poor", "closed"]


# --- handlers that fit ---


def post(account: Account, message: Transaction) -> tuple[Account, list[Posted]]:
    return Account(account.balance + message.amount), [Posted(message.amount)]


def post_or_decline(account: Account, message: Transaction) -> tuple[Account, list[Posted | Declined]]:
    if message.amount < 0:
        return account, [Declined("poor")]
    return account, [Posted(message.amount)]


def in_a_tuple(account: Account, message: Transaction) -> tuple[Account, tuple[Posted, ...]]:
    return account, (Posted(message.amount),)


def quiet(account: Account, _message: object) -> tuple[Account, list[Any]]:
    return account, []


def plain(state: dict[str, int], message: dict[str, Any]) -> tuple[dict[str, int], list[str]]:
    return {**state, "n": state.get("n", 0) + 1}, [str(message["id"])]


def untyped(state, message):  # type: ignore[no-untyped-def] # as in a notebook
    return state, [message]


ledger = Pipeline(
    name="ledger",
    group="account",
    order=Gapless("revision"),
    message=Transaction,
    state=Account,
    handler=post,
    on_gap=Wait("10 minutes", then="park"),
)
assert_type(ledger, Pipeline[Transaction, Account, Posted])
result = ledger.replay([Transaction("a", 1, 5), {"account": "a", "revision": 2, "amount": 5}], final=False)
assert_type(result, Replay[Account, Posted])
assert_type(result.states["a"].balance, int)
assert_type([output.output for output in result.outputs], list[Posted])
ledger.replay([Transaction("a", 3, 5)], after=result)

either = Pipeline(
    name="e", group="account", order=Gapless("revision"), message=Transaction, state=Account, handler=post_or_decline
)
assert_type(either, Pipeline[Transaction, Account, Posted | Declined])
tupled = Pipeline(
    name="t", group="account", order=Gapless("revision"), message=Transaction, state=Account, handler=in_a_tuple
)
assert_type(tupled, Pipeline[Transaction, Account, Posted])
wide = Pipeline(name="w", group="account", order=Gapless("revision"), message=Order, state=Account, handler=quiet)
dicts = Pipeline(name="d", group="account", order=Arrival(), id="id", handler=plain)
assert_type(dicts, Pipeline[dict[str, Any], dict[str, int], str])
dicts.replay([{"account": "a", "id": 1}])
made: Pipeline[Transaction, Account, Posted] = Pipeline(
    name="m", group="account", order=Monotone("revision"), message=Transaction, state=lambda: Account(5), handler=post
)
Pipeline(name="u", group="account", order=Gapless("revision"), message=Transaction, state=Account, handler=untyped)
Pipeline(name="l", group="account", order=Gapless("revision"), handler=lambda state, message: (state, [message]))
any_pipeline: Pipeline = ledger
"""Without parameters it is a pipeline of anything."""


def runs(pipeline: Pipeline) -> None:
    with inturn.open("shop.db") as db:
        inturn.work(pipeline, db.queue("payments"), deliver=ToQueue("invoices"), until="empty")


runs(ledger)
runs(either)


# --- handlers that do not ---

ORDER = Gapless("revision")


def of_orders(account: Account, message: Order) -> tuple[Account, list[Posted]]:
    return account, []


def of_numbers(state: int, message: Transaction) -> tuple[int, list[Posted]]:
    return state + message.amount, []


def without_outputs(account: Account, _message: Transaction) -> Account:
    return account


def with_one_output(account: Account, _message: Transaction) -> tuple[Account, str]:
    return account, "posted"


async def awaited(account: Account, _message: Transaction) -> tuple[Account, list[Posted]]:
    return account, []


def of_one(account: Account) -> tuple[Account, list[Posted]]:
    return account, []


def forgetful(_account: Account, _message: Transaction) -> tuple[None, list[Posted]]:
    return None, []


Pipeline(name="x", group="account", order=ORDER, message=Transaction, state=Account, handler=of_orders)  # error
Pipeline(name="x", group="account", order=ORDER, message=Transaction, state=Account, handler=of_numbers)  # error
Pipeline(name="x", group="account", order=ORDER, message=Transaction, state=Account, handler=without_outputs)  # error
Pipeline(name="x", group="account", order=ORDER, message=Transaction, state=Account, handler=with_one_output)  # error
Pipeline(name="x", group="account", order=ORDER, message=Transaction, state=Account, handler=awaited)  # error
Pipeline(name="x", group="account", order=ORDER, message=Transaction, state=Account, handler=of_one)  # error
Pipeline(name="x", group="account", order=ORDER, message=Transaction, state=Account, handler=forgetful)  # error
Pipeline(name="x", group="account", order=ORDER, message=Transaction, state=Transaction, handler=post)  # error
Pipeline(name="x", group="account", order="revision", message=Transaction, state=Account, handler=post)  # error
ledger.replay([Order("a", 1)])  # error
ledger.replay([Transaction("a", 1, 5)], after=dicts.replay([]))  # error
_ = result.states["a"].limit  # error
_ = either.replay([]).outputs[0].output.amount  # error
wrong: Pipeline[Order, Account, Posted] = ledger  # error
Wait("10 minutes", then="give up")  # error

pipelines.latest("accounts", group="account", order=Monotone("revision"), row="after", on_invalid="fail")
pipelines.latest("accounts", group="account", order=Monotone("revision"), dedup="id")  # error
pipelines.count("accounts", group="account", order=Monotone("revision"), version="2")  # error
pipelines.sum("accounts", group="account", order=Monotone("revision"), field="amount", number=int)
pipelines.sum("accounts", group="account", order=Monotone("revision"), field="amount", number=str)  # error
