"""Column names: the reserved ones, and those of a state's fields in a table."""

from collections.abc import Callable, Iterable
from typing import Final

from inturn.core.errors import StateError

OWN: Final = "__inturn_"
"""The prefix of the reserved column names."""
OLD: Final = "__inturn_old"
"""The field of a stored state that contains, as JSON, a state that could not be upgraded."""
CORRUPT: Final = "__inturn_corrupt_record"
"""The column with the text of an unreadable line, else null; one of the two reserved names that an input may have."""
ARRIVED: Final = "__inturn_arrived"
"""The column with the place of a message in the log that it is from, for a pipeline that names none; the other one."""
HASH: Final = "__inturn_hash"
"""The column of a task with the hash of a message's group."""
GROUP: Final = "__inturn_group"
"""The column of a task with the text form of a message's group, if no column of the message is that."""
FIXED_COLUMNS: Final = ("group", "status", "epoch", "revision", "held", "skipped", "step")
"""The columns of the states table other than the fields of the state."""


def is_reserved(name: str) -> bool:
    """Return whether a column's name is reserved, in any case of letters."""
    return name.lower().startswith(OWN)


def duplicate_names(names: Iterable[str], fold: Callable[[str], str] = str.lower) -> tuple[str, str] | None:
    """Return two names that are equal, by default if case is ignored; None if there are none."""
    seen: dict[str, str] = {}
    for name in names:
        key = fold(name)
        if key in seen:
            return seen[key], name
        seen[key] = name
    return None


def check_names(fields: Iterable[str]) -> None:
    """Check that the fields of a state can be the columns of a table; a StateError names one that cannot."""
    names = list(fields)
    own = next((name for name in names if is_reserved(name)), None)
    if own is not None:
        raise StateError(f"the state has a field {own!r}; names that begin with {OWN} are reserved: rename it")
    pair = duplicate_names(names)
    if pair is not None:
        msg = f"the state has the fields {pair[0]!r} and {pair[1]!r}, which Spark and most engines treat as one column"
        raise StateError(f"{msg}: rename one of them")
