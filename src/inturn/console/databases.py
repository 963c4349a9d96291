"""The databases among the stores of a console: their queues and sources are shown besides their pipelines."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from inturn.console.fields import RequestFields
from inturn.console.store_addresses import is_database, open_existing
from inturn.core.address import shown
from inturn.core.errors import InputError
from inturn.database import Database


class DatabaseAddress(NamedTuple):
    """A database.

    Attributes:
        address: its address.
        title: the address without a password.
    """

    address: str
    title: str

    @contextmanager
    def open(self) -> Iterator[Database]:
        """Open it; it is never created.

        Raises:
            StoreError: if it does not exist.
        """
        with open_existing(self.address) as db:
            yield db


def databases(stores: Sequence[str]) -> list[DatabaseAddress]:
    """Return the databases that are shown as a whole: ``shop.db``, and not ``shop.db#ledger``."""
    return [DatabaseAddress(store, shown(store)) for store in stores if is_database(store)]


def database(fields: RequestFields) -> DatabaseAddress:
    """Return the database that a request names.

    Raises:
        InputError: if this console does not show it.
    """
    title, shown_databases = fields.need("database"), databases(fields.stores)
    for shown_database in shown_databases:
        if shown_database.title == title:
            return shown_database
    names = ", ".join(shown_database.title for shown_database in shown_databases) or "none"
    raise InputError(f"no database {title!r} in this console; its databases: {names}")
