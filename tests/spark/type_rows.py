"""Rows of every type of Spark through a batch; they need no more than pytest, so older Sparks are held to them too."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from type_table import INVALID, Kind, shown

from inturn import Gapless, Pipeline
from inturn.spark import batch, read

Row = dict[str, Any]
JSON = msgspec.json.Encoder()
GOOD = 3
"""So many messages has the group beside the extreme ones."""


def tell(state: Row, message: Any) -> tuple[Row, list[Any]]:
    """What it has been given, but for what places it."""
    content = message if isinstance(message, dict) else vars(message)
    return {"count": state.get("count", 0) + 1}, [
        [name, shown(value)] for name, value in content.items() if name not in ("g", "r") and value is not None
    ]


def pipelines(columns: list[Kind]) -> Iterator[Pipeline]:
    """One that takes dicts and one that takes records of these columns, ``c0`` and so on."""
    yield Pipeline(name="types", group="g", order=Gapless("r"), handler=tell)
    fields = [
        (f"c{index}", hint_of(kind) | None, dataclasses.field(default=None)) for index, kind in enumerate(columns)
    ]
    message = dataclasses.make_dataclass("Message", [("g", str), ("r", int), *fields])
    yield Pipeline(name="types", group="g", order=Gapless("r"), message=message, handler=tell)


def hint_of(kind: Kind) -> Any:
    return dict[str, Any] if kind.python is None else kind.python


def frame(spark: SparkSession, columns: list[Kind]) -> tuple[DataFrame, dict[str, tuple[str, str, Any]]]:
    """A row for each value, which is a group of its own, and the good group, in which all of them are null.

    Returns:
        The rows, and by its group each one's column, SQL and value.
    """
    literals = [(f"c{index}", sql, value) for index, kind in enumerate(columns) for sql, value in kind.cases.items()]
    groups = {f"g{index}": literal for index, literal in enumerate(literals)}
    wholes = []
    for index, kind in enumerate(columns):
        cases = [f"WHEN {row} THEN {sql}" for row, (name, sql, _) in enumerate(literals) if name == f"c{index}"]
        column_sql = f"CASE id {' '.join(cases)} END"
        wholes.append(f"{column_sql if kind.sql == 'void' else f'CAST({column_sql} AS {kind.sql})'} AS c{index}")
    condition = f"id >= {len(literals)}"
    rows = spark.range(len(literals) + GOOD).selectExpr(
        f"IF({condition}, 'good', concat('g', id)) AS g", f"IF({condition}, id - {len(literals)} + 1, 1) AS r", *wholes
    )
    return rows, groups


def assert_each_alone(spark: SparkSession, columns: list[Kind], folder: Path) -> None:
    """Every value is carried as it is, or its row rejected with the column, and the good group is applied."""
    df, groups = frame(spark, columns)
    for number, pipeline in enumerate(pipelines(columns)):
        store = folder / str(number)
        report = batch(pipeline, df, store=store)
        invalid = {group for group, (_, _, value) in groups.items() if value is INVALID}
        assert report.counts.rejected == ({"invalid": len(invalid)} if invalid else {})
        assert report.counts.applied == len(groups) - len(invalid) + GOOD
        outputs = {row.group: row.output for row in read(spark, store, "outputs").collect()}
        for group, (name, sql, value) in groups.items():
            if value is None or value is INVALID:
                assert group not in outputs, sql
            else:
                assert outputs[group] == JSON.encode([name, shown(value)]).decode(), sql
        rejected = {row.group: row for row in read(spark, store, "rejected").collect()}
        assert rejected.keys() == invalid
        for group, row in rejected.items():
            assert groups[group][0] in row.detail
            assert row.message.startswith('{"')
        states = {row.group: row.revision for row in read(spark, store, "states").collect()}
        assert states["good"] == GOOD
