"""Rows of messages as states: how a row is read, and how the state type is filled from it."""

import datetime as dt
import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from inturn.core.errors import PipelineError
from inturn.core.identity import field_names
from inturn.core.identity import plain as canonical_value
from inturn.core.pipeline.definition import Pipeline
from inturn.core.values import path
from inturn.core.values.construct import decoded
from inturn.core.values.instant import span_text
from inturn.core.values.states import hints_of, required
from inturn.pipelines.options import check_paths

_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
Flag = str | tuple[str, Any]
"""The path of a boolean, or a path and the value that it has: ``("op", "d")``."""


@dataclass(frozen=True, kw_only=True)
class RowHandler:
    """A handler that makes states of the rows of messages.

    Attributes:
        state: ``dict``, or the record type of the states.
        row: path of the row; None: the message itself.
        is_deleted: path and value that mark a delete; None: only a null row is a delete.
        left_out: paths of the fields of a message that its row does not contain.
    """

    state: type[Any]
    row: str | None
    is_deleted: tuple[str, Any] | None = None
    left_out: tuple[str, ...] = ()

    def __call__(self, state: Any, message: Any) -> tuple[Any, list[Any]]:
        """Return the new state and the outputs."""
        raise NotImplementedError

    def row_of(self, message: Any) -> dict[str, Any] | None:
        """Return the row of a message without its null fields; None if the message is a delete.

        Raises:
            ValueError: if the message has no field at a path, or the value there is neither a row nor a mark.
        """
        if self.is_deleted is not None and self._is_delete(message, *self.is_deleted):
            return None
        for name in self.left_out:
            message = path.without(message, path.parts(name))
        row = plain(message) if self.row is None else value_of(message, self.row)
        if row is not None and type(row) is not dict:
            raise ValueError(f"{self.row} is {row!r:.100}; expected a row, which is an object with fields")
        return row

    @staticmethod
    def _is_delete(message: Any, name: str, mark: Any) -> bool:
        value = value_of(message, name)
        if mark is True and value is not None and type(value) is not bool:
            raise ValueError(f"{name} is {value!r:.100}; expected a boolean, or is_deleted=({name!r}, {value!r:.100})")
        return bool(value == mark)

    def made(self, values: Mapping[str, Any]) -> Any:
        """Return a state with these fields; the others have their defaults.

        Raises:
            ValueError: if a value does not fit the state type.
        """
        present = {name: value for name, value in values.items() if value is not None}
        if self.state is dict:
            return present
        try:
            return msgspec.convert(present, self.state, dec_hook=decoded)
        except msgspec.ValidationError as error:
            raise ValueError(f"it is not a valid {self.state.__name__}: {error}") from error


def complete(
    pipeline: Pipeline[Any, Any, Any],
    handler: RowHandler,
    function: str,
    *,
    paths: Mapping[str, object],
    left_out: tuple[str, ...] | None = None,
) -> Pipeline[Any, Any, Any]:
    """Check the paths of a pipeline, and tell its handler which fields are not part of a row.

    Args:
        pipeline: the pipeline with its handler.
        handler: the handler.
        function: name of the function that the user has called.
        paths: the paths that the user has given, by the name of the argument.
        left_out: fields that a row does not contain if it is the message itself, besides those that place a message;
            None: also those that place it are part of the row.
    """
    given = {**paths, **({} if handler.row is None else {"row": handler.row})}
    check_paths(pipeline, function, given | ({"is_deleted": handler.is_deleted[0]} if handler.is_deleted else {}))
    names = (*([pipeline.arrival] if pipeline.arrival else []), *pipeline.ignore)
    if handler.row is None and left_out is not None:
        names += (*pipeline.placing_fields, *left_out, *(handler.is_deleted or ())[:1])
    return replace(pipeline, handler=replace(handler, left_out=tuple(dict.fromkeys(names))))


def flag_of(function: str, flag: object) -> tuple[str, Any] | None:
    """Return the path and the value that mark a delete.

    Raises:
        PipelineError: if the argument is neither a path nor a pair.
    """
    match flag:
        case None:
            return None
        case str():
            return flag, True
        case (str() as name, value) if isinstance(flag, tuple):
            return name, value
    raise PipelineError(
        f"{function}(is_deleted={flag!r}); expected the path of a boolean, or a path and a value, such as ('op', 'd')"
    )


def check_state(function: str, handler: RowHandler, fields: Collection[str], flag: str | None = None) -> None:
    """Check that the state type is ``dict``, or a record type that can hold the states.

    Args:
        function: name of the function that the user has called.
        handler: the handler, with the state type.
        fields: the fields that the type needs.
        flag: the one of them that is a boolean.

    Raises:
        PipelineError: names what the type lacks.
    """
    state: Any = handler.state
    if state is dict:
        return
    names = field_names(state) if isinstance(state, type) else None
    if names is None:
        msg = f"{function}(state={state!r}); expected dict, a dataclass, a msgspec.Struct or a model of pydantic"
        raise PipelineError(msg)
    shown = f"{function}(state={state.__name__})"
    if absent := [name for name in fields if name not in names]:
        expected = ", ".join(f"{name}: bool = False" if name == flag else name for name in fields)
        raise PipelineError(f"{shown} has no field {absent[0]!r}; expected the fields {expected}")
    if getattr(state, "__struct_encode_fields__", names) != names:
        raise PipelineError(f"{shown} renames its fields; expected a Struct without rename")
    if owed := sorted(required(state)):
        raise PipelineError(f"{shown}: the field {owed[0]!r} has no default; give each field a default")
    if flag is not None and hints_of(state)[flag] is not bool:
        raise PipelineError(f"{shown}: the field {flag!r} is not a bool; expected {flag}: bool = False")


def value_of(message: Any, name: str) -> Any:
    """Return the value at a path as JSON values; None if it is null.

    Raises:
        ValueError: if the message has no such field, so that a wrong path does not read as nulls.
    """
    value = plain(path.value_at(message, name))
    if value is None and path.is_absent(message, name):
        fields = ", ".join(map(str, fields_of(message)))
        raise ValueError(f"no field {name!r} in the message; existing fields: {fields:.200}")
    return value


def plain(value: Any) -> Any:
    """Return a value as JSON values in their canonical form, without null fields.

    A table has nulls for absent fields, times in UTC, and one scale for all decimals of a column; a queue has none of
    these. So the engines agree only on this form.
    """
    if type(value) in _SCALARS:
        return value
    if type(value) is dict or isinstance(value, Mapping):
        items = value.items()
        return {name: item if type(item) in _SCALARS else plain(item) for name, item in items if item is not None}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dt.timedelta):
        return span_text(value)
    is_enum = isinstance(value, enum.Enum)  # which may be a text or an integer too
    return value if isinstance(value, str | int | float) and not is_enum else plain(canonical_value(value))


def fields_of(record: Any) -> dict[str, Any]:
    """Return the fields of a dict or a record; none of None."""
    if record is None or isinstance(record, dict):
        return record or {}
    return {name: getattr(record, name) for name in field_names(type(record)) or ()}
