"""The decisions of a store: people append them without the writer's fence, the next step takes them, all are kept.

```
STORE/decisions/new/0001764000000000-id.json    not taken yet; the time in microseconds and the decision's id
STORE/decisions/taken/…json                     taken by a step; its manifest records the outcome
STORE/decisions/aside/…                         not a decision; moved here by a person
```

Only a whole decision under its own name counts. Any other file among the new ones (an editor's copy, a truncated
file, a decision of a newer version) blocks nothing: it is logged, and a command moves it aside.
"""

import contextlib
import logging
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

import msgspec

from inturn.core.errors import InputError, StoreConflict
from inturn.core.pipeline.decision import Decision
from inturn.spark.tables.storage import Storage

_NEW, _TAKEN, _ASIDE = "decisions/new", "decisions/taken", "decisions/aside"
_NAME = re.compile(r"\d{16,}-.+\.json")

log = logging.getLogger(__name__)


class Stray(msgspec.Struct, frozen=True):
    """A file among the new decisions that is not a decision: its path relative to the store, and the reason."""

    path: str
    why: str


class DecisionLog:
    """The decisions about the groups of one store."""

    def __init__(self, files: Storage) -> None:
        self._files = files
        self._told: set[str] = set()

    def append(self, decision: Decision) -> str:
        """Append a decision for the next step to take, and return its name."""
        name = _name_of(decision)
        content = msgspec.json.format(msgspec.json.encode(decision), indent=1) + b"\n"
        self._files.create(f"{_NEW}/{name}.json", content)
        return name

    def pending(self, taken: set[str]) -> dict[str, Decision]:
        """Return the decisions that no step has taken yet, by name and in order; log a warning for each stray file.

        Some that the last step has ``taken`` may lie among the new ones still.
        """
        found = {}
        for path, read in self._new():
            if isinstance(read, Stray):
                if path not in self._told:
                    self._told.add(path)
                    log.warning("%s is no decision and is passed over: %s", self._files.where(path), read.why)
                continue
            name = PurePosixPath(path).stem
            if name in taken or self._files.exists(f"{_TAKEN}/{name}.json"):
                self.file_away(name)  # the step that took it died before filing it, or it was sent twice
            else:
                found[name] = read
        return found

    def strays(self) -> list[Stray]:
        """Return the files among the new decisions that are not decisions."""
        return [read for _, read in self._new() if isinstance(read, Stray)]

    def move_strays(self) -> list[Stray]:
        """Move the files that are not decisions to ``decisions/aside``, and return them."""
        moved = self.strays()
        for stray in moved:
            data = self._files.read(stray.path)
            if data is not None:
                self._files.replace(f"{_ASIDE}/{PurePosixPath(stray.path).name}", data)
                self._files.delete(stray.path)
        return moved

    def file_away(self, name: str) -> None:
        """Move a decision that a committed step took to ``decisions/taken``."""
        data = self._files.read(f"{_NEW}/{name}.json")
        if data is not None:
            with contextlib.suppress(StoreConflict):
                self._files.create(f"{_TAKEN}/{name}.json", data)
            self._files.delete(f"{_NEW}/{name}.json")

    def _new(self) -> Iterator[tuple[str, Decision | Stray]]:
        for path in sorted(self._files.names(_NEW)):
            if PurePosixPath(path).name.startswith("."):
                continue  # an unfinished draft of our own, in a directory
            data = self._files.read(path)
            if data is not None:
                yield path, _read(path, data)


def _read(path: str, data: bytes) -> Decision | Stray:
    name = PurePosixPath(path).name
    if not _NAME.fullmatch(name) or path != f"{_NEW}/{name}":
        return Stray(path, "its name is not that of a decision")
    try:
        decision = msgspec.json.decode(data, type=Decision)
    except (msgspec.MsgspecError, InputError, UnicodeDecodeError) as error:
        return Stray(path, f"its content is not a whole decision: {error}")
    if name != f"{_name_of(decision)}.json":
        return Stray(path, f"it holds the decision {_name_of(decision)}, which has another name")
    return decision


def _name_of(decision: Decision) -> str:
    return f"{decision.at_us:016d}-{decision.id}"
