"""A streaming query listener that reports each committed step to logs and monitors."""

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

from inturn.core.pipeline.journal import Counts
from inturn.spark.driver.step import Report
from inturn.spark.tables.manifest import Manifest, SparkStore

_log = logging.getLogger("inturn.spark.listener")


@dataclass(frozen=True)
class StepSummary(Report):
    """A committed step, with the number of held messages and parked groups after it.

    Attributes:
        now_us: the time of the step, from which waits are measured; microseconds since 1970.
        held: the number of held messages after the step.
        parked: the number of parked groups after the step.
        oldest_us: the time since which the oldest held message waits, microseconds since 1970; None if none is held.
    """

    now_us: int
    held: int
    parked: int
    oldest_us: int | None

    @property
    def oldest_wait_s(self) -> float | None:
        """The wait of the oldest held message at the time of the step, in seconds; None if none is held."""
        return None if self.oldest_us is None else (self.now_us - self.oldest_us) / 1e6

    def __str__(self) -> str:
        if not self.held and not self.parked:
            return super().__str__()
        oldest = "" if self.oldest_wait_s is None else f", the oldest for {self.oldest_wait_s:.0f} s"
        return f"{super().__str__()}; held now {self.held}{oldest}, groups parked {self.parked}"


class StepListener(StreamingQueryListener):
    """A listener for the steps committed to a store from now on; add it with ``spark.streams.addListener``.

    It reads the store whenever a query of the session reports progress or ends, so it also reports steps of other
    writers. Spark calls its listeners one event at a time. This listener never raises into Spark: errors are logged as
    warnings. Through Spark Connect it runs in the client, which must have access to the store. There, remove it at the
    end, or Spark's listener thread keeps the process alive.

    Args:
        store: the store's location; it need not exist yet.
        on_step: a function called with each step in order, at most once; default: log it at INFO to
            ``inturn.spark.listener``.

    Raises:
        StoreError: if the store cannot be read.
        SetupError: if a package for the object store is missing.
    """

    def __init__(self, store: str | os.PathLike[str], on_step: Callable[[StepSummary], None] | None = None) -> None:
        opened = SparkStore(store)
        self._store, self._on_step = opened.location, on_step
        last = opened.latest()
        self._reported = last.step if last else 0

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's names
        """Do nothing: Spark waits for this call before a query starts."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: ARG002, N802 - Spark's names
        """Report new steps."""
        self._report_new_steps()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: ARG002, N802 - Spark's names
        """Report new steps: a query that fails does not report its last progress."""
        self._report_new_steps()

    def _report_new_steps(self) -> None:
        # Open the store on each call: its open resources cannot be pickled.
        try:
            store = SparkStore(self._store)
            for manifest in store.manifests_after(self._reported):
                summary = _summary(store, manifest)
                self._reported = manifest.step
                self._report(summary)
        except Exception:  # noqa: BLE001 - nothing may be raised into Spark
            _log.warning(
                "cannot report the steps of %s; they are reported with the next progress of a query",
                self._store,
                exc_info=True,
            )

    def _report(self, summary: StepSummary) -> None:
        if self._on_step is None:
            _log.info("%s", summary)
            return
        try:
            self._on_step(summary)
        except Exception:  # noqa: BLE001 - nothing may be raised into Spark
            _log.warning("on_step failed for step %d of %s", summary.step, summary.store, exc_info=True)


def _summary(store: SparkStore, manifest: Manifest) -> StepSummary:
    about = store.identity()
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
