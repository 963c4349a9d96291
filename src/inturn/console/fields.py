"""The fields of a request, checked."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

from inturn.console.places import StorePlace, place
from inturn.core.errors import InputError


class RequestFields(NamedTuple):
    """The fields of a query or of a form.

    Attributes:
        stores: the stores of the console.
        fields: the fields by name.
    """

    stores: tuple[str, ...]
    fields: Mapping[str, str]

    @classmethod
    def of(cls, stores: Sequence[str], fields: Mapping[str, str]) -> Self:
        """Return the fields of a request to a console of these stores."""
        return cls(tuple(stores), fields)

    def get(self, name: str) -> str | None:
        """Return a field; None if it is absent or empty."""
        return self.fields.get(name) or None

    def need(self, name: str) -> str:
        """Return a field, which may be an empty text.

        Raises:
            InputError: if it is absent.
        """
        if name not in self.fields:
            raise InputError(f"the request has no {name!r}")
        return self.fields[name]

    def place(self) -> StorePlace:
        """Return the store that is named.

        Raises:
            InputError: if this console does not show it.
        """
        return place(self.stores, self.need("store"))
