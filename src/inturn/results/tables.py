"""Results as tables: rows, JSON values, Arrow and pandas; rows are read in pages, on demand."""

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from inturn.core import limits
from inturn.core.errors import SetupError
from inturn.results.state_columns import StateColumn

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

T = TypeVar("T")
Json = object
"""The type of a column with any JSON value; in Arrow and CSV it is its JSON text."""


class ResultColumn(NamedTuple):
    """A column.

    Attributes:
        type: type of its values; any of them may be None.
        value: its value in a row.
    """

    type: type
    value: Callable[[Any], Any]


def columns_of(**columns: type) -> dict[str, ResultColumn]:
    """Return the columns that are attributes of a row."""
    return {name: ResultColumn(kind, attrgetter(name)) for name, kind in columns.items()}


class ResultTable(Generic[T]):
    """The rows of a result; each iteration reads them again.

    Rows are read in pages, each as of its own moment: changes made meanwhile may be included or not.

    Args:
        columns: its columns by name.
        rows: returns the rows.
        fields: returns the further columns of an Arrow table, with the fields of the states.

    Attributes:
        columns: its columns by name.
    """

    def __init__(
        self,
        columns: Mapping[str, ResultColumn],
        rows: Callable[[], Iterator[T]],
        fields: Callable[[], list[StateColumn]] = list,
    ) -> None:
        self.columns = columns
        self._rows, self._fields = rows, fields

    def __iter__(self) -> Iterator[T]:
        """Return the rows."""
        return self._rows()

    def first(self, limit: int | None) -> "ResultTable[T]":
        """Return a table of the first rows; None: all."""
        return ResultTable(self.columns, lambda: islice(self, limit), self._fields)

    def records(self) -> Iterator[dict[str, Any]]:
        """Return the rows as dicts by column, with states and outputs as JSON values."""
        columns = [(name, column.value) for name, column in self.columns.items()]
        return ({name: value(row) for name, value in columns} for row in self)

    def texts(self) -> Iterator[dict[str, Any]]:
        """Return the rows as dicts by column, with states and outputs as JSON texts."""
        return map(self._with_texts, self.records())

    def _with_texts(self, record: dict[str, Any]) -> dict[str, Any]:
        jsons = [name for name, column in self.columns.items() if column.type is Json]
        return record | {name: msgspec.json.encode(record[name]).decode() for name in jsons}

    def batches(self) -> "Iterator[pa.RecordBatch]":
        """Return the rows as Arrow batches of at most ``limits.RESULT_ROWS``, with states and outputs as JSON texts.

        If the state type is a record, each of its fields is a further column, typed as in the table ``states`` on
        Spark. Its name has the prefix ``state_`` if the table has a column of that name. A value is null if the state
        lacks it or it does not fit the type; the JSON text has it.

        Raises:
            SetupError: if pyarrow is not installed.
        """
        with _require("an Arrow table", "pyarrow"):
            import pyarrow as pa
        schema, fields, records = self.schema, self._fields(), self.records()
        while page := list(islice(records, limits.RESULT_ROWS)):
            rows = [
                self._with_texts(record) | {column.name: column.value(record["state"]) for column in fields}
                for record in page
            ]
            yield pa.RecordBatch.from_pylist(rows, schema)

    @property
    def schema(self) -> "pa.Schema":
        """The Arrow schema of the batches."""
        with _require("an Arrow table", "pyarrow"):
            import pyarrow as pa
        types: Final = {str: pa.string(), Json: pa.string(), int: pa.int64(), dt.datetime: pa.timestamp("us", tz="UTC")}
        columns = [(name, types[column.type]) for name, column in self.columns.items()]
        return pa.schema([*columns, *((column.name, column.arrow_type) for column in self._fields())])

    def arrow(self) -> "pa.Table":
        """Return all rows as an Arrow table, in memory.

        Raises:
            SetupError: if pyarrow is not installed.
        """
        with _require("an Arrow table", "pyarrow"):
            import pyarrow as pa
        return pa.Table.from_batches(self.batches(), self.schema)

    def pandas(self) -> "pd.DataFrame":
        """Return all rows as a DataFrame of pandas, in memory.

        Raises:
            SetupError: if pandas or pyarrow is not installed.
        """
        with _require("a DataFrame", "pandas"):
            import pandas as pd  # noqa: F401 - else pyarrow's error would name no extra
        return self.arrow().to_pandas()


@contextmanager
def _require(feature: str, package: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise SetupError(f"{feature} needs {package}: pip install 'inturn[arrow]' ({error})") from error
