"""Names of groups and ids that are too long for an index of PostgreSQL, whose entries have 2,704 bytes at most.

A name has up to 1,000 characters, so up to 4,000 bytes. One that is too long stands in all tables in its short form:
its beginning, so that names are about in their order, and its SHA-256, so that there are no two. The name itself is
kept once, in `inturn_name`, and stays there. The first of them stops versions that do not know of this.
"""

import hashlib
import re
from collections.abc import Callable, Iterable
from typing import Final

from inturn.core import limits
from inturn.core.errors import StoreError
from inturn.store.postgres.statements import Statements, Wire

LONGEST: Final = 1_200
"""The longest name that stands for itself, in bytes: two of them are in one index."""
_BEGINNING: Final = 64
_MARK: Final = "\1\3"
_SHORT: Final = re.compile(rf".{{0,{_BEGINNING}}}{_MARK}[0-9a-f]{{64}}", re.DOTALL)


def short(name: str) -> str:
    """Return what stands for a name: itself, if it is not too long, and looks like no other's short form."""
    is_long = len(name) > LONGEST // 4 and len(name.encode()) > LONGEST
    if not is_long and not is_short(name):  # as nearly always
        return name
    return f"{name[:_BEGINNING]}{_MARK}{hashlib.sha256(name.encode()).hexdigest()}"


def is_short(text: str) -> bool:
    """Return whether a text looks like a short form."""
    return _MARK in text and _SHORT.fullmatch(text) is not None


def as_it_is(text: str) -> str:
    """Give a text that is no short form."""
    return text


class Names(Statements):
    """Writes and reads names.

    Args:
        wire: to the database.
    """

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire)
        self._known: dict[str, str] = {}

    def kept(self, name: str) -> str:
        """Return what stands for a name in what is about to be written."""
        found = short(name)
        if found is not name:
            self._do("add_name", found, name)
        return found

    def reader(self, texts: Iterable[str | None]) -> Callable[[str], str]:
        """Return what gives the name for each of some texts that were read.

        Raises:
            StoreError: if the table has not the name of one.
        """
        wanted = {text for text in texts if text is not None and is_short(text)}
        if not wanted:
            return as_it_is
        if len(self._known) > limits.KNOWN_NAMES:
            self._known.clear()
        if unknown := wanted - self._known.keys():
            self._known.update(self._all("names", sorted(unknown)))
        if lost := wanted - self._known.keys():
            msg = f"the table inturn_name is damaged: it has not the name of {min(lost)!r}; put back a backup"
            raise StoreError(msg)
        known = self._known
        return lambda text: known.get(text, text)
