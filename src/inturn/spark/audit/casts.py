"""Columns that a pipeline cannot read as they are, because their type is not the one it needs."""

from typing import TYPE_CHECKING

from inturn.spark.audit.log import AuditLog
from inturn.spark.audit.values import TIMES, kind_of
from inturn.spark.columns.dataframe import INTEGERS
from inturn.spark.columns.names import CORRUPT

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAMES = ("string", "date", *INTEGERS)
_SINCE_1970 = (*TIMES[:2], "string", *INTEGERS)


def casts(log: AuditLog) -> tuple[str, ...]:
    """Return a sentence for each column that must be cast before a pipeline takes it.

    Lines of text (CSV, JSON) have no types before a pipeline reads them, so they yield no sentence.
    """
    return () if CORRUPT in log.df.columns else tuple(_misfits(log))


def _misfits(log: AuditLog) -> "Iterator[str]":
    keys = log.keys
    place = (_SINCE_1970, "timestamp") if log.is_time else (INTEGERS, "bigint")
    asked = [
        (keys.group, _NAMES, "string"),
        (keys.place, *place),
        (keys.id, _NAMES, "string"),
        (keys.epoch, INTEGERS, "bigint"),
        (keys.arrival, (*INTEGERS, *TIMES[:2]), "bigint"),
    ]
    for name, fits, kind in asked:
        if name is not None and kind_of(log.df, name) not in fits:
            yield f"The column {name} is {kind_of(log.df, name)}, which a pipeline does not take: cast it to {kind}."
