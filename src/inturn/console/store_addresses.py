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
from inturn.core.pipeline.decision_service import DecisionService
from inturn.database import Database
from inturn.database import open as open_database
from inturn.results.reading import LockFreeInspector, PipelineReader, open_reader

A = TypeVar("A")
T = TypeVar("T")
_AT_ONCE: Final = 8
"""Number of stores that are queried in parallel: a store that does not answer must not delay the others."""


_DIRECTORIES: Final[dict[str, bool]] = {}
"""For each path, whether it was a directory when it last existed."""


class StoreAddress(NamedTuple):
    """One pipeline's store.

    Attributes:
        address: its address: a directory or a URI of a store on Spark, or ``shop.db#ledger``.
        title: the address without a password; the name of the store in pages and requests.
    """

    address: str
    title: str

    def open(self) -> DecisionService:
        """Open the store for inspection.

        Raises:
            StoreError: if it does not exist.
        """
        if is_pipeline(self.address):
            database, _, name = self.address.rpartition("#")
            reader = _reader(database)
            try:
                return LockFreeInspector(reader, name, lambda: open_existing(database))
            except BaseException:
                reader.close()
                raise
        from inturn.spark.driver.inspection import SparkInspector

        return SparkInspector(self.address)


@dataclass(frozen=True)
class UnreadStore:
    """A store that cannot be read, and the reason."""

    title: str
    why: str


def store_addresses(stores: Sequence[str]) -> tuple[list[StoreAddress], list[UnreadStore]]:
    """Return the addresses of stores (of a whole database, of all its pipelines) and the stores that cannot be read."""
    answers, unread = query_all([(shown(address), address) for address in stores], _addresses_of)
    return [store for addresses in answers for store in addresses], unread


def store_address(stores: Sequence[str], title: str) -> StoreAddress:
    """Return the address with a title; no other store is queried.

    Raises:
        InputError: if no store has this title.
        StoreError: if the database that may contain it cannot be read.
    """
    names = []
    for address in stores:
        if is_database(address) and not title.startswith(f"{shown(address)}#"):
            names.append(f"{shown(address)}#…")
            continue
        candidates = _addresses_of(address)
        for candidate in candidates:
            if candidate.title == title:
                return candidate
        names += [store.title for store in candidates]
    raise InputError(f"no store {title!r} in this console; its stores: {', '.join(names)}")


def _addresses_of(address: str) -> list[StoreAddress]:
    if not is_database(address):
        return [StoreAddress(address, shown(address))]
    reader = _reader(address)
    try:
        names = reader.read(lambda store: sorted(store.names()))
    finally:
        reader.close()
    return [StoreAddress(f"{address}#{name}", f"{shown(address)}#{name}") for name in names]


def query_all(stores: Iterable[tuple[str, A]], ask: Callable[[A], T]) -> tuple[list[T], list[UnreadStore]]:
    """Query stores in parallel; return the answers in order, and the stores that cannot be read, by title."""
    answers: list[T] = []
    unread: list[UnreadStore] = []

    def query(titled: tuple[str, A]) -> T | UnreadStore:
        title, store = titled
        try:
            return ask(store)
        except (InturnError, OSError) as error:
            return UnreadStore(title, str(error))

    queried = list(stores)
    if len(queried) == 1:
        results = [query(queried[0])]
    else:
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            results = list(threads.map(query, queried))
    for result in results:
        if isinstance(result, UnreadStore):
            unread.append(result)
        else:
            answers.append(result)
    return answers, unread


def open_existing(address: str) -> Database:
    """Open an existing database, for a change or for its queues.

    Raises:
        StoreError: if it does not exist, or another process holds its lock for too long.
    """
    return open_database(address, create=False, busy_s=limits.CONSOLE_ANSWER_S)


def _reader(address: str) -> PipelineReader:
    try:
        return open_reader(address, limits.CONSOLE_ANSWER_S)
    except StoreMismatch:
        open_existing(address).close()  # migrates tables of an older version, or raises if they are of a newer one
        return open_reader(address, limits.CONSOLE_ANSWER_S)


def is_database(address: str) -> bool:
    """Return whether a text names a whole database and not a pipeline in it; see :func:`_is_directory`."""
    checked_target(address)
    if "://" in address:
        return address.startswith(("postgres://", "postgresql://")) and "#" not in address
    return "#" not in address and not _is_directory(address)


def database_of(address: str) -> str | None:
    """Return the database of a text that names it or a pipeline in it; None: it names a store on Spark."""
    return address.rpartition("#")[0] if is_pipeline(address) else address if is_database(address) else None


def is_pipeline(address: str) -> bool:
    """Return whether a text names a pipeline in a database, such as ``shop.db#ledger``."""
    return "#" in address and not _is_directory(address)


def _is_directory(address: str) -> bool:
    """Return whether a path is a store on Spark; a missing path is one if it was one before, or looks like one."""
    path = Path(address)
    if path.exists():
        _DIRECTORIES[address] = path.is_dir()
    return _DIRECTORIES.get(address, not path.suffix and "#" not in address)
