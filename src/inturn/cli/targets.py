"""Resolution of a command's argument to a store, a database, or a queue or pipeline in one; errors list alternatives.

A database is named by its file, ``shop.db``, or its address, ``postgresql://me@host/shop``; a queue or pipeline in it
by ``shop.db#payments``. Printed names contain no password.
"""

from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from inturn.cli.output import one_line, print_text
from inturn.core.address import checked_target, is_address, shown
from inturn.core.errors import InputError, InturnError, NoSuchDatabase, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from inturn.core.pipeline.decision_service import DecisionService
    from inturn.database import Database
    from inturn.queue import Queue


def split_target(target: str) -> tuple[str, str]:
    """Return the text before the # and the text after it; of an address, the last #, since a password may have one.

    Raises:
        InputError: if it is an address that would be taken for a file.
    """
    checked_target(target)
    if "://" not in target:
        path, _, name = target.partition("#")
        return path, name
    path, sign, name = target.rpartition("#")
    return (path, name) if sign else (target, "")


def split_queue_target(target: str) -> tuple[str, str]:
    """Return the database and the queue that an argument names.

    Raises:
        InputError: if no queue is named.
    """
    path, name = split_target(target)
    if path and name:
        return path, name
    existing = _names_in(path, queues) if path else None
    known = "" if existing is None else f"; existing queues: {', '.join(existing) or 'none'}"
    example = existing[0] if existing else "payments"
    expected = f"expected DATABASE#QUEUE, such as {shown(path) or 'shop.db'}#{example}"
    raise InputError(f"{shown(target)!r} names no queue; {expected}{known}")


@contextmanager
def opened_database(path: str, *, create: bool = False) -> "Iterator[Database]":
    """Open the database in a file or at an address; create it only with ``create``.

    Raises:
        StoreError: if it does not exist; the text names existing ones.
    """
    from inturn.database import open as open_database

    if path == ":memory:":
        raise InputError("a database in memory would end with this command; pass a file, such as shop.db")
    check_no_directory(checked_target(path))
    try:
        db = open_database(path, create=create)
    except StoreError as error:
        if "://" in path or Path(path).is_file():
            raise
        raise type(error)(f"{error}; {nearby_databases(path)}") from error
    with db:
        yield db


def create_missing_database(path: str, queues: "Iterable[str]", *, is_quiet: bool = False) -> None:
    """Create a database that does not exist yet, with all of these queues in one transaction.

    In a database that has queues nothing is created: a missing name is more likely a typing error.

    Args:
        path: the database.
        queues: names of the queues.
        is_quiet: whether to print nothing, because standard error is used for log lines.

    Raises:
        InputError: if a name is not valid; no queue is created then.
        StoreError: if it cannot be created.
    """
    from inturn.database import open as open_database

    with suppress(NoSuchDatabase), opened_database(path) as db:
        if db.queues():
            return
    created = list(dict.fromkeys(queues))
    with open_database(path) as db, db.transaction() as tx:
        for name in created:
            db.create(name, tx=tx)
    if not is_quiet:
        print_text(f"{shown(path)} had no queues; created {', '.join(map(one_line, created))}.", err=True)


@contextmanager
def queue_at(target: str, *, create: bool = False) -> "Iterator[Queue]":
    """Open the named queue; create it only with ``create``."""
    path, name = split_queue_target(target)
    with ExitStack() as stack:
        try:
            db = stack.enter_context(opened_database(path, create=create))
        except NoSuchDatabase as error:
            raise NoSuchDatabase(f"{error}; create it with 'inturn queue create {shown(target)}'") from error
        yield db.queue(name, create=create)


def open_inspector(store: str) -> "DecisionService":
    """Return an inspector of a store: a directory or a URI that Spark writes, or ``shop.db#ledger``.

    Raises:
        InputError: if a database is named without a pipeline.
        StoreError: if there is no store, or no such pipeline.
    """
    path, name = split_target(store)
    if name and not Path(store).is_dir():
        from inturn.worker.inspection import open_inspector

        check_no_directory(path)
        if "://" not in path and not Path(path).exists():
            raise NoSuchDatabase(f"no database {path!r}; {nearby_databases(path)}")
        return open_inspector(path, name)
    check_store(path if store.endswith("#") else store)
    from inturn.spark.driver.inspection import SparkInspector

    return SparkInspector(store)


def check_store(store: str, *, create: bool = False) -> None:
    """Check, before Spark or pyarrow is used, that an argument is a directory.

    Args:
        store: argument of the command; a URI that Spark writes is left to Spark.
        create: whether a missing store will be created.

    Raises:
        InputError: if it is a database; the text names its pipelines.
        StoreError: if it is any other file, or does not exist.
    """
    if is_address(checked_target(store)):
        raise InputError(_names_no_pipeline(store))
    if "://" in store or store.startswith("file:") or Path(store).is_dir():
        return
    if Path(store).is_file():
        if is_database(store):
            raise InputError(_names_no_pipeline(store))
        raise StoreError(f"{store} is a file; expected a store, which is a directory, or a database")
    if not create:
        msg = f"no store {store!r}; expected the directory of a store, or DATABASE#PIPELINE, such as shop.db#ledger"
        raise StoreError(msg)


def is_store(store: str) -> bool:
    """Return whether an argument names a store on Spark: a directory, or a URI that is not a database address."""
    return Path(store).is_dir() or ("://" in store and not is_address(checked_target(store)))


def check_no_database(source: str) -> None:
    """Refuse a database without a queue as the source of messages.

    Raises:
        InputError: if it is one.
    """
    if "://" not in source and is_database(source):
        split_queue_target(source)


def check_no_directory(path: str) -> None:
    """Refuse a directory where a database is expected.

    Raises:
        StoreError: if it is one.
    """
    if "://" not in path and Path(path).is_dir():
        raise StoreError(f"{path!r} is a directory, not a database; name the store in a directory without #")


def is_database(path: str) -> bool:
    """Return whether a file is an SQLite database, by its first bytes."""
    with suppress(OSError), Path(path).open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"
    return False


def queues(db: "Database") -> list[str]:
    """Return the names of the queues of a database."""
    return db.queues()


def pipelines(db: "Database") -> list[str]:
    """Return the names of the pipelines with states in a database."""
    return db.pipelines()


def _names_in(path: str, names: "Callable[[Database], list[str]]") -> list[str] | None:
    """Return the names in a database; None if it cannot be read."""
    with suppress(InturnError), opened_database(path) as db:
        return names(db)
    return None


def _names_no_pipeline(path: str) -> str:
    existing = _names_in(path, pipelines)
    example = existing[0] if existing else "PIPELINE"
    known = "" if existing is None else f"; existing pipelines: {', '.join(existing) or 'none'}"
    return f"{shown(path)} is a database; name a pipeline of it, such as {shown(path)}#{example}{known}"


def nearby_databases(path: str) -> str:
    """Return a text with the SQLite files in the directory of a path, at most ten."""
    names: list[str] = []
    with suppress(OSError):
        for file in sorted(Path(path).parent.iterdir()):
            if len(names) < 10 and file.is_file() and is_database(str(file)):
                names.append(file.name)
    return f"databases in its directory: {', '.join(names) or 'none'}"
