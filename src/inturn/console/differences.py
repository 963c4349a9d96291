"""Differences of two JSON values, field by field."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

ABSENT: Final = "(absent)"


@dataclass(frozen=True)
class FieldChange:
    """A field that differs between two values.

    Attributes:
        path: the path of the field, separated by dots; empty: the value itself.
        old: its value before, or :data:`ABSENT`.
        new: its value after, or :data:`ABSENT`.
    """

    path: str
    old: Any
    new: Any


def differences(old: Any, new: Any) -> list[FieldChange]:
    """Return the fields in which two values differ, in the order of the old value and then of the new one."""
    return list(_within(old, new, ""))


def _within(old: Any, new: Any, path: str) -> Iterator[FieldChange]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys((*old, *new)):
            below = f"{path}.{name}" if path else str(name)
            yield from _within(old.get(name, ABSENT), new.get(name, ABSENT), below)
    elif old != new or type(old) is not type(new):
        yield FieldChange(path, old, new)
