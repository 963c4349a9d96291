"""The ways to take a batch of transactions to states and outputs: inturn, and what a user would otherwise write.

Each writes what it finds to files, and each comes to the same: :class:`Outcome` is what is compared.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from workload import LEDGER, Account, Transaction, apply

import inturn.spark

if TYPE_CHECKING:
    import pandas as pd

# A row per account, with its outputs and held messages in it: for three tables Spark would do the work more than once,
# and one long table with a column for the kind of row costs a tenth more.
_DDL = (
    "account_id string, balance bigint, count bigint, "
    "outputs array<struct<revision: bigint, tx_id: string, amount: bigint, balance: bigint>>, "
    "held array<struct<revision: bigint, type: string, amount: bigint, tx_id: string>>"
)
_OUTPUTS = {"revision": pa.int64(), "tx_id": pa.string(), "amount": pa.int64(), "balance": pa.int64()}
_HELD = {"revision": pa.int64(), "type": pa.string(), "amount": pa.int64(), "tx_id": pa.string()}
_SCHEMA = pa.schema(
    {
        "account_id": pa.string(),
        "balance": pa.int64(),
        "count": pa.int64(),
        "outputs": pa.list_(pa.struct(_OUTPUTS)),
        "held": pa.list_(pa.struct(_HELD)),
    }
)


@dataclass(frozen=True)
class Outcome:
    """What a contender came to, sorted: balance and count of each account, and which messages declined or wait."""

    states: pa.Table
    outputs: pa.Table
    held: pa.Table

    @classmethod
    def of(cls, states: DataFrame, outputs: DataFrame, held: DataFrame) -> "Outcome":
        """From three tables in which other columns may be too."""
        place = ("account_id", "revision")
        return cls(
            _sorted(states.select("account_id", "balance", "count")),
            _sorted(outputs.select(*place)),
            _sorted(held.select(*place)),
        )


@dataclass(frozen=True)
class Contender:
    """One way to do it.

    Attributes:
        name: as the table shows it.
        run: does the work: the messages, the directory to write to, the number of partitions.
        outcome: reads what was written; None if nothing is.
        slow: whether it takes minutes where there are many groups.
    """

    name: str
    run: Callable[[DataFrame, str, int], None]
    outcome: Callable[[SparkSession, str], Outcome] | None = None
    slow: bool = False


def limit(events: DataFrame, out: str, buckets: int) -> None:  # noqa: ARG001 - it writes nothing
    """Only bring each group's messages together and in order: nothing that sorts with Spark can cost less."""
    rows = events.repartition(buckets, "account_id").sortWithinPartitions("account_id", "revision", "offset")
    rows.write.format("noop").mode("overwrite").save()


def by_inturn(events: DataFrame, out: str, buckets: int) -> None:
    inturn.spark.batch(LEDGER, events, store=out, buckets=buckets)


def by_arrow(events: DataFrame, out: str, buckets: int) -> None:  # noqa: ARG001 - spark.sql.shuffle.partitions
    groups = sequenced(events).groupBy("account_id").applyInArrow(fold_arrow, _DDL)
    groups.write.parquet(out)


def by_arrow_usual(events: DataFrame, out: str, buckets: int) -> None:  # noqa: ARG001 - as above
    groups = sequenced_as_usual(events).groupBy("account_id").applyInArrow(fold_arrow, _DDL)
    groups.write.parquet(out)


def by_pandas(events: DataFrame, out: str, buckets: int) -> None:  # noqa: ARG001 - spark.sql.shuffle.partitions
    groups = sequenced(events).groupBy("account_id").applyInPandas(fold_pandas, _DDL)
    groups.write.parquet(out)


def sequenced(events: DataFrame) -> DataFrame:
    """Each message once, the first that arrived, in order; ``in_turn`` is false behind a gap.

    The n-th of a group's revisions is n as long as none is missing. Written so that Spark shuffles and sorts only
    once, for both windows and for ``groupBy``.
    """
    arrivals = Window.partitionBy("account_id").orderBy("revision", "offset")
    once = events.withColumn("before", F.lag("revision").over(arrivals)).where("before IS NULL OR before <> revision")
    return _in_turn(once)


def sequenced_as_usual(events: DataFrame) -> DataFrame:
    """The same with the common idiom for the first of several; Spark shuffles by message, then by account."""
    copies = Window.partitionBy("account_id", "revision").orderBy("offset")
    return _in_turn(events.withColumn("copy", F.row_number().over(copies)).where("copy = 1"))


def _in_turn(once: DataFrame) -> DataFrame:
    place = F.row_number().over(Window.partitionBy("account_id").orderBy("revision"))
    messages = once.withColumn("in_turn", place == F.col("revision"))
    return messages.select("account_id", "revision", "type", "amount", "tx_id", "in_turn")


def fold(account: str, *columns: list[Any]) -> dict[str, Any]:
    """One group's row: its state, its outputs, what it holds."""
    revisions, types, amounts, ids, in_turn = columns
    count, state = sum(in_turn), Account()
    emitted = []
    for message in map(Transaction, [account] * count, revisions, types, amounts, ids):
        state, outputs = apply(state, message)
        if outputs:
            emitted += [
                {
                    "revision": message.revision,
                    "tx_id": output.tx_id,
                    "amount": output.amount,
                    "balance": output.balance,
                }
                for output in outputs
            ]
    rest = zip(*(column[count:] for column in (revisions, types, amounts, ids)), strict=True)
    held = [dict(zip(_HELD, values, strict=True)) for values in rest]
    return {
        "account_id": account,
        "balance": state.balance,
        "count": state.count,
        "outputs": emitted,
        "held": held,
    }


def fold_arrow(table: pa.Table) -> pa.Table:
    row = fold(table["account_id"][0].as_py(), *(column.to_pylist() for column in table.columns[1:]))
    return pa.Table.from_pylist([row], schema=_SCHEMA)


def fold_pandas(frame: "pd.DataFrame") -> "pd.DataFrame":
    import pandas as pd

    return pd.DataFrame([fold(frame["account_id"].iat[0], *(frame[name].tolist() for name in frame.columns[1:]))])


def outcome_of_inturn(spark: SparkSession, out: str) -> Outcome:
    tables = (inturn.spark.read(spark, out, name) for name in ("states", "outputs", "parked"))
    return Outcome.of(*(table.withColumnRenamed("group", "account_id") for table in tables))


def outcome_of_files(spark: SparkSession, out: str) -> Outcome:
    rows = spark.read.parquet(out)
    outputs, held = (
        rows.select("account_id", F.explode(name).alias("each")).select("account_id", "each.revision")
        for name in ("outputs", "held")
    )
    return Outcome.of(rows, outputs, held)


def _sorted(frame: DataFrame) -> pa.Table:
    is_new = hasattr(frame, "toArrow")  # from Spark 4.0 on
    table = frame.toArrow() if is_new else pa.Table.from_batches(frame._collect_as_arrow())
    return table.sort_by([(name, "ascending") for name in table.column_names]).combine_chunks()


CONTENDERS = {
    "limit": Contender("Spark's sort: the limit", limit),
    "inturn": Contender("inturn", by_inturn, outcome_of_inturn),
    "arrow": Contender("one sort, applyInArrow", by_arrow, outcome_of_files),
    "usual": Contender("two sorts, applyInArrow", by_arrow_usual, outcome_of_files),
    "pandas": Contender("one sort, applyInPandas", by_pandas, outcome_of_files, slow=True),
}
