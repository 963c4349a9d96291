"""Paths to the fields of a message: ``after.version`` is the field ``version`` of the field ``after``.

A part that has a dot or a backtick in its name is written in backticks, as in Spark's SQL: ```a.b`.c`` is the field
``c`` of the field ``a.b``, and a backtick within is doubled. This is the only grammar for paths: the fields of a
pipeline, the columns of an audit and all other field names use it. A text that is not a path, as ``a..b``, is the
name of one field. A null field and an absent one are the same: None.
"""

import re
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from inturn.core.errors import InputError, PipelineError
from inturn.core.identity import field_names
from inturn.core.values.models import make

_PART: Final = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")
_PLAIN: Final = re.compile(r"[^.`]+")


@cache
def parts(path: str) -> tuple[str, ...]:
    """Split a path into the names of fields, the outermost first; a text that is not a path is one name."""
    names, position = [], 0
    while (part := _PART.match(path, position)) is not None:
        names.append(part[2] if part[1] is None else part[1].replace("``", "`"))
        position = part.end()
        if position == len(path):
            return tuple(names)
        if path[position] != ".":
            break
        position += 1
    return (path,)


def joined(names: Sequence[str]) -> str:
    """Return the path to a field, given the names on the way to it."""
    return ".".join(name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`" for name in names)


def value_at(content: Any, path: str) -> Any:
    """Return the value of a field of a mapping or a record; None if the field, or an outer field of it, is absent."""
    names = parts(path)
    if len(names) == 1 and type(content) is dict:  # as nearly always
        return content.get(names[0])
    for part in names:
        content = content.get(part) if type(content) is dict else _field(content, part)
        if content is None:
            return None
    return content


def is_absent(content: Any, path: str) -> bool:
    """Return whether a mapping or record lacks a field, or an outer field of it; none is absent within a null."""
    for part in parts(path):
        if content is None:
            return False
        if part not in (content if isinstance(content, Mapping) else field_names(type(content)) or ()):
            return True
        content = _field(content, part)
    return False


def reader(paths: Sequence[str | None], absent: Any) -> Callable[[Any], list[Any]]:
    """Return a function that reads the values at paths like :func:`value_at`; ``absent`` where a path is None."""
    names = [None if path is None else parts(path) for path in paths]
    firsts = [name and name[0] for name in names]
    is_flat = all(name is None or len(name) == 1 for name in names)

    def read(content: Any) -> list[Any]:
        if is_flat and type(content) is dict:  # as nearly always
            get = content.get
            return [absent if name is None else get(name) for name in firsts]
        return [absent if path is None else value_at(content, path) for path in paths]

    return read


def _field(content: Any, name: str) -> Any:
    if isinstance(content, Mapping):
        return content.get(name)
    return getattr(content, name) if name in (field_names(type(content)) or ()) else None


def put(content: Any, path: str | Sequence[str], value: Any) -> Any:
    """Return a mapping or record with another value in a field; containers on the way to it are copied.

    Raises:
        InputError: if a field on the way to it holds something that has no fields.
    """
    first, *rest = parts(path) if isinstance(path, str) else path
    if content is None:
        content = {}
    fields = field_names(type(content))
    if not isinstance(content, Mapping) and (fields is None or first not in fields):
        raise InputError(f"{content!r:.100} has no fields; expected a value with the field {first!r}")
    inner = put(_field(content, first), rest, value) if rest else value
    if fields is None:
        return {**content, first: inner}
    return make(type(content), {name: getattr(content, name) for name in fields} | {first: inner})


def without(content: Any, names: Sequence[str]) -> Any:
    """Return a mapping or record, as a mapping, without a field; content without that field is returned as it is."""
    first, *rest = names
    fields = field_names(type(content))
    if fields is not None:
        content = {name: getattr(content, name) for name in fields}
    if not isinstance(content, Mapping) or first not in content:
        return content
    if rest:
        return {**content, first: without(content[first], rest)}
    return {name: value for name, value in content.items() if name != first}


def check(record: type, path: str) -> None:
    """Check that a record type has the field of a path, as far as its annotations show.

    Raises:
        PipelineError: if it has none.
    """
    kind: Any = record
    for part in parts(path):
        fields = field_names(kind) if isinstance(kind, type) else None
        if fields is None:
            return
        if part not in fields:
            raise PipelineError(f"{kind.__name__} has no field {part!r}; existing fields: {', '.join(fields)}")
        try:
            kind = typing.get_type_hints(kind)[part]
        except NameError:  # raised where the types are needed
            return
        options = [option for option in typing.get_args(kind) if option is not type(None)]
        kind = options[0] if len(options) == 1 and typing.get_origin(kind) not in (list, dict, tuple, set) else kind
