"""docs/spark-types.md has every type of Spark, once, and says of each what the code does."""

import re
from pathlib import Path

import type_table
from pyspark.sql import types

from inturn.spark.columns.spark_types import REMEDIES, SUPPORTED_TYPES

PAGE = Path(__file__).parents[2] / "docs" / "spark-types.md"


def documented() -> dict[str, tuple[str, str]]:
    """Each type with what it is carried as, and what the table says besides."""
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \| (.*?) ?\|$", PAGE.read_text(), re.MULTILINE)
    assert len(rows) == len({name for name, *_ in rows})
    return {name: (carried.strip("`"), more) for name, carried, more in rows}


def test_the_type_table_lists_every_spark_type() -> None:
    classes = {
        name
        for name, member in vars(types).items()
        if isinstance(member, type) and issubclass(member, types.DataType) and member.__module__ == types.__name__
    }
    assert classes - documented().keys() == (type_table.ABSTRACT | type_table.PARTS) & classes


def test_the_type_table_matches_the_code() -> None:
    table = documented()
    assert {name for name, (carried, _) in table.items() if carried == "refused"} == set(REMEDIES)
    assert {name for name, (carried, _) in table.items() if carried != "refused"} == SUPPORTED_TYPES
    for name, remedy in REMEDIES.items():
        assert remedy in table[name][1].replace("`", "")


def test_every_row_of_the_type_table_is_tested_on_spark() -> None:
    tried = {*type_table.CARRIED, *type_table.AS_TEXT, *type_table.REFUSED, "UserDefinedType"}
    assert tried == set(documented())
    for name, kind in type_table.CARRIED.items():
        type_name = documented()[name][0].rpartition(".")[2]
        type_names = {type(value).__name__ for value in kind.cases.values() if value is not type_table.INVALID}
        assert type_names == {type_name.replace("None", "NoneType")}
