"""Reads of what a turn needs of its group's held messages and memory: no more than the turn can use."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from inturn.core import limits
from inturn.core.identity import TimelineEntry
from inturn.core.pipeline.grades import ArrivalTimeline, GaplessTimeline, MonotoneTimeline, TimestampTimeline
from inturn.core.pipeline.timeline import STOPPED, Timeline
from inturn.store.records import AppliedMark, GroupRecord, HeldMessage, Spot
from inturn.worker.decoding import MessageDecoder


class RecordReader(Protocol):
    """Reads what is stored beside a group's record; see :class:`inturn.store.protocols.GroupStore`."""

    def held(self, group: str, turns: Sequence[int] | None, ids: Sequence[str] | None) -> list[HeldMessage]:
        """Return messages that a group holds: all (None and None), or those with one of these turns or ids."""
        ...

    def held_from(self, group: str, spot: Spot, limit: int) -> list[HeldMessage]:
        """Return the messages that a group holds from a spot on, in order."""
        ...

    def held_longest(self, group: str, limit: int) -> list[tuple[int, Spot]]:
        """Return the messages that a group has held longest: since when, and where they lie."""
        ...

    def marks(self, group: str, marks: Sequence[bytes]) -> list[AppliedMark]:
        """Return the remembered messages of a group that have these marks."""
        ...


def recall(
    source: RecordReader,
    reader: MessageDecoder,
    line: Timeline,
    stored: GroupRecord,
    entries: Sequence[TimelineEntry],
    *,
    needs_all: bool,
) -> bool:
    """Load a group's held messages and memory into its timeline, as far as a turn can need them.

    Args:
        source: reads from the store.
        reader: restores the messages.
        line: the group's timeline, which is filled.
        stored: the group's record.
        entries: the messages of the turn.
        needs_all: whether any held message may move, wherever it lies.

    Returns:
        Whether the timeline has all held messages of the group.
    """
    group = stored.group
    if isinstance(line, ArrivalTimeline) and (unknown := line.unknown(entries)):
        line.remind(source.marks(group, unknown))
    if not stored.held:
        return True
    moves = _moves(line, entries)
    is_whole = needs_all or (moves and (stored.held <= limits.HELD_AT_ONCE or not _has_order(line, entries)))
    if is_whole:
        found = source.held(group, None, None)
    elif isinstance(line, GaplessTimeline | MonotoneTimeline):
        found = source.held(group, [entry.turn for entry in entries], None)
    else:
        found = source.held(group, None, [entry.id or "" for entry in entries])
    if moves and not is_whole:
        known = {each[:3] for each in found}
        found += [each for each in _movable(source, group, line, entries) if each[:3] not in known]
    for each in found:
        line.restore(reader.again(each))
    return is_whole


def _moves(line: Timeline, entries: Sequence[TimelineEntry]) -> bool:
    """Return whether these messages may release held ones; if not, only copies of the new messages are looked up."""
    if line.parked in STOPPED:
        return False
    if not isinstance(line, GaplessTimeline):
        return True
    due = line.next()
    return any(entry.turn == due or entry.epoch != (line.epoch or 0) for entry in entries)


def _has_order(line: Timeline, entries: Sequence[TimelineEntry]) -> bool:
    """Return whether released messages are the first in storage order."""
    return isinstance(line, TimestampTimeline) or (
        isinstance(line, GaplessTimeline) and all(entry.epoch == (line.epoch or 0) for entry in entries)
    )


def _movable(
    source: RecordReader, group: str, line: Timeline, entries: Sequence[TimelineEntry]
) -> Iterator[HeldMessage]:
    """Yield the held messages that these may release: consecutive revisions, or times up to the new watermark."""
    if isinstance(line, GaplessTimeline):
        epoch, due = line.epoch or 0, line.next()
        coming = {entry.turn for entry in entries}
        for each in _from(source, group, (epoch, due, ""), len(entries)):
            while due in coming and due < each.turn:
                due += 1
            if each.epoch != epoch or each.turn > due:
                return
            due = each.turn + 1
            yield each
    elif isinstance(line, TimestampTimeline):
        times = [entry.turn for entry in entries]
        greatest = max(times if line.reached is None else [line.reached, *times], default=None)
        for each in _from(source, group, (0, limits.FIRST_TURN, ""), len(entries)):
            if greatest is None or each.turn > greatest - line.order.lateness_us:
                return
            yield each


def _from(source: RecordReader, group: str, spot: Spot, expected: int) -> Iterator[HeldMessage]:
    """Yield the messages that a group holds from a spot on, read in growing parts; ``expected`` sets the first size."""
    last, most = None, expected + 1
    while True:
        most = min(most, limits.HELD_AT_ONCE)
        part = source.held_from(group, spot, most)
        yield from (each for each in part if each[:3] != last)
        if len(part) < most:
            return
        last = spot = part[-1][:3]
        most *= 4
