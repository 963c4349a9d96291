"""The stores that a console shows: each is opened for one request, so that one that comes back is seen.

Pipelines of databases are read without their locks, so a page disturbs no worker and shows what is there while another
process holds the write lock. A database that does not answer is given up after :data:`limits.CONSOLE_ANSWER_S`.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
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
"""Number of stores that are asked side by side: one that does not answer must not delay the others."""


_DIRECTORIES: Final[dict[str, bool]] = {}
"""Whether a path was a directory when it was last there."""


class StorePlace(NamedTuple):
    """One pipeline's store.

    Attributes:
        at: its address: a directory or a URI of a store on Spark, or ``shop.db#ledger``.
        title: the address without a password; pages and requests name the store by it.
    """

    at: str
    title: str

    def open(self) -> Decider:
        """Open the store for inspection.

        Raises:
            StoreError: if it is not there.
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


class UnreadStore(NamedTuple):
    """A store that cannot be read now, and why."""

    title: str
    why: str


def found(stores: Sequence[str]) -> tuple[list[StorePlace], list[UnreadStore]]:
    """Return the places of stores, of a whole database those of all its pipelines, and what cannot be read now."""
    answers, unread = answered([(shown(at), at) for at in stores], _places)
    return [each for places in answers for each in places], unread


def place(stores: Sequence[str], title: str) -> StorePlace:
    """Return the place with a title; no other store is asked for it.

    Raises:
        InputError: if none of the stores has it.
        StoreError: if the database that may have it cannot be read.
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
    raise InputError(f"this console shows no store {title!r}; it shows {', '.join(names)}")


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
    """Ask stores side by side; return the answers, in order, and the stores that cannot be read, by their titles."""
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
    """Open a database that is there, for a change or for its queues.

    Raises:
        StoreError: if it is not there, or another process holds its lock for too long.
    """
    return open_database(at, create=False, busy_s=limits.CONSOLE_ANSWER_S)


def _reader(at: str) -> PipelineReader:
    try:
        return open_reader(at, limits.CONSOLE_ANSWER_S)
    except StoreMismatch:
        opened(at).close()  # brings tables of an older version up to date, or raises that they are of a newer one
        return open_reader(at, limits.CONSOLE_ANSWER_S)


def is_database(at: str) -> bool:
    """Return whether a text names a whole database, and no pipeline in it; see :func:`_is_directory`."""
    checked_target(at)
    if "://" in at:
        return at.startswith(("postgres://", "postgresql://")) and "#" not in at
    return "#" not in at and not _is_directory(at)


def is_pipeline(at: str) -> bool:
    """Return whether a text names a pipeline in a database, such as ``shop.db#ledger``."""
    return "#" in at and not _is_directory(at)


def _is_directory(at: str) -> bool:
    """Return whether a path is that of a store on Spark; of one that is away, whether it was, or looks like one."""
    path = Path(at)
    if path.exists():
        _DIRECTORIES[at] = path.is_dir()
    return _DIRECTORIES.get(at, not path.suffix and "#" not in at)
