"""The messages that the benchmarks are run on, and the handler that every contender runs.

A ledger: accounts are the groups, transactions the messages. Every benchmark takes its input from here, so that
their figures can be set side by side.
"""

import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from inturn import Gapless, Pipeline

CACHE = Path(tempfile.gettempdir()) / "inturn-benchmarks"
_VERSION = 1  # raise it when the generator changes: old files are then not taken for new ones
_OVERDRAFT = 1_000_000_000
_Ints = np.ndarray[Any, np.dtype[np.int64]]


class Transaction(msgspec.Struct):
    """A message: one change of one account."""

    account_id: str
    revision: int
    type: str
    amount: int
    tx_id: str


class Account(msgspec.Struct):
    """The state of an account."""

    balance: int = 0
    count: int = 0


class Declined(msgspec.Struct):
    """An output: a withdrawal beyond the balance."""

    tx_id: str
    amount: int
    balance: int


def apply(state: Account, message: Transaction) -> tuple[Account, list[Declined]]:
    """Deposit or withdraw; a withdrawal beyond the balance is declined."""
    if message.type == "deposit":
        return Account(state.balance + message.amount, state.count + 1), []
    if message.amount > state.balance:
        declined = Declined(message.tx_id, message.amount, state.balance)
        return Account(state.balance, state.count + 1), [declined]
    return Account(state.balance - message.amount, state.count + 1), []


LEDGER = Pipeline(
    name="ledger",
    group="account_id",
    order=Gapless("revision"),
    message=Transaction,
    state=Account,
    handler=apply,
    arrival="offset",
)


@dataclass(frozen=True)
class Workload:
    """A log of transactions: how many, of how many accounts, and how untidy. The same values give the same files.

    Attributes:
        messages: how many different messages, before some are lost and some are repeated.
        groups: how many accounts; each has the same number of messages, give or take one.
        duplicates: the share of messages that come twice.
        disorder: the share of messages that later ones of their account may overtake, by up to five.
        gaps: the share of messages that never come.
        parts: how many Parquet files, one after the other in the order of arrival.
        seed: of the generator.
    """

    messages: int = 1_000_000
    groups: int = 1_000
    duplicates: float = 0.02
    disorder: float = 0.05
    gaps: float = 0.0001
    parts: int = 4
    seed: int = 1

    def files(self, cache: Path = CACHE) -> str:
        """The directory with the Parquet files, written if it is not there yet."""
        values = "-".join(f"{name[:2]}{value}" for name, value in asdict(self).items())
        target = cache / f"ledger-v{_VERSION}-{values}"
        if not target.exists():
            cache.mkdir(parents=True, exist_ok=True)
            draft = Path(tempfile.mkdtemp(dir=cache, prefix=".draft-"))
            try:
                self._write(draft)
                draft.rename(target)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
        return str(target)

    def _write(self, folder: Path) -> None:
        rng = np.random.default_rng(self.seed)
        account, revision = self._arrivals(rng)
        total = len(account)
        # What a transaction says follows from which one it is, so that a duplicate is a true copy.
        once = np.random.default_rng(self.seed + 1)
        per = self.messages // self.groups + 2
        key = account * per + revision
        draws = once.integers(0, 100, self.groups * per)[key]
        amount = once.integers(1, 1000, self.groups * per)[key]
        withdraw = draws < 32
        amount[withdraw] //= 8  # accounts grow, so that few are declined by chance …
        amount[draws < 2] = _OVERDRAFT  # … and these always
        offset = np.arange(total)
        for number, rows in enumerate(np.array_split(offset, self.parts)):
            table = pa.table(
                {
                    "account_id": _named("acct-", account[rows]),
                    "revision": revision[rows],
                    "type": pa.DictionaryArray.from_arrays(
                        pa.array(withdraw[rows].astype(np.int8)), ["deposit", "withdraw"]
                    ).cast(pa.string()),
                    "amount": amount[rows],
                    "tx_id": _named("tx-", key[rows]),
                    "offset": rows,
                }
            )
            pq.write_table(table, folder / f"part-{number:04d}.parquet")

    def _arrivals(self, rng: np.random.Generator) -> tuple[_Ints, _Ints]:
        """Account and revision of each message in the order of arrival: all accounts advance side by side."""
        counts = np.full(self.groups, self.messages // self.groups)
        counts[: self.messages % self.groups] += 1
        account = np.repeat(np.arange(self.groups), counts)
        revision = np.arange(self.messages) - np.repeat(np.cumsum(counts) - counts, counts) + 1
        when = (revision * self.groups + rng.permutation(self.groups)[account]).astype(np.float64)
        overtaken = rng.random(self.messages) < self.disorder
        when[overtaken] += rng.random(overtaken.sum()) * 5 * self.groups
        present = np.flatnonzero(rng.random(self.messages) >= self.gaps)
        repeated = present[rng.random(len(present)) < self.duplicates]
        repeat_times = when[repeated] + rng.random(len(repeated)) * 3 * self.groups
        row = np.concatenate([present, repeated])
        row = row[np.argsort(np.concatenate([when[present], repeat_times]), kind="stable")]
        return account[row], revision[row]


def _named(prefix: str, numbers: _Ints) -> pa.Array:
    return pc.binary_join_element_wise(prefix, pa.array(numbers).cast(pa.string()), "")
