"""Resolution of a command's argument to a store, a database, or a queue or pipeline in one; errors list alternatives.

A database is named by its file, ``shop.db``, or its address, ``postgresql://me@host/shop``; a queue or pipeline in it
by ``shop.db#payments``. Printed names contain no password.
"""

from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from inturn.cli.texts import line, say
from inturn.core.address import checked_target, is_address, shown
from inturn.core.errors import InputError, InturnError, NoSuchDatabase, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from inturn.core.pipeline.deciding import Decider
    from inturn.database import Database
    from inturn.queue import Queue


def parts(at: str) -> tuple[str, str]:
    """Return the text before the # and the text after it; of an address, the last #, since a password may have one.

    Raises:
        InputError: if it is an address that would be taken for a file.
    """
    checked_target(at)
    if "://" not in at:
        path, _, name = at.partition("#")
        return path, name
    path, sign, name = at.rpartition("#")
    return (path, name) if sign else (at, "")


def split(at: str) -> tuple[str, str]:
    """Return the database and the queue that an argument names.

    Raises:
        InputError: if no queue is named.
    """
    path, name = parts(at)
    if path and name:
        return path, name
    there = _there(path, queues) if path else None
    known = "" if there is None else f"; there are in it: {', '.join(there) or 'none'}"
    such = there[0] if there else "payments"
    msg = f"{shown(at)!r} names no queue: write DATABASE#QUEUE, such as {shown(path) or 'shop.db'}#{such}{known}"
    raise InputError(msg)


@contextmanager
def opened(path: str, *, create: bool = False) -> "Iterator[Database]":
    """Open the database in a file or at an address; make it only with ``create``.

    Raises:
        StoreError: if it does not exist; the text names those that do.
    """
    from inturn.database import open as open_database

    if path == ":memory:":
        raise InputError("a database in memory would end with this command; name a file, such as shop.db")
    check_no_directory(checked_target(path))
    try:
        db = open_database(path, create=create)
    except StoreError as error:
        if "://" in path or Path(path).is_file():
            raise
        made = f"'inturn queue create {shown(path)}#NAME' makes one"
        raise type(error)(f"{error}; {_near(path)}. {made}") from error
    with db:
        yield db


def make_absent(path: str, queues: "Iterable[str]", *, is_quiet: bool = False) -> None:
    """Make a database that is not there yet, with all of these queues at once.

    In a database that has queues nothing is made: a name that it lacks is more likely a slip of the pen.

    Args:
        path: the database.
        queues: names of the queues.
        is_quiet: whether nothing is said of it, where standard error is for other lines.

    Raises:
        InputError: if a name is not valid; no queue is made then.
        StoreError: if it cannot be made.
    """
    from inturn.database import open as open_database

    with suppress(NoSuchDatabase), opened(path) as db:
        if db.queues():
            return
    made = list(dict.fromkeys(queues))
    with open_database(path) as db, db.transaction() as tx:
        for name in made:
            db.create(name, tx=tx)
    if not is_quiet:
        say(f"{shown(path)} had no queues yet; made {', '.join(map(line, made))}.", err=True)


@contextmanager
def queue_at(at: str, *, create: bool = False) -> "Iterator[Queue]":
    """Open the named queue; make it only with ``create``."""
    path, name = split(at)
    with opened(path, create=create) as db:
        yield db.queue(name, create=create)


def look_into(store: str) -> "Decider":
    """Return an inspector of a store: a directory or a URI that Spark writes, or ``shop.db#ledger``.

    Raises:
        InputError: if a database is named without a pipeline.
        StoreError: if there is no store, or no such pipeline.
    """
    path, name = parts(store)
    if name and not Path(store).is_dir():
        from inturn.worker.inspection import look

        check_no_directory(path)
        if "://" not in path and not Path(path).exists():
            raise NoSuchDatabase(f"there is no database {path!r}; {_near(path)}")
        return look(path, name)
    check_store(path if store.endswith("#") else store)
    from inturn.spark.driver.inspection import SparkInspector

    return SparkInspector(store)


def check_store(store: str, *, create: bool = False) -> None:
    """Refuse an argument that is no directory, before Spark or pyarrow is used: a database, another file, nothing.

    Args:
        store: argument of the command; a URI that Spark writes is left to Spark.
        create: whether an absent store will be made.

    Raises:
        InputError: if it is a database; the text names its pipelines.
        StoreError: if it is another file, or does not exist.
    """
    if is_address(checked_target(store)):
        raise InputError(_names_no_pipeline(store))
    if "://" in store or store.startswith("file:") or Path(store).is_dir():
        return
    if Path(store).is_file():
        if is_database(store):
            raise InputError(_names_no_pipeline(store))
        raise StoreError(f"{store} is a file, and neither a store, which is a directory, nor a database")
    if not create:
        msg = f"there is no store {store!r}: write the directory of one, or DATABASE#PIPELINE, such as shop.db#ledger"
        raise StoreError(msg)


def is_store(store: str) -> bool:
    """Return whether an argument names what Spark writes: a directory, or a URI that is no database's."""
    return Path(store).is_dir() or ("://" in store and not is_address(checked_target(store)))


def check_no_database(source: str) -> None:
    """Refuse a database without a queue as the source of messages.

    Raises:
        InputError: if it is one.
    """
    if "://" not in source and is_database(source):
        split(source)


def check_no_directory(path: str) -> None:
    """Refuse a directory where a database is expected.

    Raises:
        StoreError: if it is one.
    """
    if "://" not in path and Path(path).is_dir():
        raise StoreError(f"{path!r} is a directory, and no database; the store in a directory is named without #")


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


def _there(path: str, names: "Callable[[Database], list[str]]") -> list[str] | None:
    """Return the names in a database; None if it cannot be read."""
    with suppress(InturnError), opened(path) as db:
        return names(db)
    return None


def _names_no_pipeline(path: str) -> str:
    there = _there(path, pipelines)
    such = there[0] if there else "PIPELINE"
    known = "" if there is None else f"; its pipelines: {', '.join(there)}" if there else "; it has no pipelines yet"
    return f"{shown(path)} is a database, and names no pipeline: write {shown(path)}#{such}{known}"


def _near(path: str) -> str:
    """Return a text with the SQLite files beside a path, ten at most."""
    found: list[str] = []
    with suppress(OSError):
        for each in sorted(Path(path).parent.iterdir()):
            if len(found) < 10 and each.is_file() and is_database(str(each)):
                found.append(each.name)
    return f"in its directory there are: {', '.join(found) or 'none'}"
