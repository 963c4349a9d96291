"""Files in a folder: JSON lines, CSV and Parquet; each file is a partition.

A file must be complete when it appears: write it elsewhere, then rename it into the folder. A position is the number of
records read, also in a compressed file, which is read again up to that record.

A file is read in the state in which it was claimed: as many bytes as it had then. Before and after reading, and in each
scan of the folder, its identity is checked (see file_identity.py):

- a file with the same content and any inode has no new records; with the same inode and another name it was renamed;
- JSON lines appended to a file after a complete line are read; an appended line ending belongs to the last line;
- another file under the name of a file that was read to its end is read from its start;
- any other change is refused, with the number of records that were read: nothing is silently skipped or sent twice.
"""

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from pathlib import Path
from typing import IO, Any, Final

from inturn.core.arguments import check_type
from inturn.core.errors import InputError, PositionGone, SetupError
from inturn.core.override import override
from inturn.ingest import limits as source_limits
from inturn.ingest.events import EVENTS
from inturn.ingest.positions import PositionForm
from inturn.ingest.source import Change, KnownPartition, PartitionComparison, PollBatch, Source, SourceRecord
from inturn.ingest.sources.file_identity import FileIdentity, FileState, digest, file_state
from inturn.ingest.sources.file_rows import format_of, rows_of

_LISTINGS: Final = 5  # maximum attempts, in a folder where files are renamed all the time
_DIGESTED_BYTES: Final = 2 * source_limits.FOLDER_DIGEST_BYTES
_SEEK: Final = "use `inturn ingest seek` with --partition to set the record to continue from"


def _changed_text(name: str, before: FileIdentity) -> str:
    text = f"{name} was changed after its first {before.size:,} bytes were read"
    return f"{text}: a file must be complete when it appears; {_SEEK}"


@dataclass(slots=True)
class _OpenFile:
    """A file that is being read.

    Attributes:
        identity: its identity when it was claimed.
        committed: the number of its committed records.
        records: its further records; None: reading has not begun.
        count: the number of its records; None: it is not read to its end.
        unreturned: the next record, for which the last poll had no room.
    """

    identity: FileIdentity
    committed: int
    records: Iterator[SourceRecord] | None = None
    count: int | None = None
    unreturned: SourceRecord | None = None


class FolderSource(Source):
    """A folder into which files are dropped.

    A line of JSON is a record. A row of CSV or of tab-separated values, whose first row has the names, and
    a row of Parquet are JSON objects. JSON and CSV may be compressed, as ``.jsonl.gz`` or ``.csv.zst``. Files are read
    in the order of their names; a file that is read to its end may be removed. A damaged file is read up to the
    damage, and then refused. Files with another ending are named in the log, once for each ending.

    Args:
        path: the folder.
        pattern: the pattern of file names, such as ``*.jsonl``.

    Raises:
        InputError: if the folder does not exist, or the pattern has a slash.
    """

    position_form: PositionForm = "number"

    def __init__(self, path: str | Path, pattern: str = "*") -> None:
        check_type("path", path, (str, Path), "the path of a folder")
        self._folder = Path(path)
        if not self._folder.is_dir():
            raise InputError(f"{str(path)!r} is not a folder; create it, or set another path")
        if "/" in pattern:
            raise InputError(f"pattern is {pattern!r}; expected no slash: it is for files directly in the folder")
        self._matches = re.compile(translate(pattern)).match
        self._scanned: dict[str, FileState] = {}  # by the last scan
        self._listed_names: set[str] = set()  # all names in that scan
        self._open: dict[str, _OpenFile] = {}
        self._failing: set[str] = set()  # open files that cannot be read now; the next scan leaves them out
        self._skipped: set[str] = set()  # by the current scan
        self._refused: dict[str, str] = {}  # open files that cannot be read further, with the reason
        self._logged: dict[str, str] = {}  # what was logged, so that it is logged once

    @override
    def partitions(self) -> Sequence[str]:
        self._skipped, self._failing = self._failing, set()
        self._scan()
        return sorted(self._scanned)

    def _scan(self) -> None:
        """Scan the folder; repeat if it changes meanwhile, since a file may be renamed between two listings."""
        for _ in range(_LISTINGS):
            before = self._list_folder()
            states = dict[str, FileState]()
            for name in sorted(before):
                state = self._file_state(name)
                if state is not None:
                    states[name] = state
            if self._list_folder() == before:
                break
        self._scanned = self._without_links(states)

    def _list_folder(self) -> dict[str, int]:
        with os.scandir(self._folder) as scanned:
            entries = list(scanned)
        self._listed_names = {entry.name for entry in entries}
        return {entry.name: entry.inode() for entry in entries if self._is_readable(entry)}

    def _file_state(self, name: str) -> FileState | None:
        """Return a file as it is now; None: it is gone, or cannot be read."""
        if name in self._skipped:
            return None
        try:
            state = file_state(self._folder / name, self._scanned.get(name))
        except FileNotFoundError:  # removed meanwhile
            return None
        except OSError as error:
            self._log_once(name, f"{name} cannot be read now: {error.strerror}")
            return None
        self._logged.pop(name, None)
        return state

    def _without_links(self, states: dict[str, FileState]) -> dict[str, FileState]:
        """Leave out further names of the same file, such as links."""
        first: dict[int, str] = {}
        for name, state in states.items():
            if first.setdefault(state.identity.inode, name) != name:
                self._log_once(
                    name, f"{name} is not read: it is a link to the same file as {first[state.identity.inode]}"
                )
        return {name: states[name] for name in first.values()}

    def _is_readable(self, entry: "os.DirEntry[str]") -> bool:
        name = entry.name
        if name.startswith(".") or not self._matches(name):
            return False
        try:
            name.encode()
            if not entry.is_file():
                return False
        except UnicodeEncodeError:
            self._log_once(name, f"{name!a} is not read: its name is not UTF-8")
            return False
        except OSError as error:
            self._log_once(name, f"{name} cannot be read now: {error.strerror}")
            return False
        if format_of(name) is None:
            ending = Path(name).suffix
            if f"*{ending}" not in self._logged:
                self._log_once(f"*{ending}", f"{name} is not read: files that end in {ending!r} are not supported")
            return False
        return True

    def _log_once(self, name: str, text: str) -> None:
        if self._logged.get(name) != text:
            self._logged[name] = text
            folder = str(self._folder)
            EVENTS.warning("not_read", folder, "folder %(folder)s: %(reason)s", folder=folder, reason=text)

    @override
    def incarnation(self, partition: str) -> str:
        if partition in self._open:
            return str(self._open[partition].identity)
        return str(self._scanned[partition].identity)

    @override
    def compare(
        self,
        known: Mapping[str, KnownPartition],
        incarnations: Mapping[str, str],  # noqa: ARG002 - they are read again
    ) -> Mapping[str, PartitionComparison]:
        self._scan()  # again: the stored state may be newer than the last scan
        parsed = {name: FileIdentity.parse(row.incarnation) for name, row in known.items()}
        identities = {name: identity for name, identity in parsed.items() if identity is not None}
        matched = self._match_files(identities)
        matched_names = frozenset(matched.values())
        return {name: self._compare_file(name, known, identities, matched, matched_names) for name in self._scanned}

    def _match_files(self, identities: Mapping[str, FileIdentity]) -> dict[str, str]:
        """Return the names under which the files are known, matched by identity and not by name."""
        by_inode: dict[int, list[str]] = {}
        for name, before in identities.items():
            by_inode.setdefault(before.inode, []).append(name)
        matched: dict[str, str] = {}
        copied_back = self._unchanged_files(identities)
        for name, state in self._scanned.items():
            # Every file begins with the content of an empty file, whose inode may be reused.
            min_size = 1 if name in copied_back else 0
            of_inode = (old for old in by_inode.get(state.identity.inode, ()) if identities[old].size >= min_size)
            candidates = [old for old in of_inode if self._is_same_file(name, old, identities[old])]
            if candidates:
                matched[name] = max(candidates, key=lambda old: (identities[old].size, old == name))
        matched_names = set(matched.values())
        return matched | {name: name for name in copied_back - matched.keys() - matched_names}

    def _unchanged_files(self, identities: Mapping[str, FileIdentity]) -> set[str]:
        """Return the names of files whose content is the one known under the same name."""
        return {
            name
            for name, state in self._scanned.items()
            if name in identities and state.identity.has_same_content(identities[name])
        }

    def _is_same_file(self, name: str, known_as: str, before: FileIdentity) -> bool:
        """Return whether a file with the inode of a known file is that file."""
        current = self._scanned[name].identity
        if current.size == before.size and name != known_as and current.mtime_ns != before.mtime_ns:
            return False  # inodes are reused, and files with equal content are common
        return self._begins_with(name, current, before)

    def _compare_file(
        self,
        name: str,
        known: Mapping[str, KnownPartition],
        identities: Mapping[str, FileIdentity],
        matched: Mapping[str, str],
        matched_names: frozenset[str],
    ) -> PartitionComparison:
        """Return the result for a file and for the state stored under its name."""
        current, own = self._scanned[name].identity, known.get(name)
        stored_name, displaced_name = matched.get(name), None
        before = identities.get(name)
        if own is not None and before is not None and stored_name != name and name not in matched_names:
            if own.is_open or own.is_open_elsewhere:  # it is read to its end first; a later scan compares it
                return PartitionComparison(own.incarnation, name)
            if own.is_position_set:
                return PartitionComparison(str(current), name)
            if not own.is_finished:
                reason = f"{name} is a different file: the one that was being read is gone, with its unread rest"
                return PartitionComparison(own.incarnation, name, refusal=f"{reason}; {_SEEK}")
            if (
                current.inode != before.inode
                and 0 < before.size < current.size
                and self._begins_with(name, current, before)
            ):
                return PartitionComparison(own.incarnation, name, refusal=_changed_text(name, before))
            displaced_name = f"{name} (before, inode {before.inode}, {before.size:,} bytes)"
        if stored_name is None:
            return PartitionComparison(str(current), name, "none" if own is None else "new", displaced_name)
        return self._compare_known(
            name,
            known[stored_name],
            identities[stored_name],
            PartitionComparison(str(current), stored_name, "none", displaced_name),
        )

    def _compare_known(
        self, name: str, own: KnownPartition, before: FileIdentity, unchanged: PartitionComparison
    ) -> PartitionComparison:
        """Return the result for a known file."""
        current = self._scanned[name].identity
        if own.is_open or own.is_open_elsewhere:
            return unchanged._replace(incarnation=own.incarnation)
        if own.is_position_set:
            return unchanged
        if current.size > before.size:
            change = self._growth(name, before.size)
            if change is not None:
                return unchanged._replace(change=change)
            return unchanged._replace(incarnation=own.incarnation, refusal=_changed_text(name, before))
        if (
            not own.is_finished
            and own.is_begun
            and current.size > _DIGESTED_BYTES
            and current.mtime_ns != before.mtime_ns
        ):
            reason = f"{name} may have changed after a part of it was read: only its beginning and end are compared"
            return unchanged._replace(incarnation=own.incarnation, refusal=f"{reason}; {_SEEK}")
        return unchanged

    def _begins_with(self, name: str, current: FileIdentity, before: FileIdentity) -> bool:
        if current.size <= before.size:
            return current.has_same_content(before)
        with (self._folder / name).open("rb") as file:
            return digest(file, before.size) == before.digest

    def _growth(self, name: str, size: int) -> Change | None:
        """Return the kind of growth after the first ``size`` bytes; None: their records may have changed."""
        format_ = format_of(name)
        if size == 0:
            return "more"
        if format_ is None or format_.compression or format_.kind == "parquet":
            return None
        with (self._folder / name).open("rb") as file:
            file.seek(size - 1)
            last, added = file.read(1), file.read(3)
        if format_.may_grow and (last == b"\n" or added.startswith((b"\n", b"\r\n"))):
            return "more"
        return "none" if last != b"\n" and added in (b"\n", b"\r\n") else None

    @override
    def open(self, partition: str, position: Any) -> None:
        if position is not None and (type(position) is not int or position < 0):
            raise PositionGone(
                f"position {position!r} is not a number of records; seek to a whole number from 0 on, or to the start"
            )
        if partition not in self._scanned:
            self._scanned[partition] = file_state(self._folder / partition, None)
        self._open[partition] = _OpenFile(self._scanned[partition].identity, position or 0)

    @override
    def poll(self, limit: int, timeout_s: float) -> Sequence[SourceRecord]:
        self._raise_refused()
        batch = PollBatch(limit, self.batch_bytes)
        for name in sorted(self._open):
            if self._open[name].count is None and name not in self._failing:
                self._read(name, self._open[name], batch)
            if batch.is_full:
                break
        if not batch.records:
            self._raise_refused()
            time.sleep(timeout_s)
        return batch.records

    def _raise_refused(self) -> None:
        for name, reason in self._refused.items():
            raise PositionGone(reason, name)

    def _read(self, name: str, open_file: _OpenFile, batch: PollBatch) -> None:
        """Add the next records of a file."""
        if open_file.records is None:
            open_file.records = self._records(name, open_file)
        try:
            while not batch.is_full and (record := open_file.unreturned or next(open_file.records, None)) is not None:
                open_file.unreturned = None if batch.add(record) else record
        except (PositionGone, SetupError) as error:
            self._refused[name] = str(error)
        except Exception as error:  # noqa: BLE001 - any error of the libraries; the other files are read
            if not isinstance(error, OSError) or error.errno is None:
                self._refused[name] = (
                    f"{name} cannot be read further: {error or type(error).__name__}; repair it, then {_SEEK}"
                )
                return
            self._failing.add(name)
            if not isinstance(error, FileNotFoundError):
                self._log_once(name, f"{name} cannot be read now: {error.strerror}")

    def _records(self, name: str, open_file: _OpenFile) -> Iterator[SourceRecord]:
        """Yield the records of a file after those that were read, and note that it is finished."""
        number, committed = 0, open_file.committed
        with (self._folder / name).open("rb") as file:
            before = os.fstat(file.fileno())
            if (
                before.st_ino != open_file.identity.inode
                or digest(file, open_file.identity.size) != open_file.identity.digest
            ):
                self._failing.add(name)  # the next scan identifies it
                return
            for number, body in enumerate(rows_of(name, file, open_file.identity.size), 1):
                if number > committed:
                    yield SourceRecord(name, number, body)
            _check_same(name, file, open_file.identity, before)
        if number < committed:
            raise PositionGone(f"{name} now has fewer than the {committed:,} records that were already read from it")
        open_file.count = number

    @override
    def is_removed(self, partition: str) -> bool:
        return partition not in self._listed_names

    @override
    def is_finished(self, partition: str) -> bool:
        open_file = self._open[partition]
        return open_file.committed == open_file.count

    @override
    def confirm(self, partition: str, position: Any) -> None:
        self._open[partition].committed = position

    @override
    def close(self, partition: str) -> None:
        open_file = self._open.pop(partition, None)
        if open_file is not None and open_file.records is not None:
            open_file.records.close()  # type: ignore[attr-defined]  # a generator's, which closes the file
        self._refused.pop(partition, None)


def _check_same(name: str, file: IO[bytes], identity: FileIdentity, before: os.stat_result) -> None:
    """Check that a file was not changed while it was read; appended lines are found by the next scan."""
    current = os.fstat(file.fileno())
    if (current.st_size, current.st_mtime_ns) == (before.st_size, before.st_mtime_ns):
        return
    is_known_whole = current.st_size > identity.size or identity.size <= _DIGESTED_BYTES
    if not is_known_whole or digest(file, identity.size) != identity.digest:
        raise PositionGone(f"{name} was changed while it was read; a file must be complete when it appears")
