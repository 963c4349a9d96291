"""Readers of files sorted by hash: the rows of wanted hashes, in one pass from the smallest to the greatest.

A local file is memory-mapped, so only touched pages are read. On an object store a batch of rows is fetched whole if
one of its hashes is wanted.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from inturn.spark.tables.manifest import DataFile
from inturn.spark.tables.storage import Storage

Hashes = npt.NDArray[np.int64]
PAST = 2**63
"""A value greater than all hashes."""


class StoreSlice(NamedTuple):
    """A slice of a store's hash space, from its smallest hash to its greatest; by default all of it."""

    store: Storage
    low: int = -PAST
    high: int = PAST - 1


class SortedBatches:
    """The record batches of a slice of sorted files that do not overlap, in order."""

    def __init__(self, part: StoreSlice, files: Sequence[DataFile]) -> None:
        self._store, low, high = part
        near = sorted((file for file in files if file.low <= high and file.high >= low), key=lambda file: file.low)
        self._places = [
            (file, number)
            for file in near
            for number in range(len(file.firsts))
            if file.firsts[number] <= high and [*file.firsts, file.high][number + 1] >= low
        ]
        self._at = 0
        self._reader: tuple[str, pa.ipc.RecordBatchFileReader] | None = None
        self._batch: pa.RecordBatch | None = None

    @property
    def first(self) -> int:
        """The smallest hash of the current batch; ``PAST`` at the end."""
        if self._at == len(self._places):
            return PAST
        file, number = self._places[self._at]
        return file.firsts[number]

    @property
    def last(self) -> int:
        """The greatest hash that the current batch can hold."""
        file, number = self._places[self._at]
        return file.firsts[number + 1] if number + 1 < len(file.firsts) else file.high

    def read(self) -> pa.RecordBatch:
        """Return the current batch; raises StoreError with the reason if it cannot be read."""
        if self._batch is None:
            file, number = self._places[self._at]
            with self._store.store_errors("read", file.path):
                if self._reader is None or self._reader[0] != file.path:
                    self._reader = (file.path, pa.ipc.open_file(self._store.source(file.path)))
                self._batch = self._reader[1].get_batch(number)
        return self._batch

    def advance(self) -> None:
        """Move to the next batch."""
        self._at += 1
        self._batch = None

    def upto(self, bound: int) -> Iterator[pa.RecordBatch]:
        """Yield the batches that may hold hashes up to a bound; a higher bound may yield the last of them again."""
        while self.first <= bound:
            yield self.read()
            if self.last > bound:
                return
            self.advance()


class Cursor:
    """A reader of the rows of wanted hashes from sorted files; arguments as for :class:`SortedBatches`."""

    def __init__(self, part: StoreSlice, files: Sequence[DataFile]) -> None:
        self._batches = SortedBatches(part, files)

    def read_rows(self, hashes: Hashes, upto: int) -> Iterator[pa.RecordBatch]:
        """Return the rows with one of ``hashes`` (sorted, unique) up to ``upto``; the next call continues after it."""
        return (batch.take(pa.array(row_numbers)) for batch, row_numbers in self.find(hashes, upto))

    def find(self, hashes: Hashes, upto: int) -> Iterator[tuple[pa.RecordBatch, Hashes]]:
        """Yield the same rows as pairs of a record batch and the row numbers in it."""
        batches = self._batches
        while batches.first <= upto:
            first, last = np.searchsorted(hashes, batches.first), np.searchsorted(hashes, batches.last, side="right")
            if last > first:
                batch = batches.read()
                row_numbers = _hits(batch.column("hash").to_numpy(), hashes[first:last])
                if len(row_numbers):
                    yield batch, row_numbers
            if batches.last > upto:
                return
            batches.advance()


def is_in(values: Hashes, known: Hashes) -> npt.NDArray[np.bool_]:
    """Return, for each value, whether it is in the sorted array of known ones."""
    if not len(known):
        return np.zeros(len(values), dtype=np.bool_)
    return np.asarray(known[np.minimum(np.searchsorted(known, values), len(known) - 1)] == values)


def _hits(rows: Hashes, hashes: Hashes) -> Hashes:
    """Return the positions in ``rows`` of the values in ``hashes``; both are sorted, and ``hashes`` is unique."""
    if len(hashes) * 8 > len(rows):
        return np.flatnonzero(is_in(rows, hashes))
    begin, end = np.searchsorted(rows, hashes), np.searchsorted(rows, hashes, side="right")
    sizes = end - begin
    # Two groups may share a hash, so each value has a range of rows; concatenate the ranges.
    offsets = np.repeat(begin - np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes)
    return np.asarray(np.arange(len(offsets)) + offsets, dtype=np.int64)
