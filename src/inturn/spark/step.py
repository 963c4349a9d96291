"""One step on Spark: the tables after the last step and new messages in, the tables of this step out."""

import datetime as dt
import hashlib
import inspect
import os
import time
import uuid
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from inturn.core import errors
from inturn.core.errors import InputError, InturnError, SetupError, StoreError
from inturn.core.fold import Counts
from inturn.core.order import Timestamp
from inturn.core.pipeline import Pipeline
from inturn.core.replay import instant_us
from inturn.spark import ship
from inturn.spark.columns.codec import StateCodec
from inturn.spark.faults import reach
from inturn.spark.intake import columns_of, divided, group_column
from inturn.spark.tables.manifest import File, Level, Manifest, Store, about
from inturn.spark.task import RESULT, Plan, Result, Task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Report:
    """What a step did.

    Attributes:
        pipeline: the pipeline's name.
        store: where the tables are.
        step: the step's number in the store.
        counts: where every message went.
        seconds: how long it took, in seconds of wall time.
    """

    pipeline: str
    store: str
    step: int
    counts: Counts
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        counts = self.counts
        rejected = ", ".join(f"{reason} {count}" for reason, count in sorted(counts.rejected.items()))
        return (
            f"{self.pipeline}, step {self.step}: received {counts.received} + released {counts.released} = "
            f"applied {counts.applied} + duplicate {counts.duplicate} + stale {counts.stale} + held {counts.held} + "
            f"rejected {sum(counts.rejected.values())}" + (f" ({rejected})" if rejected else "")
        )


def batch(
    pipeline: Pipeline,
    df: "DataFrame",
    *,
    store: str | os.PathLike[str],
    buckets: int | None = None,
    now: dt.datetime | None = None,
    final: bool = False,
) -> Report:
    """Take a DataFrame of messages as one step: what was applied before stays applied, and once.

    Args:
        pipeline: the definition.
        df: the messages; its session does the work and is left as it is.
        store: a directory that the driver and all workers see; made if it is not there.
        buckets: into how many slices a new store divides its groups, the most tasks that can work at once;
            about twice the cores is good. An existing store keeps its number.
        now: the time of the step, by which waits are measured; default is the clock.
        final: for ``Timestamp``: nothing more will come, so what waits for a later time is released.

    Returns:
        Where every message went.

    Raises:
        InputError: if the DataFrame does not fit the pipeline.
        StateError: if the state type no longer fits the store, or a state cannot be stored.
        HandlerError: if the handler returned something that is not (state, outputs).
        GapError: if a gap outlived its wait under ``then="fail"``.
        StoreConflict: if another writer committed the step first.
        StoreMismatch: if the store is another pipeline's, or of a newer format.
        StoreError: if the store cannot be read or written.
        SetupError: if the workers lack something.
        In each case nothing of the step is kept.
    """
    began = time.monotonic()
    if final and not isinstance(pipeline.order, Timestamp):
        msg = f"final=True releases what waits for a later time; {type(pipeline.order).__name__} has no times"
        raise InputError(msg)
    columns = columns_of(pipeline, df)
    states = StateCodec(pipeline)
    states.pack([pipeline.state()])
    shipped = ship.dumps(pipeline)
    target = Store(store)
    known = target.open(about(pipeline, buckets), buckets=buckets)
    last = target.latest()
    if last is not None:
        states.check(last.state)
    plan = Plan(
        location=target.location,
        step=last.step + 1 if last else 1,
        now_us=instant_us(now or dt.datetime.now(dt.UTC)),
        final=final,
        buckets=known.buckets,
        attempt=uuid.uuid4().hex[:12],
        columns=columns,
        levels=last.levels if last else [],
        group=group_column(pipeline, df),
    )
    reach("before files")
    results = _run(pipeline, df, plan, shipped)
    counts = _total(results)
    manifest = _manifest(pipeline, states, plan, results, counts, time.monotonic() - began)
    reach("before commit")
    target.commit(manifest)
    reach("after commit")
    return Report(pipeline.name, target.location, plan.step, counts, time.monotonic() - began)


def _run(pipeline: Pipeline, df: "DataFrame", plan: Plan, shipped: bytes) -> list[Result]:
    rows, names = divided(pipeline, df, plan.columns, plan.buckets)
    rows = rows.mapInArrow(Task(plan, shipped, names), RESULT)
    try:
        results = [msgspec.json.decode(row.result, type=Result) for row in rows.collect()]
    except Exception as error:
        if "No module named 'inturn'" in str(error) or "No module named 'msgspec'" in str(error):
            msg = (
                "the workers cannot import inturn; install inturn[spark] in their Python (PYSPARK_PYTHON), or send it "
            )
            raise SetupError(msg + "with spark.addArtifacts or --py-files") from error
        raise
    for result in results:
        if result.error is not None:
            name, text = result.error
            kind = getattr(errors, name, InturnError)
            raise kind(text)
    if len(results) != plan.buckets:
        msg = f"{len(results)} tasks answered for {plan.buckets} buckets; this engine does not keep to repartitionById"
        raise InturnError(msg)
    return results


def _total(results: list[Result]) -> Counts:
    counts = Counts()
    for result in results:
        counts.add(result.counts)
    if not counts.balanced:
        msg = f"the counts do not balance, so nothing was committed; please report this: {counts}"
        raise InturnError(msg)
    return counts


def _manifest(
    pipeline: Pipeline, states: StateCodec, plan: Plan, results: list[Result], counts: Counts, seconds: float
) -> Manifest:
    def files(table: str) -> list[File]:
        return [file for result in results for file in result.files.get(table, [])]

    level = Level(plan.step, files("groups"), files("held"))
    return Manifest(
        step=plan.step,
        now_us=plan.now_us,
        committed=dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds"),
        seconds=round(seconds, 3),
        writer=plan.attempt,
        counts=asdict(counts),
        handler=fingerprint(pipeline),
        state=states.signature,
        levels=[*plan.levels, level] if level.groups else plan.levels,
        outputs=files("outputs"),
        rejected=files("rejected"),
    )


def fingerprint(pipeline: Pipeline) -> str:
    """A short name of the handler's code, so that the steps table shows when it changed."""
    try:
        text = inspect.getsource(pipeline.handler)
    except (OSError, TypeError):
        code = getattr(pipeline.handler, "__code__", None)
        text = repr((code.co_code, code.co_consts, code.co_names)) if code else repr(type(pipeline.handler))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def sweep(store: str | os.PathLike[str], *, older_than_s: float = 86_400) -> list[str]:
    """Delete data files that no manifest names: what steps left behind that never were committed.

    Args:
        store: the store.
        older_than_s: spare younger files, in seconds; a step that is running has files that are not yet named.

    Returns:
        The names of what was deleted, relative to the store.

    Raises:
        StoreError: if the store cannot be read.
    """
    target = Store(store)
    if target.about() is None:
        msg = f"{target.location} is not a store"
        raise StoreError(msg)
    named: set[str] = set()
    for step in target.steps():
        manifest = target.manifest(step)
        levels = [file for level in manifest.levels for file in (*level.groups, *level.held)]
        named.update(file.path for file in (*manifest.outputs, *manifest.rejected, *levels))
    limit = time.time() - older_than_s
    files = target.files
    orphans = [name for name in files.names("data") if name not in named and files.modified_s(name) <= limit]
    for name in orphans:
        files.delete(name)
    return sorted(orphans)
