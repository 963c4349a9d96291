"""The identity of a file: its inode, size and time of change, and a digest of its beginning and end.

A name does not identify a file: a new file may have an old name, and a file may be renamed. An inode does not either:
file systems reuse it. A file that is copied back after a loss has the same name and content, but another inode.
"""

import os
import time
from hashlib import blake2b
from pathlib import Path
from typing import IO, NamedTuple, Self

from inturn.core.override import override
from inturn.ingest import limits as source_limits

_TICK_NS = 2_000_000_000  # two changes within it may have the same time, since clocks of file systems are coarse


class FileIdentity(NamedTuple):
    """The identity of a file.

    Attributes:
        inode: its inode.
        size: its size, in bytes.
        digest: the digest of that many bytes; see :func:`digest`.
        mtime_ns: the time of its last change.
    """

    inode: int
    size: int
    digest: str
    mtime_ns: int

    @override
    def __str__(self) -> str:
        return f"{self.inode}:{self.size}:{self.digest}:{self.mtime_ns}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the identity with this text; None: the text is empty, before the first scan."""
        if not text:
            return None
        inode, size, digest, mtime_ns = text.split(":")
        return cls(int(inode), int(size), digest, int(mtime_ns))

    def has_same_content(self, other: "FileIdentity") -> bool:
        """Return whether both have the same content."""
        return (self.size, self.digest) == (other.size, other.digest)


class FileState(NamedTuple):
    """The state of a file when it was last read.

    Attributes:
        identity: its identity.
        times: metadata that changes with each change of the file.
        is_settled: whether ``times`` reveal any later change.
    """

    identity: FileIdentity
    times: tuple[int, ...]
    is_settled: bool


def file_state(path: Path, before: FileState | None) -> FileState:
    """Return the state of a file; its content is read only if it may have changed since ``before``.

    Raises:
        OSError: if it cannot be read.
    """
    if before is not None and before.is_settled and before.times == _times(path.stat()):
        return before
    with path.open("rb") as file:
        stat = os.fstat(file.fileno())
        identity = FileIdentity(stat.st_ino, stat.st_size, digest(file, stat.st_size), stat.st_mtime_ns)
    return FileState(identity, _times(stat), time.time_ns() - stat.st_ctime_ns > _TICK_NS)


def digest(file: IO[bytes], size: int) -> str:
    """Return the digest of the beginning and the end of the first bytes of a file, which is at its start afterwards."""
    hasher, part_bytes = blake2b(digest_size=16), source_limits.FOLDER_DIGEST_BYTES
    file.seek(0)
    hasher.update(file.read(min(size, part_bytes)))
    if size > part_bytes:
        file.seek(max(part_bytes, size - part_bytes))
        hasher.update(file.read(size - file.tell()))
    file.seek(0)
    return hasher.hexdigest()


def _times(stat: os.stat_result) -> tuple[int, ...]:
    return (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
