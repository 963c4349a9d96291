"""Configuration files: TOML that is converted to a type, with errors that name the file, the line and the setting."""

import re
import tomllib
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from inturn.core.address import is_address
from inturn.core.errors import InputError
from inturn.serving.setting_errors import SettingError, Steps, setting_error, setting_of

T = TypeVar("T")
_VALUE_LINES: Final = 100


_is_converting: Final = ContextVar("_is_converting", default=False)
"""Whether tables are made by msgspec, which adds the place of a table to a ValueError, and to no other error."""


class ConfigTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The base of all tables: frozen, without unknown settings."""

    def check(self) -> None:
        """Check the rules that types cannot express.

        Raises:
            InputError: if a value is not valid.
        """

    def __post_init__(self) -> None:
        try:
            self.check()
        except InputError as error:
            if _is_converting.get():
                raise ValueError(str(error)) from error
            raise


@dataclass(frozen=True)
class ConfigFile(Generic[T]):
    """A configuration file.

    Attributes:
        path: its path.
        text: its text.
        data: the parsed text.
        value: the configuration.
    """

    path: Path
    text: str
    data: dict[str, Any]
    value: T

    @contextmanager
    def errors_in(self, *table: str | int) -> Iterator[None]:
        """Add the file, the line and the table to errors.

        Args:
            table: the way to the table: names of settings and numbers of tables.

        Raises:
            InputError: if there is one within.
        """
        try:
            yield
        except InputError as error:
            text = str(error)
            raise _located(self.path, self.text, self.data, SettingError(text, table, setting_of(text))) from error


def read(path: Path, kind: type[T]) -> ConfigFile[T]:
    """Read a file as a value of a type.

    Raises:
        InputError: if the file cannot be read, is not TOML, or has an unknown setting or a wrong value.
    """
    text, data = parse_toml(path)
    try:
        return ConfigFile(path, text, data, _converted(data, kind))
    except msgspec.ValidationError as error:
        raise _located(path, text, data, setting_error(str(error), kind, data)) from None


def convert(data: Any, kind: type[T]) -> T:
    """Return settings as a value of a type.

    Raises:
        InputError: if there is an unknown setting or a wrong value.
    """
    try:
        return _converted(data, kind)
    except msgspec.ValidationError as error:
        raise InputError(setting_error(str(error), kind, data).text) from None


def _converted(data: Any, kind: type[T]) -> T:
    before = _is_converting.set(True)
    try:
        return msgspec.convert(data, kind)
    finally:
        _is_converting.reset(before)


def parse_toml(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the text of a TOML file, and its tables.

    Raises:
        InputError: if it cannot be read, or is not TOML.
    """
    text = file_text(path).replace("\r\n", "\n")
    try:
        return text, tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problem, _, position = str(error).rpartition(" (at ")
        number = re.match(r"line (\d+)", position)
        line_number = number[1] if number else _last_statement(text)  # at the end: of what has no end
        raise InputError(f"{path}: line {line_number}: not valid TOML: {problem}") from None
    except (RecursionError, ValueError):
        raise InputError(f"{path}: not valid TOML: a value is too long or is nested too deep") from None


def file_text(path: Path) -> str:
    """Return the text of a file.

    Raises:
        InputError: if it cannot be read, or is not UTF-8.
    """
    try:
        data = path.read_bytes()
        return data.decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:  # its text would show a byte of what may be a secret
        line_number = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}: line {line_number}: not valid UTF-8; save the file in this encoding") from None


def resolved(folder: Path, where: str, mark: str = "") -> str:
    """Return a location of a configuration, with a relative file resolved against its folder.

    Args:
        folder: the folder of the configuration.
        where: a file; with a mark, what follows the mark is the name of something in the file.
        mark: ``#`` between a database and a queue; ``:`` between a file or a module and a name.
    """
    place, sign, name = where.rpartition(mark) if mark else (where, "", "")
    is_file = place.endswith(".py") if mark == ":" else place and not is_address(place)
    return f"{folder / place}{sign}{name}" if is_file else where


def _located(path: Path, text: str, data: dict[str, Any], error: SettingError) -> InputError:
    steps = error.table if error.name is None else (*error.table, error.name)
    while steps and not _contains(data, steps):
        steps = steps[:-1]
    line_number = _line(text, steps) if steps else None
    where = [] if line_number is None else [f"line {line_number}"]
    return InputError(": ".join(filter(None, (str(path), ", ".join([*where, *_tables(error.table)]), error.text))))


def _tables(table: Steps) -> list[str]:
    """Return the tables on the way to a table as TOML has them: each ``[[…]]``, and the innermost ``[…]``."""
    names: list[str] = []
    headings = []
    for step in table:
        if isinstance(step, int):
            headings.append(f"[[{'.'.join(names)}]] number {step + 1}")
        else:
            names.append(step)
    return [*headings, f"[{'.'.join(names)}]"] if table and isinstance(table[-1], str) else headings


def _contains(data: Any, steps: Steps) -> bool:
    for step in steps:
        if not (step in data if isinstance(data, dict) else isinstance(data, list) and step in range(len(data))):
            return False
        data = data[step]
    return True


def _line(text: str, steps: Steps) -> int | None:
    """Return the line with which a setting or a table begins: the first lines that have it are parsed, like the file.

    A beginning of the file that ends within a value of several lines is no TOML; a shorter one is. None: a value is so
    long that finding its beginning would take too long.
    """
    lines = text.split("\n")
    try:
        last = bisect_left(range(len(lines)), x=True, key=lambda count: _contains(_beginning(lines, count)[1], steps))
        return _beginning(lines, last - 1)[0] + 1
    except _TooLong:
        return None


def _last_statement(text: str) -> int:
    """Return the line with which the last statement begins, if it is not too long; else the last line."""
    lines = text.split("\n")
    try:
        return min(_beginning(lines, len(lines))[0] + 1, len(lines))
    except _TooLong:
        return len(lines)


class _TooLong(Exception):
    """Raised for a value of more than ``_VALUE_LINES`` lines."""


def _beginning(lines: list[str], count: int) -> tuple[int, dict[str, Any]]:
    """Return the number of the first lines, at most ``count``, that are TOML, and what they contain."""
    for number in range(count, max(-1, count - _VALUE_LINES), -1):
        with suppress(tomllib.TOMLDecodeError):
            return number, tomllib.loads("\n".join(lines[:number]))
    raise _TooLong
