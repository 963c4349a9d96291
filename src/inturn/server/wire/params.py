"""Conversion of a tree of plain values into an action's parameters, and the errors if they do not fit."""

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from inturn.server import errors
from inturn.server.errors import SqsError
from inturn.server.model import ApiAction, Shape

_DEPTH: Final = 6
"""The depth of the API's parameters: params, entries, entry, attributes, value, list."""

_MISSING: Final = re.compile(r"Object missing required field `(\w+)`(?: - at `\$\.Entries\[(\d+)\]`)?")


def params_of(action: ApiAction, tree: object, refuse: Callable[[str], SqsError]) -> Shape:
    """Return the parameters in a tree of API names; a null counts as missing.

    Raises:
        SqsError: ``MissingParameter``, with the name; or the error that ``refuse`` makes of the reason.
    """
    try:
        return msgspec.convert(_without_nulls(tree, _DEPTH), type=action.params)
    except msgspec.ValidationError as error:
        missing = _MISSING.match(str(error))
        if missing is None:
            raise refuse(str(error)) from None
        name, entry = missing.groups()
        prefix = "" if entry is None else f"{action.name}RequestEntry.{int(entry) + 1}."
        raise errors.missing_parameter(prefix + name) from None


def _without_nulls(tree: Any, depth: int) -> Any:
    if depth == 0:
        return tree
    if isinstance(tree, dict):
        return {name: _without_nulls(value, depth - 1) for name, value in tree.items() if value is not None}
    if isinstance(tree, list):
        return [_without_nulls(value, depth - 1) for value in tree]
    return tree
