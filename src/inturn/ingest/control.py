"""Inspection and control of a source from any process: positions, rejected and moved records, pause, resume, seek."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar, cast

import msgspec

from inturn.core import limits
from inturn.core.errors import InputError
from inturn.core.queue.messages import checked_name
from inturn.core.source_shares import DECIDED, SourcePartition
from inturn.database import Database
from inturn.ingest.moved_groups import draft_of
from inturn.store.commands import Ask, Read, queue_of
from inturn.store.protocols import SqlStore
from inturn.store.sources import MovedRecord, RejectedRecord

T = TypeVar("T")


def source_names(db: Database) -> list[str]:
    """Return the names of the sources of a database."""
    return db.writer.run(Read("", lambda store, _now_ms: cast("SqlStore", store).sources.names()))


class SourceControl:
    """A source in a database.

    A change by hand raises the epoch of the partition, so that the instance that reads it commits nothing more under
    the old one; it goes on, if it may, from the new position.
    """

    def __init__(self, db: Database, name: str) -> None:
        self._db, self._name = db, checked_name(name)

    def partitions(self) -> list[SourcePartition]:
        """Return the partitions, by name."""
        return self._ask(lambda store, _now_ms: store.sources.partitions(self._name))

    def rejected(self) -> Iterator[RejectedRecord]:
        """Yield the rejected records, in order."""
        after = 0
        while found := self._page(after):
            yield from found
            after = found[-1].number

    def moved(self) -> Iterator[MovedRecord]:
        """Yield the messages that wait, since their group came from another partition before, in order."""
        after = 0
        while found := self._moved_page(after):
            yield from found
            after = found[-1].number

    def _moved_page(self, after: int) -> list[MovedRecord]:
        return self._ask(lambda store, _now_ms: store.sources.moved(self._name, after, limits.READ_MESSAGES))

    def moved_counts(self) -> dict[str, int]:
        """Return the number of messages that wait so, by the partition that they came from."""
        return self._ask(lambda store, _now_ms: store.sources.moved_counts(self._name))

    def accept(self, *groups: str) -> int:
        """Let groups go on in the partition that they moved to; their messages that wait are sent, in order.

        Records that the earlier partition still has wait from then on.

        Args:
            groups: which; none: all that wait. Each is accepted in a transaction of its own.

        Returns:
            How many messages were sent.

        Raises:
            InputError: if nothing of a group waits.
            QueueFull: if the queue has no room; the groups before were accepted.
        """
        waiting = self._ask(lambda store, _now_ms: store.sources.moved_groups(self._name))
        if unknown := sorted(set(groups) - set(waiting)):
            raise InputError(f"nothing of group {unknown[0]!r} waits in source {self._name!r}")
        return sum(self._do(partial(self._accept, group)) for group in groups or waiting)

    def _accept(self, group: str, store: SqlStore, now_ms: int) -> int:
        waiting = store.sources.moved_of(self._name, group)
        if not waiting:  # another accepted it
            return 0
        first = waiting[0]
        sent = [each for each in waiting if (each.partition, each.queue) == (first.partition, first.queue)]
        store.sources.move_homes(self._name, first.partition, {group: first.position})
        store.sources.remove_moved([each.number for each in sent])
        store.send(queue_of(store, first.queue), [*map(draft_of, sent)], now_ms)
        return len(sent)

    def _page(self, after: int) -> list[RejectedRecord]:
        return self._ask(lambda store, _now_ms: store.sources.rejected(self._name, after, limits.READ_MESSAGES))

    def pause(self, *partitions: str) -> int:
        """Stop reading the partitions, or all; return how many were changed."""
        return self._change(partitions, lambda each: each._replace(is_paused=True, owner=None))

    def resume(self, *partitions: str) -> int:
        """Go on with paused partitions, or all; return how many were changed."""
        return self._change(partitions, lambda each: each._replace(is_paused=False))

    def seek(self, position: Any, *partitions: str) -> int:
        """Go on at a position; None: at the start. Also lets a partition go on that was made again.

        Args:
            position: a position of the source, as a JSON value.
            partitions: which; none: all.

        Returns:
            How many were changed.
        """
        text = None if position is None else msgspec.json.encode(position).decode()

        def sought(each: SourcePartition) -> SourcePartition:
            incarnation = DECIDED + each.incarnation.removeprefix(DECIDED)
            return each._replace(position=text, note=None, owner=None, incarnation=incarnation, is_finished=False)

        return self._change(partitions, sought)

    def _change(self, names: tuple[str, ...], change: Callable[[SourcePartition], SourcePartition]) -> int:
        def run(store: SqlStore, now_ms: int) -> int:
            known = store.sources.partitions(self._name)
            missing = sorted(set(names) - {each.name for each in known})
            if missing or not known:
                there = ", ".join(each.name for each in known) or "none"
                what = f"partition {missing[0]!r}" if missing else "partition"
                raise InputError(f"source {self._name!r} has no {what}; there are: {there}")
            count = 0
            for each in known:
                changed = change(each)
                if (not names or each.name in names) and changed != each:
                    store.sources.save(self._name, changed._replace(epoch=each.epoch + 1, moved_ms=now_ms))
                    count += 1
            return count

        return self._do(run)

    def _ask(self, function: Callable[[SqlStore, int], T]) -> T:
        return self._db.writer.run(Read("", lambda store, now_ms: function(cast("SqlStore", store), now_ms)))

    def _do(self, function: Callable[[SqlStore, int], T]) -> T:
        return self._db.writer.run(Ask("", lambda store, now_ms: function(cast("SqlStore", store), now_ms)))
