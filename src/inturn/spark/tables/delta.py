"""A store's outputs as a Delta table for other engines, which see the outputs of committed steps and nothing else.

The table's root is the store's folder of outputs, and its data files are the files that the tasks wrote: nothing is
copied. The table is a projection; the manifests remain the source of truth. Each step is one Delta commit, and the
table keeps the step's number as an application transaction. The next publisher adds what a crashed one left out.
"""

import contextlib
import datetime as dt
import json
import os
import shlex
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from inturn.core.errors import SetupError, StoreError, StoreMismatch
from inturn.spark.tables.manifest import File, Manifest, SparkStore
from inturn.spark.tables.writer import OUTPUTS

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

ROOT = "data/outputs"
LOG = f"{ROOT}/_delta_log"
"""The files of the Delta table alone. If they are deleted, publishing makes them again from the first step."""

_STEP, _WRITER = "inturn.step", "inturn.writer"
"""Keys of the commit metadata that name the published step and its writer."""
# An append-only table refuses a DELETE or UPDATE of another engine, which would rewrite the store's files.
_GROWS = {"delta.appendOnly": "true"}


class Published(NamedTuple):
    """The progress of a Delta table.

    Attributes:
        table: location of the table.
        before: last step in the table before the call; 0 for none.
        step: last step in the table now; 0 if the store has no step yet, in which case no table is made.
    """

    table: str
    before: int
    step: int


def publish_steps(store: SparkStore, pipeline: str) -> Published:
    """Publish the missing steps of a pipeline's store, one Delta commit per step; see :func:`publish`.

    The first call makes the table; its application id is ``inturn:`` and the pipeline's name. A step without outputs
    gets a commit only if it is the last one, so that the table records its progress.

    Raises:
        StoreMismatch: if the store belongs to another pipeline.
    """
    _check(store, pipeline)
    last = store.latest()
    application, location = f"inturn:{pipeline}", _location(store)
    if last is None:
        return Published(location, 0, 0)
    with _told(location, store):
        table = _table(location)
        before = done = table.transaction_version(application) or 0
        if done > last.step:
            msg = f"{location} has the outputs of step {done}, but {store.location} only goes to step {last.step}: it "
            raise StoreMismatch(f"{msg}was put back from an older copy. {_anew(store)}")
        _check_history(table, store, done)
        for step in range(done + 1, last.step + 1):
            manifest = store.manifest(step)
            if manifest.outputs or step == last.step:
                done = _commit(table, application, store, manifest)
    return Published(location, before, done)


def publish(store: str | os.PathLike[str]) -> Published:
    """Add the outputs of committed steps that are missing in the store's Delta table; needs no session.

    ``batch`` and ``stream`` do the same after each step with ``outputs_format="delta"``. Any number of processes may
    call this at any time: each step is published once.

    Args:
        store: the store; the table is in its folder ``data/outputs``.

    Returns:
        The table's location, its last step before the call, and its last step now.

    Raises:
        StoreError: if there is no store, or the store or the table cannot be read or written.
        StoreMismatch: if the table has a step that the store lacks: the store was restored from an older copy.
        SetupError: if deltalake is not installed.
    """
    source = SparkStore(store)
    return publish_steps(source, source.known().pipeline)


def _anew(store: SparkStore) -> str:
    """Return the instruction for making the table again from the store."""
    return f"Delete {LOG} in it, and run: inturn publish {shlex.quote(store.location)}; that makes the table anew"


def _check(store: SparkStore, pipeline: str) -> None:
    try:
        import deltalake  # noqa: F401 - only asked for
    except ImportError as error:
        raise SetupError("a Delta table needs deltalake; install it with: pip install 'inturn[delta]'") from error
    known = store.known()
    if known.pipeline != pipeline:
        # Another name is another application id, so every step would be added again.
        msg = f"{store.location} is the store of pipeline {known.pipeline!r}, not {pipeline!r}; name that one"
        raise StoreMismatch(msg)


def _location(store: SparkStore) -> str:
    location = store.location
    if location.startswith("s3a://"):  # a scheme that only Spark uses
        location = "s3://" + location.removeprefix("s3a://")
    return f"{location}/{ROOT}"


def _table(location: str) -> "DeltaTable":
    """Return the current table; make it if it does not exist."""
    from deltalake import CommitProperties, DeltaTable, Schema
    from deltalake.exceptions import DeltaError, TableNotFoundError

    with contextlib.suppress(TableNotFoundError):
        return DeltaTable(location)
    schema = Schema.from_arrow(pa.schema(OUTPUTS))
    # A retry after another publisher's commit would make the table a second time.
    once = CommitProperties(max_commit_retries=0)
    try:
        return DeltaTable.create(location, schema, name="outputs", configuration=_GROWS, commit_properties=once)
    except DeltaError:
        if not DeltaTable.is_deltatable(location):
            raise
        return DeltaTable(location)  # another publisher made it first


def _check_history(table: "DeltaTable", store: SparkStore, done: int) -> None:
    """Check that the step published last is the one in the store.

    If not, the store was restored from an older copy and has advanced since.
    """
    if not done:
        return
    manifest, published = store.manifest(done), _last_published(table, store)
    if published.get(_STEP) == str(done):
        same = published.get(_WRITER) == manifest.writer
    else:  # the log is too short, or an older version wrote it: file names identify their writer
        names = pa.table(table.get_add_actions(flatten=True)).column("path").to_pylist()
        same = {PurePosixPath(file.path).name for file in manifest.outputs} <= {unquote(name) for name in names}
    if not same:
        msg = f"{table.table_uri} has the outputs of another step {done} than {store.location} has, which was put back "
        raise StoreMismatch(f"{msg}from an older copy and has gone on since. {_anew(store)}")


def _last_published(table: "DeltaTable", store: SparkStore) -> dict[str, Any]:
    """Return the metadata of the last commit by inturn; later ones may be others', such as a change of a property."""
    for version in range(table.version(), -1, -1):
        # Read as a file: DeltaTable.history() returns nothing for some paths, such as one with a %.
        data = store.files.read(f"{LOG}/{version:020d}.json")
        if data is None:
            break
        infos = (each["commitInfo"] for each in map(json.loads, data.splitlines()) if "commitInfo" in each)
        ours = next((each for each in infos if _STEP in each), None)
        if ours is not None:
            return dict(ours)
    return {}


def _commit(table: "DeltaTable", application: str, store: SparkStore, manifest: Manifest) -> int:
    """Publish a step unless it is published already, and return the last published step that the table then records."""
    from deltalake import CommitProperties, Transaction
    from deltalake.exceptions import CommitFailedError

    committed_ms = int(dt.datetime.fromisoformat(manifest.committed).timestamp() * 1000)
    adds: list[AddAction | RemoveAction] = [_add(store, file, manifest.step, committed_ms) for file in manifest.outputs]
    transaction = Transaction(application, manifest.step, committed_ms)
    while (done := table.transaction_version(application) or 0) < manifest.step:
        written = {_STEP: str(manifest.step), _WRITER: manifest.writer}
        properties = CommitProperties(app_transactions=[transaction], custom_metadata=written)
        try:
            table.create_write_transaction(adds, "append", table.schema(), commit_properties=properties)
        except CommitFailedError:
            # Delta raises this when another publisher committed after ``done`` was read, so read the version again.
            table.update_incremental()
            if (table.transaction_version(application) or 0) == done:
                raise
        else:
            table.update_incremental()
            return manifest.step
    return done


def _add(store: SparkStore, file: File, step: int, committed_ms: int) -> "AddAction":
    """Return a Delta add action for a file of outputs; the bounds of the step let a reader skip files it has read."""
    from deltalake.transaction import AddAction

    with store.files.told("read", file.path), store.files.source(file.path) as source:
        size = source.size()
    bounds = {"minValues": {"step": step}, "maxValues": {"step": step}, "nullCount": {"step": 0}}
    name = str(PurePosixPath(file.path).relative_to(ROOT))
    return AddAction(name, size, {}, committed_ms, True, json.dumps({"numRecords": file.rows, **bounds}))  # noqa: FBT003


@contextlib.contextmanager
def _told(location: str, store: SparkStore) -> Iterator[None]:
    """Turn a failure of deltalake into a :class:`StoreError` that names the table and the remedy."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError) as error:
        why = str(error).splitlines()[0]
        msg = f"cannot publish to the Delta table {location}: {why}; the store is whole. Mend that and run: inturn "
        again = f"publish {shlex.quote(store.location)}; if the table is damaged, delete {LOG} first, so that it is "
        raise StoreError(f"{msg}{again}made anew") from error
