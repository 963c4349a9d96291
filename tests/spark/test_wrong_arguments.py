"""Wrong arguments of inturn.spark: an InputError names the parameter, the value and what was expected."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import inturn.spark
from inturn import Gapless, Pipeline
from inturn.core.errors import InputError
from inturn.ingest import MessageMapping

LEDGER = Pipeline(name="ledger", group="account", order=Gapless("revision"), handler=lambda state, _: (state, []))

WRONG: dict[str, Callable[[Any], object]] = {
    "pipeline is 3; expected a Pipeline": lambda df: inturn.spark.batch(3, df, store="s"),  # type: ignore[arg-type]
    "df is None; expected a DataFrame": lambda _: inturn.spark.batch(LEDGER, None, store="s"),  # type: ignore[arg-type]
    "pipeline is 4; expected": lambda df: inturn.spark.stream(4, df, store="s", checkpoint="c"),  # type: ignore[arg-type]
    "df is 3; expected": lambda _: inturn.spark.stream(LEDGER, 3, store="s", checkpoint="c"),  # type: ignore[arg-type]
    "pipeline is 5; expected": lambda _: inturn.spark.advance(5, store="s"),  # type: ignore[arg-type]
    "pipeline is 6; expected": lambda df: inturn.spark.messages(6, df),  # type: ignore[arg-type]
    "df is 4; expected": lambda _: inturn.spark.messages(LEDGER, 4),  # type: ignore[arg-type]
    "df is 5; expected": lambda _: inturn.spark.from_kafka(5, MessageMapping()),  # type: ignore[arg-type]
    "mapping is 3; expected": lambda df: inturn.spark.from_kafka(df, 3),  # type: ignore[arg-type]
    "decode is 3; expected": lambda df: inturn.spark.from_kafka(df, MessageMapping(), decode=3),  # type: ignore[arg-type]
    "df is 6; expected": lambda _: inturn.spark.debezium(6),  # type: ignore[arg-type]
    "df is 'x'; expected": lambda _: inturn.spark.audit("x", group="account"),  # type: ignore[arg-type]
    "spark is 3; expected a SparkSession": lambda _: inturn.spark.read(3, "s", "states"),  # type: ignore[arg-type]
    "spark is 4; expected a SparkSession": lambda _: inturn.spark.outputs(4, "s"),  # type: ignore[arg-type]
    "spark is 5; expected a SparkSession": lambda _: inturn.spark.register(5),  # type: ignore[arg-type]
    "store is 3; expected the path": lambda _: inturn.spark.store(3),  # type: ignore[arg-type]
    "store is None; expected the path": lambda df: inturn.spark.batch(LEDGER, df, store=None),  # type: ignore[arg-type]
    "keep_steps is 'x'; expected": lambda _: inturn.spark.vacuum("s", keep_steps="x"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_argument_of_inturn_spark_is_named_with_its_value(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    df = spark.createDataFrame([("a", 1)], "account string, revision bigint")
    with pytest.raises(InputError, match=text):
        WRONG[text](df)
    assert not list(tmp_path.iterdir())


def test_an_unknown_column_error_lists_the_columns_without_reserved_ones(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.createDataFrame([("a", 1, None)], "acount string, revision bigint, __inturn_corrupt_record string")
    with pytest.raises(InputError, match=r"no column 'account', .*; existing columns: acount, revision$"):
        inturn.spark.batch(LEDGER, df, store=tmp_path / "store")
