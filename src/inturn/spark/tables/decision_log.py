"""The decisions of a store: users append them without the writer's fence, the next step applies them, all are kept.

```
STORE/decisions/new/0001764000000000-id.json    not applied yet; the time in microseconds and the decision's id
STORE/decisions/new/0001764000000000-id.json    the same with many decisions, all of which one step applies
STORE/decisions/taken/…json                     applied by a step; its manifest records the outcome
STORE/decisions/aside/…                         not a decision; moved here by an operator
```

Only a complete decision under its own name counts. Any other file among the new ones (an editor's copy, a truncated
file, a decision of a newer version) blocks nothing: it is logged, and a command moves it aside.
"""

import contextlib
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Annotated, Literal

import msgspec

from inturn.core import limits
from inturn.core.errors import InputError, StoreConflict
from inturn.core.pipeline.decision import Decision
from inturn.spark.tables.storage import Storage

_NEW, _TAKEN, _ASIDE = "decisions/new", "decisions/taken", "decisions/aside"
_NAME = re.compile(r"\d{16,}-.+\.json")

log = logging.getLogger(__name__)


class StrayFile(msgspec.Struct, frozen=True):
    """A file among the new decisions that is not a decision: its path relative to the store, and the reason."""

    path: str
    why: str


class _DecisionBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a file with many decisions; its first field makes versions without such files ignore it."""

    action: Literal["many"] = "many"
    id: str
    at_us: int
    decisions: Annotated[list[Decision], msgspec.Meta(min_length=1)]

    @property
    def name(self) -> str:
        return f"{self.at_us:016d}-{self.id}"


class DecisionLog:
    """The decisions about the groups of one store."""

    def __init__(self, files: Storage) -> None:
        self._files = files
        self._logged: set[str] = set()

    def append(self, decision: Decision) -> str:
        """Append a decision for the next step, and return its name."""
        self._create(decision)
        return decision.name

    def append_all(self, decisions: Sequence[Decision]) -> list[str]:
        """Append decisions, many in a file, and return their names."""
        if len(decisions) == 1:
            return [self.append(decisions[0])]
        names: list[str] = []
        for first in range(0, len(decisions), limits.DECISIONS_AT_ONCE):
            part = decisions[first : first + limits.DECISIONS_AT_ONCE]
            batch = _DecisionBatch(id=part[0].id, at_us=part[0].at_us, decisions=list(part))
            self._create(batch)
            names += _by_name(batch)
        return names

    def _create(self, content: Decision | _DecisionBatch) -> None:
        self._files.create(
            f"{_NEW}/{content.name}.json", msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"
        )

    def pending(self, applied: set[str], most: int | None = None) -> dict[str, Decision]:
        """Return the decisions that no step has applied yet, by name and in order; log a warning for each stray file.

        Some files that the last step has ``taken`` may still be among the new ones. With ``most``, files are read
        completely while their decisions do not exceed it, but at least one file.
        """
        decisions: dict[str, Decision] = {}
        for path, read in self._read_new():
            if isinstance(read, StrayFile):
                if path not in self._logged:
                    self._logged.add(path)
                    log.warning("%s is not a decision and is ignored: %s", self._files.full_name(path), read.why)
                continue
            name = PurePosixPath(path).stem
            if name in applied or self.is_applied(name):
                self.archive(name)  # its step died before it moved the file, or the file was sent twice
                continue
            new = {name: read} if isinstance(read, Decision) else _by_name(read)
            if most is not None and decisions and len(decisions) + len(new) > most:
                break
            decisions |= new
        return decisions

    def is_applied(self, file: str) -> bool:
        """Return whether a file, by its name, is among those that a step applied."""
        return self._files.exists(f"{_TAKEN}/{file}.json")

    def applied(self, group: str, files: int) -> dict[str, Decision]:
        """Return the decisions about a group in the last files that steps applied, by name, the last first."""
        decisions: dict[str, Decision] = {}
        for path in sorted(self._files.names(_TAKEN), reverse=True)[:files]:
            data = self._files.read(path)
            read = None if data is None else _decode(path, data, _TAKEN)
            if isinstance(read, StrayFile) or read is None:
                continue
            by_name = {read.name: read} if isinstance(read, Decision) else _by_name(read)
            decisions |= {name: decision for name, decision in reversed(by_name.items()) if decision.group == group}
        return decisions

    def content(self, file: str) -> dict[str, Decision]:
        """Return the decisions in a file, new or taken, by their names; none if there is no such file."""
        for folder in (_NEW, _TAKEN):
            data = self._files.read(f"{folder}/{file}.json")
            if data is not None:
                read = _decode(f"{_NEW}/{file}.json", data)
                if isinstance(read, StrayFile):
                    return {}
                return {file: read} if isinstance(read, Decision) else _by_name(read)
        return {}

    def strays(self) -> list[StrayFile]:
        """Return the files among the new decisions that are not decisions."""
        return [read for _, read in self._read_new() if isinstance(read, StrayFile)]

    def move_strays(self) -> list[StrayFile]:
        """Move the files that are not decisions to ``decisions/aside``, and return them."""
        moved = self.strays()
        for stray in moved:
            data = self._files.read(stray.path)
            if data is not None:
                self._files.replace(f"{_ASIDE}/{PurePosixPath(stray.path).name}", data)
                self._files.delete(stray.path)
        return moved

    def archive(self, name: str) -> None:
        """Move a file of decisions that a committed step applied to ``decisions/taken``."""
        data = self._files.read(f"{_NEW}/{name}.json")
        if data is not None:
            with contextlib.suppress(StoreConflict):
                self._files.create(f"{_TAKEN}/{name}.json", data)
            self._files.delete(f"{_NEW}/{name}.json")

    def erase(self, group: str) -> None:
        """Remove the contents of messages from the decisions about a group; who decided, when and why stays."""
        for folder in (_NEW, _TAKEN):
            for path in self._files.names(folder):
                data = self._files.read(path)
                read = None if data is None else _decode(f"{_NEW}/{PurePosixPath(path).name}", data)
                if read is None or isinstance(read, StrayFile):
                    continue
                if isinstance(read, Decision):
                    erased: Decision | _DecisionBatch = _erased(read, group)
                else:
                    erased = msgspec.structs.replace(
                        read, decisions=[_erased(decision, group) for decision in read.decisions]
                    )
                if erased != read:
                    self._files.replace(path, msgspec.json.format(msgspec.json.encode(erased), indent=1) + b"\n")

    def _read_new(self) -> Iterator[tuple[str, Decision | _DecisionBatch | StrayFile]]:
        for path in sorted(self._files.names(_NEW)):
            if PurePosixPath(path).name.startswith("."):
                continue  # an unfinished draft of our own, in a directory
            data = self._files.read(path)
            if data is not None:
                yield path, _decode(path, data)


def file_of(name: str) -> str:
    """Return the file of a decision, by the decision's name."""
    return name.partition("/")[0]


def number_of(name: str) -> str:
    """Return the number of a decision in a file with many, by its name; empty if the file has only this one."""
    return name.partition("/")[2]


def _by_name(batch: _DecisionBatch) -> dict[str, Decision]:
    """Return the decisions of a file with many of them by their names, whose order is theirs."""
    return {f"{batch.name}/{number:06d}": decision for number, decision in enumerate(batch.decisions)}


def _erased(decision: Decision, group: str) -> Decision:
    return replace(decision, old=None, new=None) if decision.group == group else decision


def _decode(path: str, data: bytes, folder: str = _NEW) -> Decision | _DecisionBatch | StrayFile:
    name = PurePosixPath(path).name
    if not _NAME.fullmatch(name) or path != f"{folder}/{name}":
        return StrayFile(path, "its name is not the name of a decision")
    content: Decision | _DecisionBatch
    try:
        if msgspec.json.decode(data, type=_ActionField).action == "many":
            content = msgspec.json.decode(data, type=_DecisionBatch)
        else:
            content = msgspec.json.decode(data, type=Decision)
    except (msgspec.MsgspecError, InputError, UnicodeDecodeError) as error:
        return StrayFile(path, f"its content is not a complete decision: {error}")
    if name != f"{content.name}.json":
        return StrayFile(path, f"it contains the decision {content.name}, which does not match its name")
    return content


class _ActionField(msgspec.Struct, frozen=True):
    """The part of a file that shows whether it contains one decision or many."""

    action: str | None = None
