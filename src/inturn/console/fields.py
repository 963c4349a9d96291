"""The checked fields of a request."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from inturn.console.forms import MessageForms
from inturn.console.previewed_groups import PreviewedGroups
from inturn.console.rates import QueueRates
from inturn.console.roles import Person
from inturn.console.store_addresses import StoreAddress, store_address
from inturn.core.errors import InputError

N = TypeVar("N", int, None)


@dataclass(frozen=True)
class RequestFields:
    """The fields of a query or of a form.

    Attributes:
        stores: the stores of the console.
        fields: the fields by name.
        person: the user who sent the request.
        definitions: the pipelines that dry runs can use.
        forms: the message types of these pipelines.
        rates: the rates of queues measured by earlier requests.
        previewed: the lists of groups shown by earlier requests.
    """

    stores: tuple[str, ...]
    fields: Mapping[str, str]
    person: Person
    definitions: tuple[str, ...] = ()
    forms: MessageForms = field(default_factory=MessageForms)
    rates: QueueRates = field(default_factory=QueueRates)
    previewed: PreviewedGroups = field(default_factory=PreviewedGroups)

    def get(self, name: str) -> str | None:
        """Return a field; None if it is absent or empty."""
        return self.fields.get(name) or None

    def need(self, name: str) -> str:
        """Return a field, which may be an empty text.

        Raises:
            InputError: if it is absent.
        """
        if name not in self.fields:
            raise InputError(f"the field {name!r} is missing")
        return self.fields[name]

    def number(self, name: str, default: N) -> int | N:
        """Return a whole number; the default if the field is absent or empty.

        Raises:
            InputError: if it is not a whole number of 64 bits.
        """
        text = self.get(name)
        if text is None:
            return default
        if not re.fullmatch(r"-?[0-9]{1,19}", text) or not -(2**63) <= int(text) < 2**63:
            raise InputError(f"{name} is {text!r}; expected a whole number of at most 64 bits")
        return int(text)

    def store_address(self) -> StoreAddress:
        """Return the named store.

        Raises:
            InputError: if this console does not show it.
        """
        return store_address(self.stores, self.need("store"))
