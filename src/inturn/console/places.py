"""The stores that a console shows: each is opened for one request, so that one that comes back is seen."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from inturn.core.address import checked_target, shown
from inturn.core.errors import InputError, InturnError
from inturn.core.pipeline.deciding import Decider
from inturn.database import open as open_database
from inturn.worker.inspection import look


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
        database, sign, name = self.at.rpartition("#")
        if sign and not Path(self.at).is_dir():
            return look(database, name)
        from inturn.spark.driver.inspection import SparkInspector

        return SparkInspector(self.at)


class UnreadStore(NamedTuple):
    """A store that cannot be read now, and why."""

    title: str
    why: str


def found(stores: Sequence[str]) -> tuple[list[StorePlace], list[UnreadStore]]:
    """Return the places of stores, of a whole database those of all its pipelines, and what cannot be read now."""
    places: list[StorePlace] = []
    unread: list[UnreadStore] = []
    for at in stores:
        if not _is_database(at):
            places.append(StorePlace(at, shown(at)))
            continue
        try:
            with open_database(at, create=False) as db:
                names = db.pipelines()
        except (InturnError, OSError) as error:
            unread.append(UnreadStore(shown(at), str(error)))
            continue
        places += [StorePlace(f"{at}#{name}", f"{shown(at)}#{name}") for name in names]
    return places, unread


def place(stores: Sequence[str], title: str) -> StorePlace:
    """Return the place with a title.

    Raises:
        InputError: if none of the stores has it.
    """
    places, _ = found(stores)
    for each in places:
        if each.title == title:
            return each
    raise InputError(f"this console shows no store {title!r}; it shows {', '.join(each.title for each in places)}")


def _is_database(at: str) -> bool:
    """Return whether a text names a whole database, and no pipeline in it."""
    checked_target(at)
    if "://" in at:
        return at.startswith(("postgres://", "postgresql://")) and "#" not in at
    return not Path(at).is_dir() and "#" not in at
