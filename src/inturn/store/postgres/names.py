"""Names of groups and ids that are too long for a PostgreSQL index, whose entries have at most 2,704 bytes.

A name has up to 1,000 characters, so up to 4,000 bytes. All tables contain the short form of a name that is too long:
its beginning, which roughly keeps the order of names, and its SHA-256, which makes it unique. The full name is stored
once, in `inturn_name`, and never removed.
"""

import hashlib
import re
from collections.abc import Callable, Iterable
from typing import Final

from inturn.core import limits
from inturn.core.errors import StoreError
from inturn.core.queue.messages import StoredMessage
from inturn.store.postgres.statements import PostgresStatements, Wire

LONGEST: Final = 1_200
"""The longest name that is stored as it is, in bytes; an index entry may have two names."""
_BEGINNING: Final = 64
_MARK: Final = "\1\3"
_SHORT: Final = re.compile(rf".{{0,{_BEGINNING}}}{_MARK}[0-9a-f]{{64}}", re.DOTALL)


def short(name: str) -> str:
    """Return the stored form of a name: the name itself, unless it is too long or looks like a short form."""
    is_long = len(name) > LONGEST // 4 and len(name.encode()) > LONGEST
    if not is_long and not is_short(name):  # the usual case
        return name
    return f"{name[:_BEGINNING]}{_MARK}{hashlib.sha256(name.encode()).hexdigest()}"


def is_short(text: str) -> bool:
    """Return whether a text looks like a short form."""
    return _MARK in text and _SHORT.fullmatch(text) is not None


def named(entry: StoredMessage, name: Callable[[str], str]) -> StoredMessage:
    """Return a message with the name of its group in place of the stored form; ``name``: see LongNames.reader."""
    return entry._replace(group=entry.group and name(entry.group))


def as_it_is(text: str) -> str:
    """Return a text that is not a short form unchanged."""
    return text


class LongNames(PostgresStatements):
    """The long names of a database."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire)
        self._known: dict[str, str] = {}

    def short_name(self, name: str) -> str:
        """Return the stored form of a name for a write; a long name is stored."""
        short_form = short(name)
        if short_form is not name:
            self._do("add_name", short_form, name)
        return short_form

    def reader(self, texts: Iterable[str | None]) -> Callable[[str], str]:
        """Return a function that converts each of these stored forms into its name.

        Raises:
            StoreError: if a short form is not in the table.
        """
        short_names = {text for text in texts if text is not None and is_short(text)}
        if not short_names:
            return as_it_is
        if len(self._known) > limits.KNOWN_NAMES:
            self._known.clear()
        if unknown := short_names - self._known.keys():
            self._known.update(self._all("names", sorted(unknown)))
        if lost := short_names - self._known.keys():
            msg = f"the table inturn_name is damaged: it lacks the name of {min(lost)!r}; restore a backup"
            raise StoreError(msg)
        known = self._known
        return lambda text: known.get(text, text)
