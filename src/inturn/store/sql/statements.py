"""Named statements. The .sql files in this folder have those that both databases have alike."""

import re
from enum import IntEnum
from importlib.resources import files
from itertools import chain
from typing import Final

SHARED: Final = "inturn.store.sql"
"""The package with the shared statements."""


class MessageStatus(IntEnum):
    """The column ``inturn_message.status``."""

    PENDING = 0
    ACKNOWLEDGED = 1
    """Kept for readers."""
    DEFERRED = 2


def statements(*packages: str) -> dict[str, str]:
    """Return the statements of all .sql files of packages by name; parameters are ``$1``, ``$2`` and so on.

    A file may have parts, which stand in its statements, and in later parts, as ``{name}``.

    Raises:
        ValueError: if two statements have the same name.
    """
    by_name: dict[str, str] = {}
    for resource in sorted(chain(*(files(name).iterdir() for name in packages)), key=lambda file: file.name):
        if not resource.name.endswith(".sql"):
            continue
        pieces = re.split(r"^-- (name|part): (\w+)\n", resource.read_text(), flags=re.MULTILINE)
        parts: dict[str, str] = {}
        for kind, name, text in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
            if name in by_name or name in parts:
                raise ValueError(f"two statements are called {name!r}; one is in {resource.name}")
            sql = re.sub(r"--.*$", "", text, flags=re.MULTILINE).strip().rstrip(";")
            sql = re.sub(r"\{(\w+)\}", lambda part, known=parts: known[part[1]], sql)  # type: ignore[misc]  # a dict
            (by_name if kind == "name" else parts)[name] = sql
    return by_name
