"""Configuration files: TOML that is converted to a type, with errors that name the file."""

import tomllib
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from inturn.core.errors import InputError

T = TypeVar("T")


def read_toml(path: Path, kind: type[T]) -> T:
    """Read a file as a value of a type.

    Raises:
        InputError: if the file cannot be read, is not TOML, or has an unknown name or a wrong value.
    """
    try:
        return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), kind)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not valid TOML: {error}") from None
    except msgspec.ValidationError as error:
        kinds = f"; expected one of {', '.join(sorted(_kinds(kind)))}" if str(error).endswith(".kind`") else ""
        raise InputError(f"{path}: {error}{kinds}") from None


def _kinds(kind: type) -> set[str]:
    """Return the values of ``kind`` that distinguish the tables within a type."""
    found, left = set[str](), [inspect.type_info(kind)]
    while left:
        each: Any = left.pop()
        left += [field.type for field in getattr(each, "fields", ())]
        left += getattr(each, "types", ())
        left += [each.item_type] if hasattr(each, "item_type") else []
        found |= {each.tag} if getattr(each, "tag", None) else set()
    return found
