"""Files in a folder: JSON lines, CSV and Parquet; each file is a partition.

A file must be complete when it appears: write it elsewhere, then rename it into the folder. A position is the number of
records read; in a compressed file too, so that it is read again up to there.

A file is read in the state in which it was claimed: as many bytes as it had then. Whether it is still that file is
checked before and after, and by each look (see file_identity.py):

- a file with the same content, by whatever inode, has nothing new; under another name and with its inode it is renamed;
- JSON lines appended to a file after a whole line are read on;
- another file under the name of one that was read to its end is read from its start;
- any other change is refused, with the number of records that were read: nothing is skipped or sent twice silently.
"""

import logging
import os
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from itertools import islice
from pathlib import Path
from typing import IO, Any

from inturn.core.errors import InputError, PositionGone, SetupError
from inturn.core.override import override
from inturn.ingest import limits as source_limits
from inturn.ingest.source import Change, Source, SourceRecord
from inturn.ingest.sources.file_identity import FileIdentity, SeenFile, digest, seen
from inturn.ingest.sources.file_rows import DAMAGE, format_of, rows_of

_log = logging.getLogger("inturn.ingest")


@dataclass(slots=True)
class _OpenFile:
    """A file that is read.

    Attributes:
        identity: what it was when it was claimed.
        done: the number of its records that are committed.
        records: those that follow; None: it is not begun.
        count: the number of its records; None: it is not read to its end.
    """

    identity: FileIdentity
    done: int
    records: Iterator[SourceRecord] | None = None
    count: int | None = None


class FolderSource(Source):
    """A folder into which files are dropped.

    A line of JSON is a record as it stands. A row of CSV or of tab-separated values, whose first row has the names, and
    a row of Parquet are JSON objects. JSON and CSV may be compressed, as ``.jsonl.gz`` or ``.csv.zst``. Files are read
    in the order of their names; a file that is read to its end may be removed. One that is damaged is read up to there,
    and then refused. Files with another ending are named in the log, once for each ending.

    Args:
        path: the folder.
        pattern: which files, such as ``*.jsonl``.

    Raises:
        InputError: if there is no such folder, or the pattern is for files of other folders.
    """

    def __init__(self, path: str | Path, pattern: str = "*") -> None:
        self._folder = Path(path)
        if not self._folder.is_dir():
            raise InputError(f"{str(path)!r} is no folder; make it, or name another")
        if "/" in pattern:
            raise InputError(f"pattern is {pattern!r}; it is for the names of the folder's own files, without a slash")
        self._matches = re.compile(translate(pattern)).match
        self._seen: dict[str, SeenFile] = {}  # by the last look
        self._open: dict[str, _OpenFile] = {}
        self._failing: set[str] = set()  # open files that cannot be read now; the next look leaves them out
        self._refused: dict[str, str] = {}  # open files that cannot be read on, with the reason
        self._told: dict[str, str] = {}  # what was logged, so that it is logged once

    @override
    def partitions(self) -> Sequence[str]:
        failing, self._failing = self._failing, set()
        found = {}
        with os.scandir(self._folder) as entries:
            names = [each.name for each in entries if self._is_read(each)]
        for name in names:
            try:
                if name not in failing:
                    found[name] = seen(self._folder / name, self._seen.get(name))
                    self._told.pop(name, None)
            except FileNotFoundError:  # removed meanwhile
                continue
            except OSError as error:
                self._tell(name, f"{name} cannot be read now: {error.strerror}")
        self._seen = found
        return sorted(found)

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
                self._tell(f"*{ending}", f"{name} is not read, nor is any file that ends in {ending!r}")
            return False
        return True

    def _tell(self, name: str, text: str) -> None:
        if self._told.get(name) != text:
            self._told[name] = text
            _log.warning("folder %s: %s", self._folder, text)

    @override
    def incarnation(self, partition: str) -> str:
        if partition in self._open:
            return str(self._open[partition].identity)
        return str(self._seen[partition].identity)

    @override
    def change(self, partition: str, earlier: str, *, is_finished: bool) -> Change:
        self._seen[partition] = seen(self._folder / partition, self._seen.get(partition))
        now, before = self._seen[partition].identity, FileIdentity.parse(earlier)
        if earlier == str(now.inode) or (before is not None and now.is_content_of(before)):
            return "none"
        if before is None or not self._begins_with(partition, now, before):
            if is_finished:
                return "new"
            raise PositionGone(f"{partition} is another file than the one that was being read, whose rest is gone")
        if now.inode == before.inode and self._may_go_on(partition, before.size):
            return "more"
        raise PositionGone(
            f"{partition} has changed after its first {before.size:,} bytes were read: a file must be complete when it "
            "appears; seek says from which record on to read it"
        )

    def _begins_with(self, name: str, now: FileIdentity, before: FileIdentity) -> bool:
        if now.size < before.size:
            return False
        with (self._folder / name).open("rb") as file:
            return digest(file, before.size) == before.digest

    def _may_go_on(self, name: str, size: int) -> bool:
        """Return whether records after so many bytes are whole, and those before were."""
        found = format_of(name)
        if found is None or not found.may_grow:
            return False
        with (self._folder / name).open("rb") as file:
            file.seek(size - 1)
            return file.read(1) == b"\n"

    @override
    def renamed(self, names: Collection[str], gone: Mapping[str, str]) -> Mapping[str, str]:
        earlier: dict[int, dict[str, FileIdentity]] = {}
        for name, text in gone.items():
            if (before := FileIdentity.parse(text)) is not None:
                earlier.setdefault(before.inode, {})[name] = before
        found: dict[str, str] = {}
        for name in names:
            now = self._seen[name].identity
            were = [each for each, before in earlier.get(now.inode, {}).items() if self._begins_with(name, now, before)]
            if were and name not in were:
                found[name] = were[0]
                del earlier[now.inode][were[0]]
        return found

    @override
    def open(self, partition: str, position: Any) -> None:
        if position is not None and (type(position) is not int or position < 0):
            raise PositionGone(f"{position!r} is no number of records; seek to a whole number, or to the start")
        if partition not in self._seen:
            self._seen[partition] = seen(self._folder / partition, None)
        self._open[partition] = _OpenFile(self._seen[partition].identity, position or 0)

    @override
    def poll(self, limit: int, timeout_s: float) -> Sequence[SourceRecord]:
        self._tell_refused()
        found: list[SourceRecord] = []
        for name in sorted(self._open):
            if self._open[name].count is None and name not in self._failing:
                self._read(name, self._open[name], limit, found)
            if len(found) == limit:
                break
        if not found:
            self._tell_refused()
            time.sleep(timeout_s)
        return found

    def _tell_refused(self) -> None:
        for name, why in self._refused.items():
            raise PositionGone(why, name)

    def _read(self, name: str, at: _OpenFile, limit: int, found: list[SourceRecord]) -> None:
        """Add the next records of a file."""
        if at.records is None:
            at.records = self._records(name, at)
        try:
            for record in islice(at.records, limit - len(found)):
                found.append(record)  # noqa: PERF402 - what comes before an error counts
        except (PositionGone, SetupError) as error:
            self._refused[name] = str(error)
        except DAMAGE as error:
            if not isinstance(error, OSError) or error.errno is None:
                self._refused[name] = f"{name} cannot be read on: {error}; mend the file, then seek"
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
                self._failing.add(name)  # the next look sees what it is now
                return
            for number, body in enumerate(rows_of(name, file, at.identity.size), 1):
                if number > before_them:
                    yield SourceRecord(name, number, body)
            _check_same(name, file, at.identity, before)
        if number < before_them:
            raise PositionGone(f"{name} has fewer than the {before_them:,} records that were read of it")
        at.count = number

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
    """Check that a file was not changed while it was read; what is appended is read by the next look."""
    now = os.fstat(file.fileno())
    if (now.st_size, now.st_mtime_ns) == (before.st_size, before.st_mtime_ns):
        return
    is_known_whole = now.st_size > identity.size or identity.size <= 2 * source_limits.FOLDER_DIGEST_BYTES
    if not is_known_whole or digest(file, identity.size) != identity.digest:
        raise PositionGone(f"{name} was changed while it was read; a file must be complete when it appears")
