"""Configuration files: TOML that is read as a type, with errors that name the file."""

import tomllib
from pathlib import Path
from typing import TypeVar

import msgspec

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
        raise InputError(f"{path}: this is no TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: {error}") from None
