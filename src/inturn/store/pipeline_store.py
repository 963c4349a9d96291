"""The protocol of a store of pipelines: groups, outputs that are not delivered, and decisions."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from inturn.core.identity import HeldKey
from inturn.core.pipeline.results import RejectedMessage
from inturn.store.records import (
    AppliedMark,
    GroupRecord,
    GroupUpdate,
    HeldRecord,
    OutboxClaim,
    OutputRecord,
    PendingDelivery,
    PipelineInfo,
    PipelineSummary,
    StoredDecision,
)


class GroupStore(Protocol):
    """The groups of pipelines. A pipeline is identified by its number."""

    def names(self) -> list[str]:
        """Return the names of all pipelines."""
        ...

    def info(self, name: str) -> PipelineInfo | None:
        """Return the info of a pipeline; changes to it are written by :meth:`save` and :meth:`keep`."""
        ...

    def save(self, info: PipelineInfo) -> None:
        """Create a pipeline (if its number is 0) or change it."""
        ...

    def records(self, pipeline: int, groups: Iterable[str]) -> list[GroupRecord]:
        """Return the records of the named groups that exist."""
        ...

    def list_groups(self, pipeline: int, after: str, limit: int, *, parked: bool = False) -> list[GroupRecord]:
        """Return groups in the order of their names.

        Args:
            pipeline: number of the pipeline.
            after: the name before the first one.
            limit: maximum number of groups.
            parked: only groups whose status is not open.
        """
        ...

    def briefs(self, pipeline: int, after: str, limit: int) -> list[tuple[str, str, bytes, int, int | None]]:
        """Return name, status, timeline, held and oldest_us of groups that are not open, like :meth:`listed`."""
        ...

    def summary(self, pipeline: int) -> PipelineSummary:
        """Return the numbers of groups, held messages and undelivered outputs; reads all groups."""
        ...

    def due(self, pipeline: int, now_us: int, limit: int) -> dict[str, int]:
        """Return the groups whose wait has ended, with its end, earliest first."""
        ...

    def set_due(self, pipeline: int, wait_us: int | None) -> None:
        """Let the waits of all waiting groups end this time after their longest-held message."""
        ...

    def put_off(self, pipeline: int, groups: Sequence[str], now_us: int, until_us: int) -> None:
        """Postpone the end of the waits of these groups, if they are due now."""
        ...

    def begun_tasks(self, pipeline: int, groups: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Return the number of begun tasks without messages, and their deadline, for groups with such tasks."""
        ...

    def save_begun(self, pipeline: int, begun: Mapping[str, int], until_ms: int) -> None:
        """Write the number of begun tasks without messages of groups; other workers begin none until ``until_ms``."""
        ...

    def save_begun_if_free(self, pipeline: int, begun: Mapping[str, int], until_ms: int) -> list[str]:
        """Do the same, but for groups that another transaction is changing; return these."""
        ...

    def held(
        self, pipeline: int, group: str, positions: Sequence[int] | None = None, ids: Sequence[str] | None = None
    ) -> list[HeldRecord]:
        """Return the held messages of a group: all, or only messages with one of these positions or ids."""
        ...

    def held_from(self, pipeline: int, group: str, spot: HeldKey, limit: int) -> list[HeldRecord]:
        """Return the held messages of a group from a spot on, in the order of their spots."""
        ...

    def heads(self, pipeline: int, groups: Sequence[str]) -> dict[str, HeldRecord]:
        """Return the first held message of each of these groups, in the order of their spots."""
        ...

    def held_longest(self, pipeline: int, group: str, limit: int) -> list[tuple[int, HeldKey]]:
        """Return the times and spots of the messages that a group has held longest, longest first."""
        ...

    def marks(self, pipeline: int, group: str, marks: Sequence[bytes]) -> list[AppliedMark]:
        """Return the stored marks of a group among these marks, in their order."""
        ...

    def save_updates(
        self, info: PipelineInfo, updates: Sequence[GroupUpdate], rejected: Sequence[RejectedMessage], now_ms: int
    ) -> list[str]:
        """Write the results of tasks, and the counts; nothing if another worker has changed one of the groups.

        Returns the groups that another worker has changed.
        """
        ...

    def rejections(self, pipeline: int, after: int, limit: int) -> list[tuple[int, RejectedMessage]]:
        """Return rejected messages after a number, with their numbers, in order."""
        ...

    def rejections_of(self, pipeline: int, group: str, limit: int) -> list[RejectedMessage]:
        """Return the rejected messages of a group among the pipeline's last ``limits.HISTORY_ROWS``, the last first."""
        ...


class OutboxStore(Protocol):
    """Undelivered outputs; the outputs of a group are delivered in order."""

    def outputs(self, pipeline: int, after: int, limit: int) -> list[OutputRecord]:
        """Return outputs after a number, in the order in which they were produced."""
        ...

    def outputs_of(self, pipeline: int, group: str, limit: int) -> list[OutputRecord]:
        """Return the undelivered outputs of a group, the last first."""
        ...

    def claim(self, info: PipelineInfo, groups: int, outputs: int, until_ms: int, now_ms: int) -> list[OutboxClaim]:
        """Claim the first outputs of unclaimed groups, until ``until_ms``.

        A group is claimed alone, before the others, if its last claim expired, or if there was neither a success nor a
        failure since.
        """
        ...

    def renew(self, pipeline: int, claims: Sequence[OutboxClaim], until_ms: int) -> None:
        """Extend claims."""
        ...

    def delivered(self, pipeline: int, claim: OutboxClaim, count: int, until_ms: int, error: str | None) -> bool:
        """End a claim and remove its first outputs, which were delivered.

        Args:
            pipeline: number of the pipeline.
            claim: the claim.
            count: number of delivered outputs.
            until_ms: earliest time of the next attempt for the other outputs.
            error: why the next output could not be delivered; None: no failure.

        Returns:
            Whether the claim was still valid; if not, nothing is changed.
        """
        ...

    def pending_deliveries(
        self, pipeline: int, groups: Sequence[str] | None, limit: int, after: str = ""
    ) -> list[PendingDelivery]:
        """Return groups with undelivered outputs: those named or, for None, those of which one failed, after a name."""
        ...

    def has_unsent(self, pipeline: int) -> bool:
        """Return whether a group has undelivered outputs that were not refused."""
        ...

    def redeliver(self, pipeline: int, groups: Sequence[str] | None) -> int:
        """Let refused outputs of these groups, or of all, be claimed again; return the number of groups."""
        ...


class DecisionStore(Protocol):
    """Decisions of people about groups, kept for ever."""

    def append_decisions(self, pipeline: int, decided: Sequence[StoredDecision]) -> None:
        """Append decisions."""
        ...

    def decisions(self, pipeline: int, limit: int, group: str | None = None) -> list[StoredDecision]:
        """Return the decisions that are not applied yet, in order."""
        ...

    def decisions_of(self, pipeline: int, group: str, limit: int) -> list[StoredDecision]:
        """Return the decisions about a group among the last ``limits.HISTORY_ROWS``, applied or not, the last first."""
        ...

    def save_verdicts(self, pipeline: int, verdicts: Mapping[str, str]) -> None:
        """Mark decisions as applied, with the verdict on each by its name."""
        ...

    def verdicts(self, pipeline: int, names: Sequence[str]) -> dict[str, str]:
        """Return the verdicts on the named decisions that are applied, by name."""
        ...

    def decided_groups(self, pipeline: int, names: Sequence[str]) -> dict[str, str]:
        """Return the groups of the named decisions that exist, by name."""
        ...


class PipelineStore(GroupStore, OutboxStore, DecisionStore, Protocol):
    """All stored data of pipelines, inside a transaction of the store."""
