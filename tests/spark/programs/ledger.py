"""A ledger as a user would write it, in a file of its own: tests, commands and other processes all load it."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from inturn import Gapless, Pipeline

DDL = "account string, revision bigint, amount bigint"


@dataclass(frozen=True)
class Transfer:
    """One message."""

    account: str
    revision: int
    amount: int


class Account(msgspec.Struct):
    """What is kept of an account."""

    balance: int = 0
    seen: list[int] = []

    def take(self, amount: int, revision: int) -> None:
        """Another order would give another balance."""
        self.balance = (self.balance * 31 + amount) % 1_000_003
        self.seen.append(revision)


class Posted(msgspec.Struct):
    """One output."""

    balance: int


def apply(account: Account, transfer: Transfer) -> tuple[Account, list[Posted]]:
    """Changes the account in place, and only then finds out that the amount is not allowed."""
    account.take(transfer.amount, transfer.revision)
    if transfer.amount < 0:
        msg = f"amount {transfer.amount} is below zero"
        raise ValueError(msg)
    return account, [Posted(account.balance)] * (transfer.amount % 3)


def pipeline(handler: Callable[[Any, Any], Any] = apply, **more: Any) -> Pipeline:
    """The ledger, with another handler or other arguments."""
    return Pipeline(
        **{
            "name": "ledger",
            "group": "account",
            "order": Gapless("revision"),
            "message": Transfer,
            "state": Account,
            "handler": handler,
            **more,
        }
    )


ledger = pipeline()


def history(seed: int, accounts: int = 30) -> list[dict[str, Any]]:
    """A few hundred messages out of order: some twice or more, some missing for ever, two that no handler takes."""
    chance = random.Random(seed)
    messages = [
        {"account": f"acct-{number}", "revision": revision, "amount": chance.randrange(1000)}
        for number in range(accounts)
        for revision in range(1, chance.randint(4, 20))
    ]
    for account in ("acct-1", "acct-2"):
        messages += [{"account": account, "revision": 20 + offset, "amount": 1} for offset in (2, 3, 5)]
    bad = [message for message in messages if message["account"] in ("acct-3", "acct-4") and message["revision"] == 2]
    for message in bad:
        message["amount"] = -1
    lost = chance.sample([message for message in messages if message not in bad], k=accounts // 6)
    remaining = [message for message in messages if message not in lost]
    copies = [dict(message) for message in chance.choices(remaining, k=len(remaining) // 5)]
    delivered = remaining + copies
    chance.shuffle(delivered)
    return delivered


def cut(messages: Sequence[Any], steps: int) -> list[list[Any]]:
    """The messages as a number of batches, as they come."""
    size = -(-len(messages) // steps)
    return [list(messages[start : start + size]) for start in range(0, len(messages), size)]
