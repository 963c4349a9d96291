"""Storage of a store's files: a directory that all workers share, or an object store.

Data files go through ``pyarrow.fs``. A manifest must be created only if it is absent, which ``pyarrow.fs`` cannot do:
a directory uses a hard link to a finished file, an object store a conditional put through ``obstore``. A filesystem
without such an operation is refused, because two writers could overwrite each other there.
"""

import contextlib
import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.fs as pafs

from inturn.core.arguments import check_type
from inturn.core.errors import SetupError, StoreConflict, StoreError

_OBJECTS = {"s3": "s3", "s3a": "s3", "gs": "gs"}
"""The object stores: from the scheme that Spark knows to the one of pyarrow and obstore."""


class Storage(ABC):
    """The files of one store, by names relative to it.

    Attributes:
        location: name of the store, from which Spark reads its files.
    """

    location: str

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """Return a small file's bytes; None if the file does not exist."""

    def create(self, name: str, data: bytes) -> None:
        """Write a small file whole, only if it does not exist.

        If a server carries out a request and its answer is lost, the client tries again and finds its own file. So
        the content is compared: equal bytes are this writer's, because the files of two writers differ (each contains
        the writer's id).

        Raises:
            StoreConflict: if another file exists.
            StoreError: if it cannot be written; the text says if the outcome is unknown.
        """
        try:
            self._create(name, data)
        except StoreError as error:
            refused = isinstance(error, StoreConflict)
            try:
                existing = self.read(name)
            except StoreError:
                unknown = "it may have been written nevertheless, and cannot be read back: check before you retry"
                raise StoreError(f"{error}; {unknown}") from error
            if existing == data:
                return
            if existing is not None and not refused:
                raise StoreConflict(f"{self.full_name(name)} already exists") from error
            raise

    @abstractmethod
    def _create(self, name: str, data: bytes) -> None:
        """Try to write a small file whole; raise StoreConflict if it exists, StoreError if no answer confirms it."""

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Return whether a small file exists."""

    @abstractmethod
    def replace(self, name: str, data: bytes) -> None:
        """Write a small file whole, in place of an existing one."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder and below, relative to the store; none without the folder."""

    @abstractmethod
    def modified_s(self, name: str) -> float:
        """Return the time of a file's last write, in seconds since 1970."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""

    @abstractmethod
    def source(self, name: str) -> Any:
        """Return the source from which pyarrow reads a data file."""

    @abstractmethod
    def sink(self, name: str) -> pa.NativeFile:
        """Return the sink to which pyarrow writes a new data file."""

    def sync(self, name: str) -> None:
        """Make a data file survive a power failure; a no-op for object stores, which do so themselves."""

    def full_name(self, name: str) -> str:
        """Return a file's full name, for Spark and for people."""
        return f"{self.location}/{name}"

    @contextlib.contextmanager
    def store_errors(self, action: str, name: str) -> Iterator[None]:
        """Turn a failure into a :class:`StoreError` that names the operation and the file."""
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            msg = f"cannot {action} {self.full_name(name)}: {getattr(error, 'strerror', None) or error}"
            raise StoreError(msg) from error


class DirectoryStorage(Storage):
    """A directory; every machine that uses the store must have it under this path."""

    def __init__(self, path: Path) -> None:
        self._root = path
        self.location = str(path)

    def read(self, name: str) -> bytes | None:
        with self.store_errors("read", name):
            try:
                return (self._root / name).read_bytes()
            except FileNotFoundError:
                return None

    def _create(self, name: str, data: bytes) -> None:
        target = self._root / name
        with self.store_errors("write", name):
            target.parent.mkdir(parents=True, exist_ok=True)
            draft = _write_draft(target, data)
            try:
                # A link to a finished file either succeeds or finds a file: readers never see a half-written one.
                os.link(draft, target)
            except FileExistsError:
                raise StoreConflict(f"{target} already exists") from None
            finally:
                draft.unlink()
            _fsync(target.parent)

    def exists(self, name: str) -> bool:
        return (self._root / name).exists()

    def replace(self, name: str, data: bytes) -> None:
        target = self._root / name
        with self.store_errors("write", name):
            target.parent.mkdir(parents=True, exist_ok=True)
            draft = _write_draft(target, data)
            draft.replace(target)
            _fsync(target.parent)

    def names(self, folder: str) -> list[str]:
        with self.store_errors("read", folder):
            below = len(f"{self._root}/")
            folders = os.walk(self._root / folder)  # much cheaper than rglob(), which matters for many steps
            return [f"{place}/{name}"[below:] for place, _, names in folders for name in names]

    def modified_s(self, name: str) -> float:
        return (self._root / name).stat().st_mtime

    def delete(self, name: str) -> None:
        with self.store_errors("delete", name):
            (self._root / name).unlink(missing_ok=True)

    def source(self, name: str) -> Any:
        return pa.memory_map(self.full_name(name))

    def sink(self, name: str) -> pa.NativeFile:
        (self._root / name).parent.mkdir(parents=True, exist_ok=True)
        return pa.OSFile(self.full_name(name), "wb")

    def sync(self, name: str) -> None:
        _fsync(self._root / name)
        _fsync((self._root / name).parent)


class ObjectStorage(Storage):
    """An object store; keys, regions and endpoints come from the environment, as its own tools read them.

    Args:
        url: ``s3://bucket/prefix`` or ``gs://bucket/prefix``; ``s3a`` is read as ``s3``. Spark gets ``s3a``.
    """

    def __init__(self, url: str) -> None:
        try:
            import obstore
            from obstore.store import from_url
        except ImportError as error:
            msg = "a store on an object store needs obstore; install it with: pip install 'inturn[objects]'"
            raise SetupError(msg) from error
        scheme, rest = url.rstrip("/").split("://", 1)
        known = _OBJECTS[scheme]
        self.location = f"s3a://{rest}" if known == "s3" else f"{scheme}://{rest}"
        self._api: Any = obstore
        self._store: Any = from_url(f"{known}://{rest}")
        self._files, self._base = pafs.FileSystem.from_uri(f"{known}://{rest}")

    def read(self, name: str) -> bytes | None:
        with self._object_errors("read", name):
            try:
                return bytes(self._api.get(self._store, name).bytes())
            except FileNotFoundError:
                return None

    def _create(self, name: str, data: bytes) -> None:
        from obstore.exceptions import AlreadyExistsError

        try:
            with self._object_errors("write", name):
                self._api.put(self._store, name, data, mode="create")
        except StoreError as error:
            if isinstance(error.__cause__, AlreadyExistsError):
                raise StoreConflict(f"{self.full_name(name)} already exists") from None
            raise

    def exists(self, name: str) -> bool:
        with self._object_errors("read", name):
            try:
                self._api.head(self._store, name)
            except FileNotFoundError:
                return False
            return True

    def replace(self, name: str, data: bytes) -> None:
        with self._object_errors("write", name):
            self._api.put(self._store, name, data)

    def names(self, folder: str) -> list[str]:
        with self._object_errors("list", folder):
            entries = (entry for batch in self._api.list(self._store, folder) for entry in batch)
            return [entry["path"] for entry in entries if not _is_folder_marker(entry["path"], entry["size"])]

    def modified_s(self, name: str) -> float:
        with self._object_errors("read", name):
            written: float = self._api.head(self._store, name)["last_modified"].timestamp()
            return written

    def delete(self, name: str) -> None:
        with self._object_errors("delete", name):
            self._api.delete(self._store, name)

    def source(self, name: str) -> Any:
        return self._files.open_input_file(f"{self._base}/{name}")

    def sink(self, name: str) -> pa.NativeFile:
        return self._files.open_output_stream(f"{self._base}/{name}")

    @contextlib.contextmanager
    def _object_errors(self, action: str, name: str) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, FileNotFoundError) as error:
            raise StoreError(f"cannot {action} {self.full_name(name)}: {str(error).splitlines()[0]}") from error


def storage(location: str | os.PathLike[str]) -> Storage:
    """Return the storage at a path, a ``file:`` URI, or a URL of an object store.

    Raises:
        StoreError: for a filesystem that cannot create a file only if it is absent.
        SetupError: if a package for the object store is missing.
    """
    check_type("store", location, (str, os.PathLike), "the path of a directory, or an s3:// or gs:// URL")
    text = os.fspath(location)
    url = urlparse(text)
    if url.scheme in _OBJECTS:
        return ObjectStorage(text)
    if url.scheme not in ("", "file"):
        msg = f"store={text!r}: {url.scheme}: is not supported, since a step needs an atomic 'create if absent' of its "
        raise StoreError(f"{msg}manifest; use a path that all workers share, or s3:// or gs://")
    return DirectoryStorage(Path(unquote(url.path) if url.scheme else text).absolute())


def _is_folder_marker(path: str, size: int) -> bool:
    """Return whether a listed object is a folder marker of consoles or Hadoop; the listing drops its last slash."""
    last = path.rsplit("/", 1)[-1]
    return size == 0 and ("." not in last or last.endswith("_$folder$"))


def _write_draft(target: Path, data: bytes) -> Path:
    """Write a finished draft beside the target, and return its path."""
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    with draft.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return draft


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
