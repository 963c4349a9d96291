"""A store's outputs as a Delta table, for other engines: they see what committed steps emitted, and nothing else.

The table's root is the store's folder of outputs and its data files are the very files that the tasks wrote: nothing
is copied. It is a projection: the manifests remain the truth, each step is one Delta commit, and the table keeps the
step's number as an application transaction. What a publisher that died has left out, the next one adds.
"""

import contextlib
import datetime as dt
import json
import shlex
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from inturn.core.errors import SetupError, StoreError, StoreMismatch
from inturn.spark.tables.manifest import File, Manifest, Store
from inturn.spark.tables.writer import OUTPUTS

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

ROOT = "data/outputs"
LOG = f"{ROOT}/_delta_log"
"""What belongs to the Delta table alone. Once deleted, it is made again from the first step by publishing."""

_STEP, _WRITER = "inturn.step", "inturn.writer"
"""What a commit says of the step that it publishes."""
# A table that only grows refuses the DELETE or UPDATE of another engine, which would rewrite the store's files.
_GROWS = {"delta.appendOnly": "true"}


class Published(NamedTuple):
    """How far a Delta table is.

    Attributes:
        table: where it is.
        before: the last step that it had; 0 for none.
        step: the last step that it has now; 0 if the store has no step yet, for which no table is made.
    """

    table: str
    before: int
    step: int


def publish(store: Store, pipeline: str) -> Published:
    """Add the outputs of every committed step that the Delta table does not have yet, one Delta commit per step.

    The table is made by the first call. A step without outputs gets a commit only if it is the last, so that the
    table says how far it is. Any number of publishers may do this at the same time.

    Args:
        store: the store; keys, regions and endpoints of an object store come from the environment.
        pipeline: the name of the store's pipeline; the table's application is called ``inturn:`` and this name.

    Returns:
        How far the table is.

    Raises:
        StoreError: if there is no store, or the store or the table cannot be read or written.
        StoreMismatch: if the store is another pipeline's, or lacks a step that the table has.
        SetupError: if deltalake is not installed.
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


def _anew(store: Store) -> str:
    """Say how the table is made once more, of what the store has now."""
    return f"Delete {LOG} in it, and run: inturn publish {shlex.quote(store.location)}; that makes the table anew"


def _check(store: Store, pipeline: str) -> None:
    try:
        import deltalake  # noqa: F401 - only asked for
    except ImportError as error:
        msg = "a Delta table needs deltalake; install it with: pip install 'inturn[delta]'"
        raise SetupError(msg) from error
    known = store.known()
    if known.pipeline != pipeline:
        # Another name is another application, and would add every step once more.
        msg = f"{store.location} is the store of pipeline {known.pipeline!r}, not {pipeline!r}; name that one"
        raise StoreMismatch(msg)


def _location(store: Store) -> str:
    location = store.location
    if location.startswith("s3a://"):  # which only Spark says
        location = "s3://" + location.removeprefix("s3a://")
    return f"{location}/{ROOT}"


def _table(location: str) -> "DeltaTable":
    """The table as it is now, made if it is not there."""
    from deltalake import CommitProperties, DeltaTable, Schema
    from deltalake.exceptions import DeltaError, TableNotFoundError

    with contextlib.suppress(TableNotFoundError):
        return DeltaTable(location)
    schema = Schema.from_arrow(pa.schema(OUTPUTS))
    # A second try would make the table once more, after another publisher's.
    once = CommitProperties(max_commit_retries=0)
    try:
        return DeltaTable.create(location, schema, name="outputs", configuration=_GROWS, commit_properties=once)
    except DeltaError:
        if not DeltaTable.is_deltatable(location):
            raise
        return DeltaTable(location)  # another publisher was quicker


def _check_history(table: "DeltaTable", store: Store, done: int) -> None:
    """See that the step that was published last is the one that the store has.

    Raises:
        StoreMismatch: if not: the store was put back from an older copy, and has gone on since.
    """
    if not done:
        return
    manifest, published = store.manifest(done), _last_published(table, store)
    if published.get(_STEP) == str(done):
        same = published.get(_WRITER) == manifest.writer
    else:  # the log does not go back so far, or an older version wrote it: files are named by who wrote them
        names = pa.table(table.get_add_actions(flatten=True)).column("path").to_pylist()
        same = {PurePosixPath(file.path).name for file in manifest.outputs} <= {unquote(name) for name in names}
    if not same:
        msg = f"{table.table_uri} has the outputs of another step {done} than {store.location} has, which was put back "
        raise StoreMismatch(f"{msg}from an older copy and has gone on since. {_anew(store)}")


def _last_published(table: "DeltaTable", store: Store) -> dict[str, Any]:
    """Return what the last commit of ours says; later ones may be others', such as a change of a property."""
    for version in range(table.version(), -1, -1):
        # Read as a file: DeltaTable.history() gives nothing where the path has a %, for one.
        data = store.files.read(f"{LOG}/{version:020d}.json")
        if data is None:
            break
        infos = (each["commitInfo"] for each in map(json.loads, data.splitlines()) if "commitInfo" in each)
        ours = next((each for each in infos if _STEP in each), None)
        if ours is not None:
            return dict(ours)
    return {}


def _commit(table: "DeltaTable", application: str, store: Store, manifest: Manifest) -> int:
    """Publish a step, if nobody has; the last published step, as the table then says."""
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
            # That is how Delta tells that another publisher's commit has come since ``done`` was read: look again.
            table.update_incremental()
            if (table.transaction_version(application) or 0) == done:
                raise
        else:
            table.update_incremental()
            return manifest.step
    return done


def _add(store: Store, file: File, step: int, committed_ms: int) -> "AddAction":
    """A file of outputs as Delta names it; the step's bounds let a reader skip what it has seen."""
    from deltalake.transaction import AddAction

    with store.files.told("read", file.path), store.files.source(file.path) as source:
        size = source.size()
    bounds = {"minValues": {"step": step}, "maxValues": {"step": step}, "nullCount": {"step": 0}}
    name = str(PurePosixPath(file.path).relative_to(ROOT))
    return AddAction(name, size, {}, committed_ms, True, json.dumps({"numRecords": file.rows, **bounds}))  # noqa: FBT003


@contextlib.contextmanager
def _told(location: str, store: Store) -> Iterator[None]:
    """Say of a failure what was tried, and where.

    Raises:
        StoreError: in place of whatever deltalake raised.
    """
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError) as error:
        why = str(error).splitlines()[0]
        msg = f"cannot publish to the Delta table {location}: {why}; the store is whole. Mend that and run: inturn "
        again = f"publish {shlex.quote(store.location)}; if the table is damaged, delete {LOG} first, so that it is "
        raise StoreError(f"{msg}{again}made anew") from error
