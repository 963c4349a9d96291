"""Tells of each step that a stream commits, for logs and monitors, from the progress that Spark reports anyway."""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from inturn.core.fold import Counts
from inturn.spark.step import Report
from inturn.spark.tables.manifest import Manifest, Store

_log = logging.getLogger("inturn")


@dataclass(frozen=True)
class StepSummary(Report):
    """A committed step, and how much is held after it.

    Attributes:
        now_us: the time of the step, by which waits are measured; microseconds since 1970.
        held: how many messages are held after the step.
        parked: how many groups are parked after the step.
        oldest_us: since when the held message that waits longest waits, microseconds since 1970; None if none does.
    """

    now_us: int
    held: int
    parked: int
    oldest_us: int | None

    @property
    def oldest_wait_s(self) -> float | None:
        """How long the held message that waits longest had waited at the time of the step, in seconds."""
        return None if self.oldest_us is None else (self.now_us - self.oldest_us) / 1e6

    def __str__(self) -> str:
        if not self.held and not self.parked:
            return super().__str__()
        oldest = "" if self.oldest_wait_s is None else f", the oldest for {self.oldest_wait_s:.0f} s"
        return f"{super().__str__()}; held now {self.held}{oldest}, groups parked {self.parked}"


class StepListener(StreamingQueryListener):
    """Tells of every step that is committed to a store from now on; add it with ``spark.streams.addListener``.

    It looks whenever a query of the session reports progress or ends, so steps that other writers commit are told
    too. Spark calls its listeners one event at a time, and this one never raises into it: what goes wrong is logged
    as a warning. Through Spark Connect it runs in the client, which must see the store; there, remove it at the end, or
    the thread in which Spark listens keeps the process alive.

    Args:
        store: a store, which need not be there yet.
        on_step: called with each step in order, at most once; default is to log it at INFO to the logger ``inturn``.

    Raises:
        StoreError: if the store cannot be read.
        SetupError: if a package for the object store is missing.
    """

    def __init__(self, store: str | os.PathLike[str], on_step: Callable[[StepSummary], None] | None = None) -> None:
        opened = Store(store)
        self._store, self._on_step = opened.location, on_step
        last = opened.latest()
        self._told = last.step if last else 0

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's names
        """Nothing: Spark waits for this before a query starts."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: ARG002, N802 - Spark's names
        """Tell of the steps that are new."""
        self._look()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: ARG002, N802 - Spark's names
        """Tell of the steps that are new: a query that fails does not report its last progress."""
        self._look()

    def _look(self) -> None:
        # A Store is opened each time: what it holds open would not survive being pickled.
        try:
            store = Store(self._store)
            for manifest in store.after(self._told):
                summary = _summary(store, manifest)
                self._told = manifest.step
                self._tell(summary)
        except Exception:  # noqa: BLE001 - nothing may be raised into Spark
            _log.warning("the steps of %s cannot be told now", self._store, exc_info=True)

    def _tell(self, summary: StepSummary) -> None:
        if self._on_step is None:
            _log.info("%s", summary)
            return
        try:
            self._on_step(summary)
        except Exception:  # noqa: BLE001 - nothing may be raised into Spark
            _log.warning("on_step failed for step %d of %s", summary.step, summary.store, exc_info=True)


def _summary(store: Store, manifest: Manifest) -> StepSummary:
    about = store.about()
    return StepSummary(
        pipeline=about.pipeline if about else "",
        store=store.location,
        step=manifest.step,
        counts=Counts(**manifest.counts),
        seconds=manifest.seconds,
        now_us=manifest.now_us,
        held=manifest.held,
        parked=manifest.parked,
        oldest_us=manifest.oldest_us,
    )
