"""Every type that this Spark has: carried as docs/spark-types.md says, or invalid alone, or refused in words."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from type_rows import assert_each_alone, pipelines
from type_table import CARRIED, REFUSED, there_are

from inturn.core.errors import InputError
from inturn.spark import batch

NAMES = [name for name in there_are(CARRIED) if name != "TimeType"]  # which not every Spark that has it lets one use


def test_every_supported_spark_type_is_converted_or_makes_only_its_message_invalid(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert_each_alone(spark, [CARRIED[name] for name in NAMES], tmp_path)


@pytest.mark.parametrize("name", [name for name in REFUSED if there_are([name]) or name == "CalendarIntervalType"])
def test_an_unsupported_spark_column_type_is_refused_by_name(spark: SparkSession, tmp_path: Path, name: str) -> None:
    df = spark.range(1).selectExpr("'a' AS g", "1 AS r", f"{REFUSED[name]} AS c0")
    with pytest.raises(InputError, match=r"'c0' is .*, which messages do not support: "):
        batch(next(pipelines([])), df, store=tmp_path / "store")
