"""The outputs of committed steps as a streaming source of Spark.

An offset names a committed step, the run that committed it, and the number of outputs up to it. A step that is not
committed does not exist for any reader, and the outputs of a committed step never change, so a micro-batch that Spark
repeats after a crash has the same rows.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from inturn.core import limits
from inturn.core.errors import InputError, StoreMismatch
from inturn.spark.source.output_rows import OUTPUT_COLUMNS, OutputFile, output_batches, output_files
from inturn.spark.source.reader_adapter import LimitedReader, ReadLimit, ReadMaxRows, adapted_reader
from inturn.spark.tables.manifest import Manifest, SparkStore
from inturn.spark.tables.steps import last_step
from inturn.spark.versions import has_read_limits, lacking

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

Offset = dict[str, Any]
"""A committed step, the run that committed it, and the number of outputs up to it."""


class OutputsSource(DataSource):
    """The outputs of a store; its options are the path, the step after which to begin, and the limit of rows."""

    @classmethod
    def name(cls) -> str:
        """Return the name by which Spark knows the source."""
        return "inturn-outputs"

    def schema(self) -> str:
        """Return the columns of an output."""
        return OUTPUT_COLUMNS

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's names
        """Return a reader for ``spark.readStream``.

        Raises:
            InputError: if the limit is not a positive number.
            SetupError: if this PySpark does not support a limit.
        """
        limit = self.options.get("maxRowsPerBatch")
        if limit is not None and not (limit.isdecimal() and int(limit)):
            raise InputError(f"max_rows is {limit}; expected a number of outputs greater than 0")
        if limit is not None and not has_read_limits():
            raise lacking("max_rows", "4.2", "without max_rows a micro-batch takes all available outputs")
        max_rows = limits.SOURCE_ROWS if limit is None else int(limit)
        return adapted_reader(_OutputsReader(self.options["path"], int(self.options["after"]), max_rows))


@dataclass
class OutputSlice(InputPartition):
    """Files of outputs that one task reads."""

    location: str
    files: list[OutputFile]


class _OutputsReader(LimitedReader):
    def __init__(self, store: str, after: int, max_rows: int) -> None:
        self._location, self._after, self._max_rows = store, after, max_rows
        self._store: SparkStore | None = None
        self._manifests: dict[int, Manifest] = {}  # the steps after the last offset
        self._target: int | None = None

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._max_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = last_step(self._open().files)

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        rows = sum(_rows(self._manifest(step)) for step in range(1, self._after + 1))
        return {"step": self._after, "writer": self._writer(self._after), "rows": rows}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Return the last step with outputs, within the limit: steps without outputs need no micro-batch."""
        self._check(start)
        step: int = start["step"]
        self._manifests = {number: manifest for number, manifest in self._manifests.items() if number > step}
        last = last_step(self._open().files, step, start["writer"])
        end, rows = start, start["rows"]
        for number in range(step + 1, min(last, self._target if self._target is not None else last) + 1):
            manifest = self._manifest(number)
            if not manifest.outputs:
                continue
            rows += _rows(manifest)
            if isinstance(limit, ReadMaxRows) and end is not start and rows - start["rows"] > limit.max_rows:
                break
            end = {"step": number, "writer": manifest.writer, "rows": rows}
        return end

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        self._check(start)
        self._check(end)
        steps = range(start["step"] + 1, end["step"] + 1)
        slices: list[OutputSlice] = []
        room = 0
        for file in output_files(map(self._manifest, steps), start["rows"]):
            if room < file.rows:
                slices.append(OutputSlice(self._location, []))
                room = limits.SOURCE_TASK_ROWS
            slices[-1].files.append(file)
            room -= file.rows
        return [*slices]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return output_batches(partition.location, partition.files) if isinstance(partition, OutputSlice) else iter(())

    def commit(self, end: Offset) -> None:
        """Do nothing: a store keeps its outputs."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a task, which reads only its partition."""
        return {**vars(self), "_store": None, "_manifests": {}}

    def _open(self) -> SparkStore:
        if self._store is None:
            self._store = SparkStore(self._location)
        return self._store

    def _manifest(self, step: int) -> Manifest:
        if step not in self._manifests:
            self._manifests[step] = self._open().manifest(step)
        return self._manifests[step]

    def _writer(self, step: int) -> str:
        return self._manifest(step).writer if step else ""

    def _check(self, offset: Offset) -> None:
        """Check that an offset belongs to the history of the existing store.

        Raises:
            StoreMismatch: if it does not.
        """
        step = offset["step"]
        latest_step = self._open().require_identity() and (last_step(self._open().files) if step else 0)
        if latest_step >= step and self._writer(step) == offset["writer"]:
            return
        raise StoreMismatch(
            f"the checkpoint has read the outputs of {self._location} up to step {step}, but the current store has a "
            "different step of this number, or none: it was created again, or restored from an older copy. Restore the "
            "store that belongs to the checkpoint, or start with a new checkpoint: messages that the next store has "
            "applied are not applied again"
        )


def _rows(manifest: Manifest) -> int:
    return sum(file.rows for file in manifest.outputs)
