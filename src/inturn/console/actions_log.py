"""The action log: user, action, time and outcome; it cannot be switched off."""

import datetime as dt
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from inturn.console.roles import Person
from inturn.core.errors import InturnError, StoreError

CARRIED_OUT: Final = "the action was carried out"
"""The end of the error of an action that is only missing in the log."""
_LEFT_OUT: Final = {"token", "secret"}
_LATEST: Final = 200
_TAIL: Final = 256 * 1024
"""A page reads this number of bytes at the end of the file."""


class ActionsLog:
    """A file of JSON lines, one before and one after each action; several processes may share it.

    An action whose first line cannot be written is refused.

    Args:
        path: the file; created at the first action.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mutex = threading.Lock()

    @contextmanager
    def action(self, person: Person, name: str, fields: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """Write that an action begins and how it ended; the end includes the contents of the yielded dictionary.

        Raises:
            StoreError: if the log cannot be written. The text says whether the action was carried out.
        """
        parameters = {key: value for key, value in fields.items() if key not in _LEFT_OUT and value}
        entry = {"by": person.name, "role": person.role, "action": name, "asked": parameters}
        self._write({**entry, "event": "begins"})
        outcome: dict[str, Any] = {}
        try:
            yield outcome
        except Exception as error:
            text = str(error) if isinstance(error, InturnError | OSError) else repr(error)
            self._write({**entry, "event": "failed", "error": text}, "the action had failed")
            raise
        self._write({**entry, "event": "done", "became": outcome}, CARRIED_OUT)

    def note(self, name: str, by: str, event: str) -> None:
        """Write one line about an event that is not an action on a store, such as a refused log-in."""
        self._write({"by": by, "action": name, "event": event})

    def latest(self) -> list[dict[str, Any]]:
        """Return the latest entries, newest first; an entry that was cut off by a crash is left out."""
        try:
            with self.path.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
                lines = file.read().splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreError(f"the action log {self.path} cannot be read: {error.strerror}") from error
        entries: list[dict[str, Any]] = []
        for line in reversed(lines):
            try:
                entries.append(json.loads(line))
            except ValueError:
                continue
            if len(entries) == _LATEST:
                break
        return entries

    def _write(self, entry: Mapping[str, Any], consequence: str = "nothing was changed") -> None:
        record = {"at": dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds"), **entry}
        data = (json.dumps(record, ensure_ascii=False, default=str) + "\n").encode("utf-8", "replace")
        try:
            with self._mutex:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
                try:
                    _append(file, data)
                finally:
                    os.close(file)
        except OSError as error:
            raise StoreError(
                f"the action log {self.path} cannot be written ({error.strerror}); {consequence}"
            ) from error


def _append(file: int, data: bytes) -> None:
    """Append a whole line; a previous line that was cut off by a full disk or a crash is terminated first.

    Raises:
        OSError: if it cannot be written to the disk.
    """
    _lock(file)
    if os.lseek(file, 0, os.SEEK_END) and os.lseek(file, -1, os.SEEK_END) >= 0 and os.read(file, 1) != b"\n":
        data = b"\n" + data
    while data:
        data = data[os.write(file, data) :]
    os.fsync(file)


def _lock(file: int) -> None:
    """Lock a file until it is closed, where the system supports it, so that no other process is within a line."""
    with suppress(ImportError):
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX)
