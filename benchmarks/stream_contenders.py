"""The ways to take a stream of transactions to states and outputs: inturn, and what a user would otherwise write.

Each but the reference keeps the same in its state (balance, count, what came early) and emits the same, so that the
:class:`contenders.Outcome` of all can be compared: Spark's own state stores are read from their checkpoints.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from contenders import Contender, Outcome, outcome_of_inturn
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from workload import LEDGER, Account, Transaction, apply

import inturn.spark

if TYPE_CHECKING:
    import pandas as pd

AT_ONCE = {"availableNow": True}

# Spark's default keeps all state on the heap. Of RocksDB's settings these two are the ones its guide names for speed:
# write what changed rather than whole files, and do not read each key before it is written only to count the keys.
_ROCKSDB = "spark.sql.streaming.stateStore.rocksdb"
ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    f"{_ROCKSDB}.changelogCheckpointing.enabled": "true",
    f"{_ROCKSDB}.trackTotalNumberOfRows": "false",
}

_STATE = "standing binary"  # opaque: a state with lists in its schema is dearer, and breaks applyInPandasWithState
_MESSAGE = ("revision", "offset", "type", "amount", "tx_id")
_OUTPUT = ("account_id", "revision", "tx_id", "amount", "balance")
_OUTPUT_DDL = "account_id string, revision bigint, tx_id string, amount bigint, balance bigint"
_Message = tuple[int, int, str, int, str]
_Output = tuple[str, int, str, int, int]


@dataclass(frozen=True)
class StreamContender(Contender):
    """One way to do it as a stream.

    Attributes:
        settings: of the session, while it runs.
        needs: the modules without which it cannot run.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()


def checkpoint(out: str) -> str:
    """Where every contender keeps its checkpoint."""
    return str(Path(out) / "checkpoint")


# -- the reference, and inturn ---------------------------------------------------------------------------------


def by_drop_duplicates(events: DataFrame, out: str, buckets: int) -> None:  # noqa: ARG001 - as spark.sql.shuffle.partitions says
    """Only drop copies: no order, no handler. Its rows are read to the end and written nowhere."""
    once = events.dropDuplicates(["account_id", "revision"])
    writer = once.writeStream.format("noop").option("checkpointLocation", checkpoint(out))
    writer.trigger(availableNow=True).start().awaitTermination()


def by_inturn(events: DataFrame, out: str, buckets: int) -> None:
    store = Path(out) / "store"
    query = inturn.spark.stream(
        LEDGER, events, store=store, checkpoint=checkpoint(out), trigger=AT_ONCE, buckets=buckets
    )
    query.awaitTermination()


def outcome_of_store(spark: SparkSession, out: str) -> Outcome:
    return outcome_of_inturn(spark, str(Path(out) / "store"))


# -- with Spark's state store ----------------------------------------------------------------------------------


class Standing(msgspec.Struct, array_like=True):
    """What the state store keeps of an account.

    Attributes:
        balance: of the account.
        count: of the messages applied.
        due: the revision whose turn it is.
        held: what came early, by revision.
    """

    balance: int = 0
    count: int = 0
    due: int = 1
    held: list[_Message] = []

    @classmethod
    def of(cls, stored: Any) -> "Standing":
        """From the row in the state store; None if there is none yet."""
        return _decoder.decode(stored[0]) if stored is not None else cls()

    def row(self) -> tuple[bytes]:
        """The row for the state store."""
        return (_encoder.encode(self),)

    def take(self, account: str, messages: Iterable[_Message]) -> list[_Output]:
        """Apply what is due, hold what is early, drop copies: the first to arrive counts."""
        state, due = Account(self.balance, self.count), self.due
        held: list[_Message] = []
        emitted: list[_Output] = []
        for message in sorted([*self.held, *messages]):
            revision, _, kind, amount, tx_id = message
            if revision == due:
                state, outputs = apply(state, Transaction(account, revision, kind, amount, tx_id))
                due += 1
                for output in outputs:
                    emitted.append((account, revision, output.tx_id, output.amount, output.balance))  # noqa: PERF401
            elif revision > due and not (held and held[-1][0] == revision):
                held.append(message)
        self.balance, self.count, self.due, self.held = state.balance, state.count, due, held
        return emitted


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Standing)


def by_apply_in_pandas(events: DataFrame, out: str, buckets: int) -> None:  # noqa: ARG001 - as above
    groups = events.groupBy("account_id")
    outputs = groups.applyInPandasWithState(advance, _OUTPUT_DDL, _STATE, "append", GroupStateTimeout.NoTimeout)
    _write(outputs, out)


def advance(key: tuple[str], frames: Iterator["pd.DataFrame"], state: GroupState) -> Iterator["pd.DataFrame"]:
    """One account's messages of one micro-batch."""
    standing = Standing.of(state.getOption)
    emitted = standing.take(key[0], _rows_of(frames))
    state.update(standing.row())
    yield from _frames_of(emitted)


class _Processor(StatefulProcessor):
    """What the two forms of transformWithState share: one value per account, since each access is a round trip."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("standing", _STATE)

    def _take(self, account: str, messages: Iterable[_Message]) -> list[_Output]:
        standing = Standing.of(self._state.get())
        emitted = standing.take(account, messages)
        self._state.update(standing.row())
        return emitted


class PandasProcessor(_Processor):
    """For transformWithStateInPandas."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator["pd.DataFrame"]:  # noqa: N802, N803 - Spark's names
        """One account's messages of one micro-batch."""
        yield from _frames_of(self._take(key[0], _rows_of(rows)))


class RowProcessor(_Processor):
    """For transformWithState."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803 - Spark's names
        """One account's messages of one micro-batch."""
        messages = [tuple(row[name] for name in _MESSAGE) for row in rows]
        for output in self._take(key[0], messages):
            yield Row(**dict(zip(_OUTPUT, output, strict=True)))


def by_transform_in_pandas(events: DataFrame, out: str, buckets: int) -> None:  # noqa: ARG001 - as above
    groups = events.groupBy("account_id")
    _write(groups.transformWithStateInPandas(PandasProcessor(), _OUTPUT_DDL, "Append", "None"), out)


def by_transform(events: DataFrame, out: str, buckets: int) -> None:  # noqa: ARG001 - as above
    _write(events.groupBy("account_id").transformWithState(RowProcessor(), _OUTPUT_DDL, "Append", "None"), out)


def _rows_of(frames: Iterable["pd.DataFrame"]) -> list[_Message]:
    return [row for frame in frames for row in zip(*(frame[name].tolist() for name in _MESSAGE), strict=True)]


def _frames_of(outputs: list[_Output]) -> Iterator["pd.DataFrame"]:
    """A frame, only where there is something to emit: making one costs more than the rest."""
    if outputs:
        import pandas as pd

        yield pd.DataFrame(outputs, columns=list(_OUTPUT))


def _write(outputs: DataFrame, out: str) -> None:
    writer = outputs.writeStream.format("parquet").option("checkpointLocation", checkpoint(out))
    writer.trigger(availableNow=True).start(str(Path(out) / "outputs")).awaitTermination()


def outcome_of_apply(spark: SparkSession, out: str) -> Outcome:
    states = spark.read.format("statestore").load(checkpoint(out))
    return _outcome(spark, states.select("key.account_id", "value.groupState.standing"), out)


def outcome_of_transform(spark: SparkSession, out: str) -> Outcome:
    states = spark.read.format("statestore").option("stateVarName", "standing").load(checkpoint(out))
    return _outcome(spark, states.select("key.account_id", "value.standing"), out)


def _outcome(spark: SparkSession, states: DataFrame, out: str) -> Outcome:
    rows = [(row.account_id, _decoder.decode(row.standing)) for row in states.collect()]
    accounts = pa.table(
        {
            "account_id": [account for account, _ in rows],
            "balance": [standing.balance for _, standing in rows],
            "count": [standing.count for _, standing in rows],
        }
    )
    held = [(account, message[0]) for account, standing in rows for message in standing.held]
    messages = pa.table(
        {
            "account_id": pa.array([account for account, _ in held], pa.string()),
            "revision": pa.array([revision for _, revision in held], pa.int64()),
        }
    )
    outputs = spark.read.schema(_OUTPUT_DDL).parquet(str(Path(out) / "outputs"))
    return Outcome.of(spark.createDataFrame(accounts), outputs, spark.createDataFrame(messages))


CONTENDERS = {
    "dedup": StreamContender("dropDuplicates alone", by_drop_duplicates, settings=ROCKSDB),
    "inturn": StreamContender("inturn", by_inturn, outcome_of_store),
    "apply": StreamContender(
        "applyInPandasWithState", by_apply_in_pandas, outcome_of_apply, slow=True, settings=ROCKSDB, needs=("pandas",)
    ),
    "pandas": StreamContender(
        "transformWithStateInPandas",
        by_transform_in_pandas,
        outcome_of_transform,
        slow=True,
        settings=ROCKSDB,
        needs=("pandas", "google.protobuf"),
    ),
    "rows": StreamContender(
        "transformWithState",
        by_transform,
        outcome_of_transform,
        slow=True,
        settings=ROCKSDB,
        needs=("google.protobuf",),
    ),
}
