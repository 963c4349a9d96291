"""An audit of what Spark holds and Python does not: counted as unreadable, or refused in words."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from type_rows import GOOD, frame
from type_table import CARRIED, INVALID, REFUSED, there_are

from inturn.core.errors import InputError
from inturn.spark.audit.report import FaultKind
from inturn.spark.audit.run import audit

SEEN = set(CARRIED) - {"ArrayType", "MapType", "TimeType"}
"""Types within which every value is looked at."""


@pytest.mark.slow
def test_rows_invalid_for_a_pipeline_are_counted_as_unreadable(spark: SparkSession, tmp_path: Path) -> None:
    df, groups = frame(spark, [CARRIED[name] for name in there_are(sorted(SEEN))])
    invalid = sum(value is INVALID for _, _, value in groups.values())
    report = audit(df, group="g", order="r", out=str(tmp_path / "out"))
    assert {kind: count.messages for kind, count in report.found.items()} == {FaultKind.UNREADABLE: invalid}
    assert (report.messages, report.groups) == (len(groups) + GOOD, len(groups) - invalid + 1)
    assert (tmp_path / "out" / "report.html").exists()


def rows(spark: SparkSession, *values: str) -> DataFrame:
    """Two messages of one group for each value, ``v``."""
    texts = (f"('a', {index}, {value})" for index, value in enumerate([*values, *values], 1))
    return spark.sql(f"SELECT * FROM VALUES {', '.join(texts)} AS t(g, r, v)")  # noqa: S608 - ours


def test_group_names_that_are_not_utf8_are_counted_as_unreadable(spark: SparkSession, tmp_path: Path) -> None:
    """Two names, of which Java makes the same characters."""
    df = rows(spark, "CAST(X'636166E9' AS string)", "CAST(X'636166E8' AS string)", "'caf'")
    report = audit(df, group="v", order="r", out=str(tmp_path / "out"))
    assert report.found[FaultKind.UNREADABLE].messages == 4
    assert report.groups == 1


@pytest.mark.slow
@pytest.mark.parametrize("part", ["order_by", "time", "arrival", "group", "id"])
def test_dates_and_times_beyond_the_python_range_are_counted_as_unreadable(spark: SparkSession, part: str) -> None:
    """The greatest day of Spark has no microsecond."""
    day, time = "date_from_unix_date(2147483647)", "timestamp_micros(9223372036854775807)"
    for number, df in enumerate([rows(spark, "DATE'2024-01-01'", day), rows(spark, "TIMESTAMP'2024-01-01'", time)]):
        if part == "arrival" and not number:
            continue  # no pipeline has days there
        place: dict[str, Any] = {"group": "g"} | ({} if part == "order_by" else {"order": "r"}) | {part: "v"}
        report = audit(df, **place)
        assert report.found[FaultKind.UNREADABLE].messages == 2
        assert report.messages == 4


@pytest.mark.parametrize("name", there_are(["CalendarIntervalType", "GeometryType", "GeographyType"]))
def test_a_column_type_that_spark_cannot_compare_is_refused(spark: SparkSession, name: str) -> None:
    with pytest.raises(
        InputError, match=r"^the column 'v\.x' is .*, which an audit cannot compare: .*, or drop the column"
    ):
        audit(rows(spark, f"named_struct('x', {REFUSED[name]})"), group="g", order="r")


@pytest.mark.parametrize("sql", ["parse_json('1')", "map('a', 1)", "array(map('a', 1))"])
@pytest.mark.parametrize("part", ["group", "id"])
def test_a_column_type_unsuitable_for_a_group_or_id_is_refused(spark: SparkSession, sql: str, part: str) -> None:
    with pytest.raises(InputError, match=r"^the column 'v' is .* neither a group nor an id: convert it with to_json"):
        audit(rows(spark, sql), **{"group": "g", "order": "r", part: "v"})


def test_a_struct_with_two_fields_of_one_name_is_refused(spark: SparkSession) -> None:
    with pytest.raises(InputError, match=r"^the column 'v' has two fields named 'a'"):
        audit(rows(spark, "named_struct('a', 1, 'a', 2)"), group="g", order="r")


@pytest.mark.slow
def test_column_types_that_no_message_supports_are_compared_as_content(spark: SparkSession, tmp_path: Path) -> None:
    """Those that no message carries too: an audit only compares them."""
    df = spark.sql(
        "SELECT 'a' AS g, 1 AS r, parse_json('{}') AS v, map(array(1), 2) AS m, INTERVAL '1' YEAR AS y, map() AS n"
    )
    report = audit(df.union(df), group="g", order="r", out=str(tmp_path / "out"))
    assert {kind: count.messages for kind, count in report.found.items()} == {FaultKind.DUPLICATE: 1}
