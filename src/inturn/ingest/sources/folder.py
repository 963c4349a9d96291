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
from inturn.ingest.sources.file_identity import FileIdentity, SeenFile, digest, seen
from inturn.ingest.sources.file_rows import format_of, rows_of

_LISTINGS: Final = 5  # maximum attempts, in a folder where files are renamed all the time
_KNOWN_WHOLE: Final = 2 * source_limits.FOLDER_DIGEST_BYTES
_SEEK: Final = "use `inturn ingest seek` with --partition to set the record to continue from"


def _grown(name: str, before: FileIdentity) -> str:
    what = f"{name} was changed after its first {before.size:,} bytes were read"
    return f"{what}: a file must be complete when it appears; {_SEEK}"


@dataclass(slots=True)
class _OpenFile:
    """A file that is being read.

    Attributes:
        identity: its identity when it was claimed.
        done: the number of its committed records.
        records: its further records; None: reading has not begun.
        count: the number of its records; None: it is not read to its end.
        left: the next record, for which the last poll had no room.
    """

    identity: FileIdentity
    done: int
    records: Iterator[SourceRecord] | None = None
    count: int | None = None
    left: SourceRecord | None = None


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
        self._seen: dict[str, SeenFile] = {}  # by the last scan
        self._named: set[str] = set()  # all names in that scan
        self._open: dict[str, _OpenFile] = {}
        self._failing: set[str] = set()  # open files that cannot be read now; the next scan leaves them out
        self._left_out: set[str] = set()  # by the current scan
        self._refused: dict[str, str] = {}  # open files that cannot be read further, with the reason
        self._told: dict[str, str] = {}  # what was logged, so that it is logged once

    @override
    def partitions(self) -> Sequence[str]:
        self._left_out, self._failing = self._failing, set()
        self._look()
        return sorted(self._seen)

    def _look(self) -> None:
        """Scan the folder; repeat if it changes meanwhile, since a file may be renamed between two listings."""
        for _ in range(_LISTINGS):
            before = self._listing()
            found = dict[str, SeenFile]()
            for name in sorted(before):
                at = self._seen_at(name)
                if at is not None:
                    found[name] = at
            if self._listing() == before:
                break
        self._seen = self._once(found)

    def _listing(self) -> dict[str, int]:
        with os.scandir(self._folder) as scanned:
            entries = list(scanned)
        self._named = {each.name for each in entries}
        return {each.name: each.inode() for each in entries if self._is_read(each)}

    def _seen_at(self, name: str) -> SeenFile | None:
        """Return a file as it is now; None: it is gone, or cannot be read."""
        if name in self._left_out:
            return None
        try:
            found = seen(self._folder / name, self._seen.get(name))
        except FileNotFoundError:  # removed meanwhile
            return None
        except OSError as error:
            self._tell(name, f"{name} cannot be read now: {error.strerror}")
            return None
        self._told.pop(name, None)
        return found

    def _once(self, found: dict[str, SeenFile]) -> dict[str, SeenFile]:
        """Leave out further names of the same file, such as links."""
        first: dict[int, str] = {}
        for name, each in found.items():
            if first.setdefault(each.identity.inode, name) != name:
                self._tell(name, f"{name} is not read: it is a link to the same file as {first[each.identity.inode]}")
        return {name: found[name] for name in first.values()}

    def _is_read(self, entry: "os.DirEntry[str]") -> bool:
        name = entry.name
        if name.startswith(".") or not self._matches(name):
            return False
        try:
            name.encode()
            if not entry.is_file():
                return False
        except UnicodeEncodeError:
            self._tell(name, f"{name!a} is not read: its name is not UTF-8")
            return False
        except OSError as error:
            self._tell(name, f"{name} cannot be read now: {error.strerror}")
            return False
        if format_of(name) is None:
            ending = Path(name).suffix
            if f"*{ending}" not in self._told:
                self._tell(f"*{ending}", f"{name} is not read: files that end in {ending!r} are not supported")
            return False
        return True

    def _tell(self, name: str, text: str) -> None:
        if self._told.get(name) != text:
            self._told[name] = text
            at = str(self._folder)
            EVENTS.warning("not_read", at, "folder %(folder)s: %(reason)s", folder=at, reason=text)

    @override
    def incarnation(self, partition: str) -> str:
        if partition in self._open:
            return str(self._open[partition].identity)
        return str(self._seen[partition].identity)

    @override
    def compared(
        self,
        known: Mapping[str, KnownPartition],
        incarnations: Mapping[str, str],  # noqa: ARG002 - they are read again
    ) -> Mapping[str, PartitionComparison]:
        self._look()  # again: the stored state may be newer than the last scan
        found = {name: FileIdentity.parse(each.incarnation) for name, each in known.items()}
        were = {name: each for name, each in found.items() if each is not None}
        matched = self._matched(were)
        taken = frozenset(matched.values())
        return {name: self._now(name, known, were, matched, taken) for name in self._seen}

    def _matched(self, were: Mapping[str, FileIdentity]) -> dict[str, str]:
        """Return the names under which the files are known, matched by identity and not by name."""
        by_inode: dict[int, list[str]] = {}
        for name, before in were.items():
            by_inode.setdefault(before.inode, []).append(name)
        matched: dict[str, str] = {}
        copied_back = self._with_content_of(were)
        for name, at in self._seen.items():
            # Every file begins with the content of an empty file, whose inode may be reused.
            least = 1 if name in copied_back else 0
            of_inode = (each for each in by_inode.get(at.identity.inode, ()) if were[each].size >= least)
            candidates = [each for each in of_inode if self._is(name, each, were[each])]
            if candidates:
                matched[name] = max(candidates, key=lambda each: (were[each].size, each == name))
        taken = set(matched.values())
        return matched | {name: name for name in copied_back - matched.keys() - taken}

    def _with_content_of(self, were: Mapping[str, FileIdentity]) -> set[str]:
        """Return the names of files whose content is the one known under the same name."""
        return {name for name, at in self._seen.items() if name in were and at.identity.is_content_of(were[name])}

    def _is(self, name: str, known_as: str, before: FileIdentity) -> bool:
        """Return whether a file with the inode of a known file is that file."""
        now = self._seen[name].identity
        if now.size == before.size and name != known_as and now.mtime_ns != before.mtime_ns:
            return False  # inodes are reused, and files with equal content are common
        return self._begins_with(name, now, before)

    def _now(
        self,
        name: str,
        known: Mapping[str, KnownPartition],
        were: Mapping[str, FileIdentity],
        matched: Mapping[str, str],
        taken: frozenset[str],
    ) -> PartitionComparison:
        """Return the result for a file and for the state stored under its name."""
        now, own, was, kept_as = self._seen[name].identity, known.get(name), matched.get(name), None
        before = were.get(name)
        if own is not None and before is not None and was != name and name not in taken:
            if own.is_open or own.is_elsewhere:  # it is read to its end first; a later scan compares it
                return PartitionComparison(own.incarnation, name)
            if own.is_decided:
                return PartitionComparison(str(now), name)
            if not own.is_finished:
                why = f"{name} is a different file: the one that was being read is gone, with its unread rest"
                return PartitionComparison(own.incarnation, name, refusal=f"{why}; {_SEEK}")
            if now.inode != before.inode and 0 < before.size < now.size and self._begins_with(name, now, before):
                return PartitionComparison(own.incarnation, name, refusal=_grown(name, before))
            kept_as = f"{name} (before, inode {before.inode}, {before.size:,} bytes)"
        if was is None:
            return PartitionComparison(str(now), name, "none" if own is None else "new", kept_as)
        return self._gone_on(name, known[was], were[was], PartitionComparison(str(now), was, "none", kept_as))

    def _gone_on(
        self, name: str, own: KnownPartition, before: FileIdentity, same: PartitionComparison
    ) -> PartitionComparison:
        """Return the result for a known file."""
        now = self._seen[name].identity
        if own.is_open or own.is_elsewhere:
            return same._replace(incarnation=own.incarnation)
        if own.is_decided:
            return same
        if now.size > before.size:
            change = self._grown_by(name, before.size)
            if change is not None:
                return same._replace(change=change)
            return same._replace(incarnation=own.incarnation, refusal=_grown(name, before))
        if not own.is_finished and own.is_begun and now.size > _KNOWN_WHOLE and now.mtime_ns != before.mtime_ns:
            why = f"{name} may have changed after a part of it was read: only its beginning and end are compared"
            return same._replace(incarnation=own.incarnation, refusal=f"{why}; {_SEEK}")
        return same

    def _begins_with(self, name: str, now: FileIdentity, before: FileIdentity) -> bool:
        if now.size <= before.size:
            return now.is_content_of(before)
        with (self._folder / name).open("rb") as file:
            return digest(file, before.size) == before.digest

    def _grown_by(self, name: str, size: int) -> Change | None:
        """Return the kind of growth after the first ``size`` bytes; None: their records may have changed."""
        found = format_of(name)
        if size == 0:
            return "more"
        if found is None or found.packed or found.kind == "parquet":
            return None
        with (self._folder / name).open("rb") as file:
            file.seek(size - 1)
            last, added = file.read(1), file.read(3)
        if found.may_grow and (last == b"\n" or added.startswith((b"\n", b"\r\n"))):
            return "more"
        return "none" if last != b"\n" and added in (b"\n", b"\r\n") else None

    @override
    def open(self, partition: str, position: Any) -> None:
        if position is not None and (type(position) is not int or position < 0):
            raise PositionGone(
                f"position {position!r} is not a number of records; seek to a whole number from 0 on, or to the start"
            )
        if partition not in self._seen:
            self._seen[partition] = seen(self._folder / partition, None)
        self._open[partition] = _OpenFile(self._seen[partition].identity, position or 0)

    @override
    def poll(self, limit: int, timeout_s: float) -> Sequence[SourceRecord]:
        self._tell_refused()
        found = PollBatch(limit, self.batch_bytes)
        for name in sorted(self._open):
            if self._open[name].count is None and name not in self._failing:
                self._read(name, self._open[name], found)
            if found.is_full:
                break
        if not found.records:
            self._tell_refused()
            time.sleep(timeout_s)
        return found.records

    def _tell_refused(self) -> None:
        for name, why in self._refused.items():
            raise PositionGone(why, name)

    def _read(self, name: str, at: _OpenFile, found: PollBatch) -> None:
        """Add the next records of a file."""
        if at.records is None:
            at.records = self._records(name, at)
        try:
            while not found.is_full and (record := at.left or next(at.records, None)) is not None:
                at.left = None if found.add(record) else record
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
                self._tell(name, f"{name} cannot be read now: {error.strerror}")

    def _records(self, name: str, at: _OpenFile) -> Iterator[SourceRecord]:
        """Yield the records of a file after those that were read, and note that it is finished."""
        number, before_them = 0, at.done
        with (self._folder / name).open("rb") as file:
            before = os.fstat(file.fileno())
            if before.st_ino != at.identity.inode or digest(file, at.identity.size) != at.identity.digest:
                self._failing.add(name)  # the next scan identifies it
                return
            for number, body in enumerate(rows_of(name, file, at.identity.size), 1):
                if number > before_them:
                    yield SourceRecord(name, number, body)
            _check_same(name, file, at.identity, before)
        if number < before_them:
            raise PositionGone(f"{name} now has fewer than the {before_them:,} records that were already read from it")
        at.count = number

    @override
    def is_gone(self, partition: str) -> bool:
        return partition not in self._named

    @override
    def is_finished(self, partition: str) -> bool:
        at = self._open[partition]
        return at.done == at.count

    @override
    def confirm(self, partition: str, position: Any) -> None:
        self._open[partition].done = position

    @override
    def close(self, partition: str) -> None:
        at = self._open.pop(partition, None)
        if at is not None and at.records is not None:
            at.records.close()  # type: ignore[attr-defined]  # a generator's, which closes the file
        self._refused.pop(partition, None)


def _check_same(name: str, file: IO[bytes], identity: FileIdentity, before: os.stat_result) -> None:
    """Check that a file was not changed while it was read; appended lines are found by the next scan."""
    now = os.fstat(file.fileno())
    if (now.st_size, now.st_mtime_ns) == (before.st_size, before.st_mtime_ns):
        return
    is_known_whole = now.st_size > identity.size or identity.size <= _KNOWN_WHOLE
    if not is_known_whole or digest(file, identity.size) != identity.digest:
        raise PositionGone(f"{name} was changed while it was read; a file must be complete when it appears")
