"""A Delta table of a store's committed steps: its location, its progress, and its errors."""

import contextlib
import json
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from inturn.core.errors import SetupError, StoreError, StoreMismatch
from inturn.spark.tables.manifest import Manifest, SparkStore

if TYPE_CHECKING:
    from deltalake import DeltaTable

STEP: Final = "inturn.step"
"""The key of the commit metadata with the published step."""
WRITER: Final = "inturn.writer"
"""The key with that step's writer."""


class PublishProgress(NamedTuple):
    """The progress of a Delta table.

    Attributes:
        table: location of the table.
        before: last step in the table before the call; 0 for none.
        step: last step in the table now; 0 if the store has no step yet, in which case no table is created.
    """

    table: str
    before: int
    step: int


class DeltaTablePath(NamedTuple):
    """The place of a Delta table in a store.

    Attributes:
        root: its folder.
        option: option with which ``inturn publish STORE`` writes it.
    """

    store: SparkStore
    root: str
    option: str = ""

    @property
    def log(self) -> str:
        """The folder of the files of the Delta table alone; without them publishing creates the table again."""
        return f"{self.root}/_delta_log"

    @property
    def location(self) -> str:
        """The location of the table for deltalake."""
        location = self.store.location
        if location.startswith("s3a://"):  # a scheme that only Spark uses
            location = "s3://" + location.removeprefix("s3a://")
        return f"{location}/{self.root}"

    @property
    def command(self) -> str:
        """The command that publishes."""
        return f"inturn publish {shlex.quote(self.store.location)}{self.option}"

    @property
    def recreate_hint(self) -> str:
        """The instruction for creating the table again from the store."""
        return f"Delete {self.log} in the store, and run: {self.command}; this creates the table again"

    def check_not_ahead(self, done: int, last: Manifest, kind: str) -> None:
        """Refuse a table that has a step which the store lacks; else return."""
        if done > last.step:
            store = self.store.location
            msg = f"{self.location} has the {kind} of step {done}, but {store} ends with step {last.step}: the store "
            raise StoreMismatch(f"{msg}was restored from an older copy. {self.recreate_hint}")

    def history_mismatch(self, done: int, kind: str) -> StoreMismatch:
        """Return the error for a table with another step than the store has under the same number."""
        msg = f"{self.location} has the {kind} of a different step {done} than {self.store.location}: the store was "
        return StoreMismatch(f"{msg}restored from an older copy and has continued since. {self.recreate_hint}")

    def last_published(self, table: "DeltaTable") -> dict[str, Any]:
        """Return the metadata of the last commit by inturn; others may follow, such as a property's change."""
        for version in range(table.version(), -1, -1):
            # Read as a file: DeltaTable.history() returns nothing for some paths, such as one with a %.
            data = self.store.files.read(f"{self.log}/{version:020d}.json")
            if data is None:
                break
            infos = (action["commitInfo"] for action in map(json.loads, data.splitlines()) if "commitInfo" in action)
            latest = next((info for info in infos if STEP in info), None)
            if latest is not None:
                return dict(latest)
        return {}

    @contextlib.contextmanager
    def store_errors(self) -> Iterator[None]:
        """Turn a failure of deltalake into a :class:`StoreError` that names the table and the remedy."""
        from deltalake.exceptions import DeltaError

        try:
            yield
        except (DeltaError, OSError) as error:
            reason = str(error).splitlines()[0]
            msg = (
                f"cannot publish to the Delta table {self.location}: {reason}; "
                "the store is complete. Fix this and run: "
            )
            remedy = f"{self.command}; if the table is damaged, delete {self.log} first, so that it is created again"
            raise StoreError(f"{msg}{remedy}") from error


def check_publishable(store: SparkStore, pipeline: str) -> None:
    """Check that Delta tables of a store can be written for a pipeline.

    Raises:
        SetupError: if deltalake is not installed.
        StoreMismatch: if the store belongs to another pipeline.
    """
    try:
        import deltalake  # noqa: F401 - only asked for
    except ImportError as error:
        raise SetupError("a Delta table needs deltalake; install it with: pip install 'inturn[delta]'") from error
    known = store.require_identity()
    if known.pipeline != pipeline:
        # Another name is another application id, so every step would be added again.
        msg = f"{store.location} is the store of pipeline {known.pipeline!r}, not {pipeline!r}; use that pipeline"
        raise StoreMismatch(msg)
