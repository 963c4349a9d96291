"""Models of pydantic as records: recognised and made without importing pydantic, which an application may lack.

A model goes by the names of its fields, in messages, columns, states and outputs. In the JSON of a message a field may
also have its alias. A message is validated as JSON by the model itself, so its validators, its constraints and its
``strict`` hold; one with bytes as Python values, without ``strict``. A state was validated when it was made, and is
read without ``strict``, since stores have fewer types.
"""

import datetime as dt
import enum
import functools
import json
import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from inturn.core.identity import field_names, is_model
from inturn.core.values.instant import span_text


def make(record: type, fields: Mapping[str, Any]) -> Any:
    """Make a record of any type from its fields by name."""
    return validated(record, fields) if is_model(record) else record(**fields)


def validated(model: Any, fields: Mapping[str, Any]) -> Any:
    """Validate the fields of a message, given by name; then all fields count as set, given or not.

    Raises:
        ValueError: if the model refuses them.
    """
    try:
        text = json.dumps(fields, default=_json)
    except TypeError:  # bytes, which JSON lacks; other values may still be texts, as in JSON
        record = model.model_validate(dict(fields), strict=False, by_name=True, by_alias=True)
    else:
        record = model.model_validate_json(text, by_name=True, by_alias=True)
    record.model_fields_set.update(model.__pydantic_fields__)
    return record


def _json(value: Any) -> Any:
    match value:
        case dt.date() | dt.time():
            return value.isoformat()
        case dt.timedelta():
            return span_text(value)
        case Decimal() | uuid.UUID():
            return str(value)
        case enum.Enum():
            return value.value
        case set() | frozenset():
            return list(value)
    raise TypeError


def unchecked(model: Any, fields: dict[str, Any]) -> Any:
    """Make a model from all its fields, without validation."""
    instance = model.__new__(model)
    set_attribute = object.__setattr__  # the model may be frozen
    set_attribute(instance, "__dict__", fields)
    set_attribute(instance, "__pydantic_fields_set__", set(fields))
    set_attribute(instance, "__pydantic_extra__", None)
    set_attribute(instance, "__pydantic_private__", None)
    return instance


def fields_of(value: Any) -> dict[str, Any]:
    """Return the fields of a model, for an encoder of states.

    Raises:
        TypeError: if it is not a model.
    """
    names = field_names(type(value)) if is_model(type(value)) else None
    if names is None:
        raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")
    return {name: getattr(value, name) for name in names}


def dumped(value: Any) -> Any:
    """Return a model as its own serializers and computed fields say, for an encoder of bodies, outputs and results.

    Raises:
        TypeError: if it is not a model.
    """
    return value.model_dump(by_alias=False) if is_model(type(value)) else fields_of(value)


def hints(model: Any) -> dict[str, Any]:
    """Return the types of a model's fields.

    Raises:
        NameError: if one cannot be resolved.
    """
    model.model_rebuild()
    return {name: field.annotation for name, field in model.__pydantic_fields__.items()}


def required(model: Any) -> frozenset[str]:
    """Return the fields of a model that have no default."""
    return frozenset(name for name, field in model.__pydantic_fields__.items() if field.is_required())


def by_name(record: type | None, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return fields with the names of a record's fields; those that have an alias for a name are renamed."""
    aliases = _aliases(record)
    if aliases.keys().isdisjoint(fields):  # as nearly always
        return fields
    return {name: fields[name] for name in fields if name not in aliases} | {
        name: fields[alias] for alias, name in aliases.items() if alias in fields and name not in fields
    }


@functools.cache
def _aliases(record: Any) -> dict[str, str]:
    """Return the names of a model's fields by alias."""
    names = {}
    for name, field in record.__pydantic_fields__.items() if is_model(record) else ():
        alias = field.validation_alias
        for choice in getattr(alias, "choices", (alias,)):  # AliasChoices has several
            if isinstance(choice, str) and choice not in record.__pydantic_fields__:
                names[choice] = name
    return names


def unkept(model: Any) -> str | None:
    """Return the first part of a model that stores do not keep, or None."""
    if model.__private_attributes__:
        return f"its private attribute {next(iter(model.__private_attributes__))!r}"
    return "the extra fields that it allows" if model.model_config.get("extra") == "allow" else None


def faults(error: BaseException) -> str | None:
    """Return the text of a validation error in one line, with the fields at fault; None for any other error."""
    if type(error).__module__.partition(".")[0] != "pydantic_core" or not hasattr(error, "errors"):
        return None
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(
        ": ".join((*filter(None, [".".join(map(str, problem["loc"]))]), problem["msg"])) for problem in problems
    )
