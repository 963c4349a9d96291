"""Secrets of configuration files: the setting itself, an environment variable, or a file of its own."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from inturn.core.errors import InputError
from inturn.serving.config_file import file_text

T = TypeVar("T", bound=msgspec.Struct)


def check_secret(table: Any, name: str, *, needed: bool = True) -> None:
    """Check that a table sets a secret once: as ``name``, ``name_env`` or ``name_file``.

    Args:
        table: the table.
        name: the setting of the secret.
        needed: whether there must be one.

    Raises:
        InputError: if it is set several times, or is missing.
    """
    names = (name, f"{name}_env", f"{name}_file")
    present = [setting for setting in names if getattr(table, setting) not in (None, ())]
    choices = f"one of {names[0]}, {names[1]} and {names[2]}"
    if len(present) > 1:
        raise InputError(f"{' and '.join(present)} are set; set only {choices}")
    if needed and not present:
        raise InputError(f"no {name} is set; set {choices}")


def with_secret(table: T, name: str, folder: Path, environ: Mapping[str, str] = os.environ) -> T:
    """Return a table with its secret in the setting itself, wherever it comes from.

    Args:
        table: the table.
        name: the setting of the secret; if it is a list, the variable or the file has one per line.
        folder: the folder to which the name of a relative file refers.
        environ: the environment variables.

    Raises:
        InputError: if the secret cannot be read, is empty, or is refused by the table's check.
    """
    variable, file = getattr(table, f"{name}_env"), getattr(table, f"{name}_file")
    if variable is None and file is None:
        return table
    if variable is not None:
        text = environ.get(variable, "")
        named = f"is {variable!r}," if re.fullmatch("[A-Z_][A-Z0-9_]*", variable) else "names"  # it may be a secret
        problem = f"{name}_env {named} an environment variable that is not set or is empty"
    else:
        text, problem = "", f"{name}_file is {file!r}, a file that is empty"
        try:
            text = file_text(folder / file).strip()
        except InputError as error:
            problem = f"{name}_file is {file!r}, which cannot be read ({error})"
    is_list = isinstance(getattr(table, name), tuple)
    if not text.strip():
        raise InputError(f"{problem}; expected the {name}{', one per line' if is_list else ''}")
    value = tuple(line for line in map(str.strip, text.splitlines()) if line) if is_list else text
    return msgspec.structs.replace(table, **{name: value, f"{name}_env": None, f"{name}_file": None})
