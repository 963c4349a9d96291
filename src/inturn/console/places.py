"""The stores that a console shows: each is opened per request, so that a store that is available again is shown.

Pipelines of databases are read without locks, so a page delays no worker and also works while another process holds
the write lock. A request to a database that does not answer ends after :data:`limits.CONSOLE_ANSWER_S`.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from inturn.core import limits
from inturn.core.address import checked_target, shown
from inturn.core.errors import InputError, InturnError, StoreMismatch
from inturn.core.pipeline.deciding import Decider
from inturn.database import Database
from inturn.database import open as open_database
from inturn.results.reading import LockFreeInspector, PipelineReader, open_reader

A = TypeVar("A")
T = TypeVar("T")
_AT_ONCE: Final = 8
"""Number of stores that are queried in parallel: a store that does not answer must not delay the others."""


_DIRECTORIES: Final[dict[str, bool]] = {}
"""For each path, whether it was a directory when it last existed."""


class StorePlace(NamedTuple):
    """One pipeline's store.

    Attributes:
        at: its address: a directory or a URI of a store on Spark, or ``shop.db#ledger``.
        title: the address without a password; the name of the store in pages and requests.
    """

    at: str
    title: str

    def open(self) -> Decider:
        """Open the store for inspection.

        Raises:
            StoreError: if it does not exist.
        """
        if is_pipeline(self.at):
            database, _, name = self.at.rpartition("#")
            reader = _reader(database)
            try:
                return LockFreeInspector(reader, name, lambda: opened(database))
            except BaseException:
                reader.close()
                raise
        from inturn.spark.driver.inspection import SparkInspector

        return SparkInspector(self.at)


@dataclass(frozen=True)
class UnreadStore:
    """A store that cannot be read, and the reason."""

    title: str
    why: str


def found(stores: Sequence[str]) -> tuple[list[StorePlace], list[UnreadStore]]:
    """Return the places of stores (of a whole database, of all its pipelines) and the stores that cannot be read."""
    answers, unread = answered([(shown(at), at) for at in stores], _places)
    return [each for places in answers for each in places], unread


def place(stores: Sequence[str], title: str) -> StorePlace:
    """Return the place with a title; no other store is queried.

    Raises:
        InputError: if no store has this title.
        StoreError: if the database that may contain it cannot be read.
    """
    names = []
    for at in stores:
        if is_database(at) and not title.startswith(f"{shown(at)}#"):
            names.append(f"{shown(at)}#…")
            continue
        places = _places(at)
        for each in places:
            if each.title == title:
                return each
        names += [each.title for each in places]
    raise InputError(f"no store {title!r} in this console; its stores: {', '.join(names)}")


def _places(at: str) -> list[StorePlace]:
    if not is_database(at):
        return [StorePlace(at, shown(at))]
    reader = _reader(at)
    try:
        names = reader.read(lambda kept: sorted(kept.names()))
    finally:
        reader.close()
    return [StorePlace(f"{at}#{name}", f"{shown(at)}#{name}") for name in names]


def answered(asked: Iterable[tuple[str, A]], ask: Callable[[A], T]) -> tuple[list[T], list[UnreadStore]]:
    """Query stores in parallel; return the answers in order, and the stores that cannot be read, by title."""
    answers: list[T] = []
    unread: list[UnreadStore] = []

    def one(each: tuple[str, A]) -> T | UnreadStore:
        title, store = each
        try:
            return ask(store)
        except (InturnError, OSError) as error:
            return UnreadStore(title, str(error))

    stores = list(asked)
    if len(stores) == 1:
        results = [one(stores[0])]
    else:
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            results = list(threads.map(one, stores))
    for each in results:
        if isinstance(each, UnreadStore):
            unread.append(each)
        else:
            answers.append(each)
    return answers, unread


def opened(at: str) -> Database:
    """Open an existing database, for a change or for its queues.

    Raises:
        StoreError: if it does not exist, or another process holds its lock for too long.
    """
    return open_database(at, create=False, busy_s=limits.CONSOLE_ANSWER_S)


def _reader(at: str) -> PipelineReader:
    try:
        return open_reader(at, limits.CONSOLE_ANSWER_S)
    except StoreMismatch:
        opened(at).close()  # migrates tables of an older version, or raises if they are of a newer one
        return open_reader(at, limits.CONSOLE_ANSWER_S)


def is_database(at: str) -> bool:
    """Return whether a text names a whole database and not a pipeline in it; see :func:`_is_directory`."""
    checked_target(at)
    if "://" in at:
        return at.startswith(("postgres://", "postgresql://")) and "#" not in at
    return "#" not in at and not _is_directory(at)


def database_of(at: str) -> str | None:
    """Return the database of a text that names it or a pipeline in it; None: it names a store on Spark."""
    return at.rpartition("#")[0] if is_pipeline(at) else at if is_database(at) else None


def is_pipeline(at: str) -> bool:
    """Return whether a text names a pipeline in a database, such as ``shop.db#ledger``."""
    return "#" in at and not _is_directory(at)


def _is_directory(at: str) -> bool:
    """Return whether a path is a store on Spark; a missing path is one if it was one before, or looks like one."""
    path = Path(at)
    if path.exists():
        _DIRECTORIES[at] = path.is_dir()
    return _DIRECTORIES.get(at, not path.suffix and "#" not in at)
