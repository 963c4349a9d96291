"""The store: plain Parquet files, and a manifest per step that says which of them exist.

```
STORE/
  inturn.json                    what this is a store of; written once
  steps/000000000007.json        the manifest of step 7; a step is committed when its manifest is there
  head.json                      the last step, or one before it, so that it need not be looked for
  decisions/new|taken/…json      what people decided about groups; taken by a step
  data/groups|held/…arrow        where each group stands, for the next step
  data/outputs|rejected/…parquet for everybody
```

A file that no manifest names does not exist for any reader. Committing is creating the manifest only if it is not
there, so of two writers one is told that it lost, and a step that died half-way leaves nothing behind.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any, cast

import msgspec

from inturn.core import limits
from inturn.core.decision import Decision
from inturn.core.errors import PipelineError, StoreConflict, StoreError, StoreMismatch
from inturn.core.pipeline import Pipeline
from inturn.spark.tables.decision_log import DecisionLog
from inturn.spark.tables.steps import HEAD, all_steps, last_step, manifest_name, note
from inturn.spark.tables.storage import storage

FORMAT = 1
ABOUT = "inturn.json"


class File(msgspec.Struct, frozen=True):
    """One data file, sorted by hash.

    Attributes:
        path: relative to the store.
        rows: how many rows it has.
        low: the smallest hash in it.
        high: the greatest.
        waiting_us: since when the one that waits longest among its groups waits, parked ones not counted; None if
            none does.
        oldest_us: the same with those that are parked.
        firsts: the smallest hash of each of its record batches.
    """

    path: str
    rows: int
    low: int
    high: int
    waiting_us: int | None = None
    oldest_us: int | None = None
    firsts: list[int] = []


class Level(msgspec.Struct, frozen=True):
    """What one step changed: the groups it touched as they are after it, and the messages it holds."""

    step: int
    groups: list[File]
    held: list[File]


class Taken(msgspec.Struct, frozen=True):
    """A decision that a step took; ``void`` says why it came too late, None that it was carried out."""

    name: str
    void: str | None


class Manifest(msgspec.Struct, frozen=True):
    """One committed step.

    Attributes:
        step: its number, from 1.
        now_us: the time of the step, by which it decided; microseconds since 1970.
        committed: when it was committed, ISO 8601.
        seconds: how long it took.
        writer: the id of the run that committed it.
        counts: where the messages went.
        handler: a fingerprint of the handler's code.
        state: how the state's fields are stored.
        levels: the files that hold the groups and held messages after this step, newest last.
        outputs: the files with this step's outputs.
        rejected: the files with this step's rejected messages.
        held: how many messages are held after this step.
        parked: how many groups are parked after this step.
        oldest_us: since when the message that waits longest waits; None if none does.
        waiting_us: the same in groups that are not parked.
        batches: of each stream that ever wrote here, by its run id, the last micro-batch that is in this store.
        plans: the same streams, the digest of what their checkpoints planned for that micro-batch.
        decisions: what people had decided and this step took.
        policy: what the pipeline does about a gap when the wait is over; empty if it waits for ever.
        wait_us: how long it waits, in microseconds; None if for ever.
        vacuumed: whether ``levels`` was emptied, because their files were deleted.
        version: of the pipeline; all states of the levels are of it.
        shape: of its state type; see :mod:`inturn.core.versions`. None in a store of before it was kept.
    """

    step: int
    now_us: int
    committed: str
    seconds: float
    writer: str
    counts: dict[str, Any]
    handler: str
    state: dict[str, str]
    levels: list[Level]
    outputs: list[File]
    rejected: list[File]
    held: int = 0
    parked: int = 0
    oldest_us: int | None = None
    waiting_us: int | None = None
    batches: dict[str, int] = {}
    plans: dict[str, str] = {}
    decisions: list[Taken] = []
    policy: str = ""
    wait_us: int | None = None
    vacuumed: bool = False
    version: int = 1
    shape: Any = None


class About(msgspec.Struct, frozen=True):
    """What a store is a store of; it never changes.

    Attributes:
        format: the version of the layout.
        pipeline: the pipeline's name.
        group: the group's field.
        order: the grade of order and its fields.
        id: the field with the deduplication id.
        buckets: into how many slices of the hash space the groups are divided.
    """

    format: int
    pipeline: str
    group: str
    order: str
    id: str | None
    buckets: int


def about(pipeline: Pipeline, buckets: int | None) -> About:
    """What a new store of this pipeline would say of itself.

    Raises:
        PipelineError: if the number of buckets is out of range.
    """
    count = limits.BUCKETS if buckets is None else buckets
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= limits.MAX_BUCKETS:
        msg = f"buckets={buckets!r}; expected a whole number from 1 to {limits.MAX_BUCKETS}"
        raise PipelineError(msg)
    return About(FORMAT, pipeline.name, pipeline.group, repr(pipeline.order), pipeline.id, count)


class Store:
    """What is committed at a place: what it is a store of, and its steps.

    Attributes:
        decisions: what people decided about its groups.

    Args:
        location: a path, a ``file:`` URI, or a URL of an object store; see :mod:`inturn.spark.tables.storage`.

    Raises:
        StoreError: for a location on a filesystem that cannot create a file only if it is absent.
    """

    def __init__(self, location: str | os.PathLike[str]) -> None:
        self.files = storage(location)
        self.location = self.files.location
        self.decisions = DecisionLog(self.files)

    def about(self) -> About | None:
        """What the store says of itself; None if there is no store yet.

        Raises:
            StoreMismatch: if it is of a newer format.
            StoreError: if it cannot be read.
        """
        data = self.files.read(ABOUT)
        if data is None:
            return None
        version = self._decode(data, dict[str, Any], ABOUT).get("format")
        if version != FORMAT:
            msg = f"{self.location} has format {version!r}; this version of inturn knows {FORMAT}: update inturn"
            raise StoreMismatch(msg)
        return cast("About", self._decode(data, About, ABOUT))

    def known(self) -> About:
        """What the store says of itself; for what reads it or goes on with it.

        Raises:
            StoreError: if there is no store.
        """
        about = self.about()
        if about is None:
            self._check_lost(self.files.names(""))
            msg = f"{self.location} is not a store; make one with inturn.spark.batch(…, store=…)"
            raise StoreError(msg)
        return about

    def open(self, wanted: About, *, buckets: int | None) -> About:
        """Open the store for a pipeline, making it if it is not there.

        Raises:
            StoreMismatch: if it belongs to another pipeline, or has another number of buckets.
            StoreError: if it cannot be made.
        """
        there = self.about()
        if there is None:
            names = self.files.names("")
            there = self.about()  # another writer may have made it since, and its files with it
            if there is None:
                self._check_lost(names)
                if any(not PurePosixPath(name).name.startswith(".") for name in names):
                    msg = f"{self.location} is not empty and not a store; name an empty or new directory"
                    raise StoreError(msg)
        if there is None:
            with contextlib.suppress(StoreConflict):
                self.files.create(ABOUT, _pretty(wanted))
            there = self.about() or wanted
        for name in ("pipeline", "group", "order", "id"):
            mine, theirs = getattr(wanted, name), getattr(there, name)
            if mine != theirs:
                msg = f"{self.location} is the store of a pipeline with {name} {theirs!r}, not {mine!r}"
                raise StoreMismatch(msg + "; name another store")
        if buckets not in (None, there.buckets):
            msg = f"{self.location} was made with {there.buckets} buckets, not {buckets}; leave buckets= out"
            raise StoreMismatch(msg)
        return there

    def _check_lost(self, names: list[str]) -> None:
        """See that where there is no store there was none, by the names of the files there.

        Raises:
            StoreError: if only the file is missing that says what it is a store of.
        """
        if any(name == HEAD or name.startswith("steps/") for name in names):
            msg = f"{self.location} has steps and lacks {ABOUT}, which says what it is a store of"
            raise StoreError(msg + ": restore it from a backup")

    def steps(self) -> list[int]:
        """The numbers of the committed steps, in order.

        Raises:
            StoreError: naming the manifests that are missing.
        """
        return all_steps(self.files)

    def manifest(self, step: int) -> Manifest:
        """The manifest of a committed step.

        Raises:
            StoreError: if there is no such step, or its manifest cannot be read.
        """
        name = manifest_name(step)
        data = self.files.read(name)
        if data is None:
            steps = self.steps()  # which names this one, if a later one is there
            has = f"it has steps {steps[0]} to {steps[-1]}" if steps else "it has no step yet"
            msg = f"{self.location} has no step {step}; {has}"
            raise StoreError(msg)
        return cast("Manifest", self._decode(data, Manifest, name))

    def latest(self, after: Manifest | None = None) -> Manifest | None:
        """The manifest of the last committed step; None before the first.

        Args:
            after: a manifest that is known; the last one is that or a later one.

        Raises:
            StoreError: if a manifest is missing.
            StoreMismatch: if the known one is not the one that is there.
        """
        known = after.step if after else 0
        last = last_step(self.files, known, after.writer if after else "")
        return after if last == known else self.manifest(last)

    def after(self, step: int) -> Iterator[Manifest]:
        """The manifests of the steps that were committed after a step, in order.

        Raises:
            StoreError: if one is missing.
        """
        for number in range(step + 1, last_step(self.files, step) + 1):
            yield self.manifest(number)

    def commit(self, manifest: Manifest) -> None:
        """Make a step exist, if it does not yet.

        Raises:
            StoreConflict: if another writer committed this step first; nothing of ours is then seen by anyone.
        """
        try:
            self.files.create(manifest_name(manifest.step), _pretty(manifest))
        except StoreConflict:
            msg = (
                f"{self.location}: another writer committed step {manifest.step} first; nothing of this one was kept. "
            )
            raise StoreConflict(msg + "Run it again: what the other applied is not applied twice") from None
        with contextlib.suppress(StoreError):  # the step is committed; without it the next one is found all the same
            note(self.files, manifest.step, manifest.writer)

    def undecided(self, last: Manifest | None) -> dict[str, Decision]:
        """Return the decisions that no step has taken yet, by name, in order; ``last`` is the last step's manifest."""
        return self.decisions.pending({each.name for each in last.decisions} if last else set())

    def file_away(self, manifest: Manifest) -> None:
        """Put the decisions that a committed step took where they are kept."""
        for taken in manifest.decisions:
            self.decisions.file_away(taken.name)

    def vacuum(self, manifest: Manifest) -> None:
        """Keep of an old step what it counted and put out, not where the groups stood."""
        stub = msgspec.structs.replace(manifest, levels=[], vacuumed=True)
        self.files.replace(manifest_name(manifest.step), _pretty(stub))

    def _decode(self, data: bytes, kind: type[Any], name: str) -> Any:
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.MsgspecError as error:
            msg = f"{self.files.where(name)} is damaged: {error}; restore it from a backup"
            raise StoreError(msg) from error


def _pretty(value: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"
