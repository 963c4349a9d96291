"""The first rows of each group in an order: ``min_by`` with a count, which Spark has from 4.2 on."""

import inspect
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

_RANK = "__rank"


def least(rows: DataFrame, keys: Sequence[str], value: Column, order: Column, count: int) -> tuple[DataFrame, Column]:
    """Return the rows to group by the keys, and the aggregate that gives each group's first values, in order.

    Before Spark 4.2 the rows are ranked first, which sorts them: collecting all values and cutting them off later would
    not fit into memory.

    Args:
        rows: rows to group.
        keys: columns to group by.
        value: value wanted of a row.
        order: sort key; the first rows have the least.
        count: number of rows of each group.
    """
    if "k" in inspect.signature(F.min_by).parameters:
        return rows, F.min_by(value, order, count)
    ranked = rows.withColumn(_RANK, F.row_number().over(Window.partitionBy(*keys).orderBy(order)))
    first = F.when(F.col(_RANK) <= count, F.struct(F.col(_RANK), value.alias("value")))
    return ranked, F.transform(F.array_sort(F.collect_list(first)), lambda each: each["value"])
