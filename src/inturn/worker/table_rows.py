"""Outputs as rows of a table of the queue's own database, written in the commit that produces them.

Outputs that cannot be written there go to the outbox, from which they are delivered as to any other table: a row that
the table refuses, a locked table, and the outputs of a group with earlier outputs in the outbox.
"""

from collections.abc import Sequence
from typing import Any, Protocol, cast, runtime_checkable

import msgspec

from inturn.core.errors import InturnError
from inturn.database import open as open_database
from inturn.queue import Queue
from inturn.store.protocols import QueueAndPipelineStore, SqlStore
from inturn.store.records import GroupUpdate, PipelineInfo


@runtime_checkable
class RowDelivery(Protocol):
    """A delivery that writes each output as a row, such as :class:`inturn.deliver.table`.

    Attributes:
        database: the file of SQLite, or the address of PostgreSQL.
        insert: the statement that writes a row, and does not change an existing one.
    """

    database: str
    insert: str

    def row(self, output: Any, effect_id: str) -> Sequence[Any]:
        """Return the parameters of the statement for an output."""
        ...


class TableRows:
    """The path from a pipeline's outputs into a table of the same database."""

    def __init__(self, delivery: RowDelivery) -> None:
        self._delivery = delivery

    def write(
        self, store: QueueAndPipelineStore, info: PipelineInfo, updates: Sequence[GroupUpdate]
    ) -> list[GroupUpdate]:
        """Write the outputs of tasks; return the updates with those outputs that go to the outbox."""
        makers = [update.record.group for update in updates if update.outputs]
        if not makers:
            return list(updates)
        pending = {delivery.group for delivery in store.pipelines.pending_deliveries(info.number, makers, len(makers))}
        free = [update for update in updates if update.outputs and update.record.group not in pending]
        if self._is_written(store, free):
            written = {update.record.group for update in free}
        else:  # one group at a time, so that the others are not held up
            written = {update.record.group for update in free if self._is_written(store, [update])}
        return [update._replace(outputs=[]) if update.record.group in written else update for update in updates]

    def _is_written(self, store: QueueAndPipelineStore, updates: Sequence[GroupUpdate]) -> bool:
        rows = [
            self._delivery.row(msgspec.json.decode(output.output), output.effect_id)
            for update in updates
            for output in update.outputs
        ]
        return not rows or cast("SqlStore", store).attempt(self._delivery.insert, rows)


def table_rows_of(deliver: object, source: Queue) -> TableRows | None:
    """Return the path into the table of ``deliver=``; None if the table is not in the database of the queue."""
    if not isinstance(deliver, RowDelivery):
        return None
    try:
        with open_database(deliver.database, create=False) as other:
            is_own = source.writer.is_own(other.writer.identity())
    except InturnError:  # it has no queues, or cannot be reached now
        return None
    return TableRows(deliver) if is_own else None
