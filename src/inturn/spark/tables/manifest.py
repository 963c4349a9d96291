"""The store: plain Parquet and Arrow files, and one manifest per step that lists the files.

```
STORE/
  inturn.json                    identity of the store; written once
  steps/000000000007.json        the manifest of step 7; a step is committed when its manifest exists
  head.json                      the last step, or an earlier one, so that readers need not search for it
  decisions/new|taken/…json      decisions about groups; taken by a step
  data/groups|held/…arrow        the state of each group, for the next step
  data/unsettled/…arrow          a copy of the groups that are not open, for inspection
  data/outputs|rejected/…parquet for all readers
```

A file that no manifest names does not exist for any reader. A commit creates the manifest only if it is absent, so
of two writers one gets an error, and a step that died half-way leaves nothing that a reader sees.
"""

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Final, cast

import msgspec

from inturn.core import limits
from inturn.core.errors import PipelineError, StoreConflict, StoreError, StoreMismatch
from inturn.core.pipeline.decision import Decision
from inturn.core.pipeline.definition import Pipeline
from inturn.spark.tables.decision_log import DecisionLog, file_of, number_of
from inturn.spark.tables.steps import (
    HEAD,
    all_steps,
    found_steps,
    last_step,
    lost_steps,
    lost_steps_text,
    manifest_name,
    write_head,
)
from inturn.spark.tables.storage import storage

log = logging.getLogger("inturn.spark")
FORMAT: Final = 2
"""The format of a store; format 1 was that of development versions, and was never released."""
ABOUT = "inturn.json"


class DataFile(msgspec.Struct, frozen=True):
    """One data file, sorted by hash; its path is relative to the store.

    Attributes:
        low: smallest hash.
        high: greatest hash.
        waiting_us: time at which the longest-waiting of its groups began to wait, without parked groups; None if
            none waits.
        oldest_us: the same with parked groups.
        firsts: smallest hash of each record batch.
    """

    path: str
    rows: int
    low: int
    high: int
    waiting_us: int | None = None
    oldest_us: int | None = None
    firsts: list[int] = []


class StoreLevel(msgspec.Struct, frozen=True):
    """The changes of one step.

    Attributes:
        step: step number.
        groups: files with the groups that it touched, as they are after it.
        held: files with the messages that it holds.
        unsettled: files with those of the groups that are not open, a copy for inspection, which need not search for
            them; None after an erasure, until the level is merged: then ``groups`` is searched.
    """

    step: int
    groups: list[DataFile]
    held: list[DataFile]
    unsettled: list[DataFile] | None = None

    @property
    def files(self) -> list[DataFile]:
        """Return all its files."""
        return [*self.groups, *self.held, *(self.unsettled or ())]


LEVEL_TABLES: Final = StoreLevel.__struct_fields__[1:]
"""The tables of a level, in the order of its fields."""


class AppliedDecisions(msgspec.Struct, frozen=True):
    """A file of decisions that a step applied.

    Attributes:
        name: name of the file, and of its decision if it has only one.
        void: the reason why its one decision was too late, None if it was carried out.
        voids: for a file with many decisions, the reason for each decision that was too late, by its number.
    """

    name: str
    void: str | None
    voids: dict[str, str] = {}

    @classmethod
    def from_verdicts(cls, verdicts: Mapping[str, str | None]) -> "list[AppliedDecisions]":
        """Return the files of decisions, from the verdict on each decision by its name."""
        files: dict[str, AppliedDecisions] = {}
        for name, void in verdicts.items():
            if not number_of(name):
                files[name] = cls(name, void)
                continue
            applied = files.setdefault(file_of(name), cls(file_of(name), None, {}))
            if void is not None:
                applied.voids[number_of(name)] = void
        return list(files.values())

    def verdict(self, name: str) -> str:
        """Return the reason why a decision of the file was too late; empty if it was carried out."""
        return self.void or self.voids.get(number_of(name), "")


class Manifest(msgspec.Struct, frozen=True):
    """One committed step.

    Attributes:
        step: step number, from 1.
        now_us: time of the step, on which its decisions are based; microseconds since 1970.
        committed: time of the commit, ISO 8601.
        seconds: duration of the step.
        writer: id of the run that committed it.
        counts: number of messages by outcome.
        handler: fingerprint of the handler's code.
        state: storage types of the state's fields.
        levels: files with the groups and held messages after this step, newest last.
        outputs: files with this step's outputs.
        rejected: files with this step's rejected messages.
        held: number of messages held after this step.
        parked: number of groups parked after this step.
        oldest_us: time at which the longest-waiting message began to wait; None if none waits.
        waiting_us: the same for groups that are not parked.
        batches: last micro-batch in this store of each stream that ever wrote here, by its run id.
        plans: for the same streams, the digest of what their checkpoints planned for that micro-batch.
        decisions: decisions that this step applied.
        policy: action of the pipeline on a gap after the wait; empty if it waits forever.
        wait_us: length of that wait in microseconds; None if it waits forever.
        vacuumed: whether ``levels`` was emptied because its files were deleted.
        version: version of the pipeline; all states in the levels have it.
        shape: shape of the pipeline's state type; None in stores created before it was recorded.
    """

    step: int
    now_us: int
    committed: str
    seconds: float
    writer: str
    counts: dict[str, Any]
    handler: str
    state: dict[str, str]
    levels: list[StoreLevel]
    outputs: list[DataFile]
    rejected: list[DataFile]
    held: int = 0
    parked: int = 0
    oldest_us: int | None = None
    waiting_us: int | None = None
    batches: dict[str, int] = {}
    plans: dict[str, str] = {}
    decisions: list[AppliedDecisions] = []
    policy: str = ""
    wait_us: int | None = None
    vacuumed: bool = False
    version: int = 1
    shape: Any = None

    @property
    def is_record(self) -> bool:
        """True if a state has fields; otherwise the only stored field is the state itself."""
        return "record" in self.shape if isinstance(self.shape, dict) else list(self.state) != ["state"]


class StoreIdentity(msgspec.Struct, frozen=True):
    """The identity of a store, which never changes: format of the layout, pipeline, fields of group, order and id."""

    format: int
    pipeline: str
    group: str
    order: str
    id: str | None
    buckets: int


def new_identity(pipeline: Pipeline, buckets: int | None) -> StoreIdentity:
    """Return the identity of a new store of this pipeline.

    Raises:
        PipelineError: if the number of buckets is out of range.
    """
    count = limits.BUCKETS if buckets is None else buckets
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= limits.MAX_BUCKETS:
        raise PipelineError(f"buckets is {buckets!r}; expected a whole number from 1 to {limits.MAX_BUCKETS}")
    return StoreIdentity(FORMAT, pipeline.name, pipeline.group, repr(pipeline.order), pipeline.id, count)


class SparkStore:
    """A store at a location: its identity, its committed steps, and the decisions about its groups.

    A step whose manifest is missing or damaged raises a :class:`StoreError` that names it; see
    :mod:`inturn.spark.tables.steps` for the operations that do not need it. The location is a
    path, a ``file:`` URI, or a URL of an object store; see :mod:`inturn.spark.tables.storage`.
    """

    def __init__(self, location: str | os.PathLike[str]) -> None:
        self.files = storage(location)
        self.location = self.files.location
        self.decisions = DecisionLog(self.files)
        self._logged_lost: list[int] = []

    def identity(self) -> StoreIdentity | None:
        """Return the store's identity; None if there is no store yet.

        Raises:
            StoreMismatch: if this version does not support the format.
            StoreError: if it cannot be read.
        """
        data = self.files.read(ABOUT)
        if data is None:
            return None
        stored = self._decode(data, dict[str, Any], ABOUT).get("format")
        if isinstance(stored, int) and stored < FORMAT:
            raise StoreMismatch(
                f"{self.location} has format {stored}, of a development version before the first release; expected "
                f"format {FORMAT}; a store of an earlier format cannot be migrated; create a new store"
            )
        if stored != FORMAT:
            msg = f"{self.location} has format {stored!r}; this version of inturn knows format {FORMAT}; update inturn"
            raise StoreMismatch(msg)
        return cast("StoreIdentity", self._decode(data, StoreIdentity, ABOUT))

    def require_identity(self) -> StoreIdentity:
        """Return the identity of an existing store; without a store raise StoreError."""
        about = self.identity()
        if about is None:
            self._check_lost(self.files.names(""))
            raise StoreError(f"{self.location} is not a store; create one with inturn.spark.batch(…, store=…)")
        return about

    def open(self, identity: StoreIdentity, *, buckets: int | None) -> StoreIdentity:
        """Open the store for a pipeline; create it if it does not exist.

        Raises:
            StoreMismatch: if it belongs to another pipeline, or has another number of buckets.
            StoreError: if it cannot be created.
        """
        existing = self.identity()
        if existing is None:
            names = self.files.names("")
            existing = self.identity()  # another writer may have created it meanwhile, with its files
            if existing is None:
                self._check_lost(names)
                if any(not PurePosixPath(name).name.startswith(".") for name in names):
                    raise StoreError(f"{self.location} is neither a store nor empty; use an empty or new directory")
        if existing is None:
            with contextlib.suppress(StoreConflict):
                self.files.create(ABOUT, _pretty(identity))
            existing = self.identity() or identity
        for name in ("pipeline", "group", "order", "id"):
            requested, stored = getattr(identity, name), getattr(existing, name)
            if requested != stored:
                msg = f"{self.location} is the store of a pipeline with {name} {stored!r}, not {requested!r}"
                raise StoreMismatch(msg + "; use another store")
        if buckets not in (None, existing.buckets):
            msg = f"{self.location} was created with {existing.buckets} buckets, not {buckets}; omit buckets="
            raise StoreMismatch(msg)
        return existing

    def _check_lost(self, names: list[str]) -> None:
        """Check, by the names of its files, that a location without an identity file has no steps either."""
        if any(name == HEAD or name.startswith("steps/") for name in names):
            msg = f"{self.location} has steps but lacks {ABOUT}, which identifies the store"
            raise StoreError(msg + ": restore this file from a backup")

    def steps(self) -> list[int]:
        """Return the numbers of the committed steps, in order; if a manifest is missing raise StoreError."""
        return all_steps(self.files)

    def found_steps(self) -> list[int]:
        """Return the numbers of the committed steps, in order; those whose manifests are lost are logged instead, once.

        Raises:
            StoreError: if the last manifests are missing.
        """
        steps = found_steps(self.files)
        lost = lost_steps(steps)
        if lost != self._logged_lost:
            log.warning("%s", lost_steps_text(self.files, lost))
            self._logged_lost = lost
        return steps

    def has_step(self, step: int) -> bool:
        """Return whether the manifest of a step exists."""
        return self.files.exists(manifest_name(step))

    def manifest(self, step: int) -> Manifest:
        """Return the manifest of a committed step; without such a step raise StoreError."""
        name = manifest_name(step)
        data = self.files.read(name)
        if data is None:
            steps = found_steps(self.files)
            if step in lost_steps(steps):
                raise StoreError(lost_steps_text(self.files, [step]))
            has = f"it has steps {steps[0]} to {steps[-1]}" if steps else "it has no step yet"
            raise StoreError(f"{self.location} has no step {step}; {has}")
        return cast("Manifest", self._decode(data, Manifest, name))

    def latest(self, after: Manifest | None = None) -> Manifest | None:
        """Return the manifest of the last committed step, which is a known one or a later one; None before the first.

        Raises:
            StoreMismatch: if the known manifest is not the one in the store.
        """
        known = after.step if after else 0
        last = last_step(self.files, known, after.writer if after else "")
        return after if last == known else self.manifest(last)

    def manifests_after(self, step: int) -> Iterator[Manifest]:
        """Yield the manifests of the steps committed after a step, in order."""
        for number in range(step + 1, last_step(self.files, step) + 1):
            yield self.manifest(number)

    def commit(self, manifest: Manifest) -> None:
        """Commit a step: create its manifest if it does not exist.

        Raises:
            StoreConflict: if another writer committed this step first; no reader then sees anything of ours.
        """
        try:
            self.files.create(manifest_name(manifest.step), _pretty(manifest))
        except StoreConflict:
            msg = (
                f"{self.location}: another writer committed step {manifest.step} first; this one was discarded. Run it "
            )
            raise StoreConflict(msg + "again: what the other writer applied is not applied again") from None
        with contextlib.suppress(StoreError):  # the step is committed; readers find it without the head too
            write_head(self.files, manifest.step, manifest.writer)

    def change_marker(self) -> str:
        """Return a text that changes with each step and each new decision, for a fraction of the cost of a manifest.

        Raises:
            StoreError: if there is no store.
        """
        head = self.files.read(HEAD)
        if head is None or not self.files.exists(ABOUT):
            self.require_identity()  # raises StoreError if this is not a store
        return f"step {last_step(self.files)}, {head!r}, {sorted(self.files.names('decisions/new'))}"

    def pending_decisions(self, last: Manifest | None, most: int | None = None) -> dict[str, Decision]:
        """Return the decisions that no step has applied yet, by name, in order; ``last`` is the last step's manifest.

        ``most``: see :meth:`DecisionLog.pending`.
        """
        return self.decisions.pending({applied.name for applied in last.decisions} if last else set(), most)

    def archive(self, manifest: Manifest) -> None:
        """Move the decisions that a committed step applied to ``decisions/taken``."""
        for applied in manifest.decisions:
            self.decisions.archive(applied.name)

    def vacuum(self, manifest: Manifest) -> None:
        """Reduce an old step's manifest to its counts, outputs and rejected messages; drop the state of groups."""
        self.rewrite(msgspec.structs.replace(manifest, levels=[], vacuumed=True))

    def rewrite(self, manifest: Manifest) -> None:
        """Replace the manifest of a committed step, whose files were rewritten."""
        self.files.replace(manifest_name(manifest.step), _pretty(manifest))

    def _decode(self, data: bytes, kind: type[Any], name: str) -> Any:
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.MsgspecError as error:
            raise StoreError(f"{self.files.full_name(name)} is damaged: {error}; restore it from a backup") from error


def _pretty(value: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"
