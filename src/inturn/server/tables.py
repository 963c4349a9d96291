"""The base class of all tables of the endpoint's configuration, and the function that reads its files."""

from pathlib import Path

from msgspec import Struct

from inturn.core.errors import InputError


class Table(Struct, frozen=True, forbid_unknown_fields=True):
    """The base of all tables: frozen, without unknown names."""


def file_text(path: Path) -> str:
    """Return the text of a configuration or of a secret.

    Raises:
        InputError: if it cannot be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not valid UTF-8, the encoding of TOML files and secrets: {error}") from None
