"""Reads what a turn needs of its group beside the group's line: not more than it can move, however much there is."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from inturn.core import limits
from inturn.core.grades import ArrivalTimeline, GaplessTimeline, MonotoneTimeline, TimestampTimeline
from inturn.core.message import Entry
from inturn.core.timeline import STOPPED, Timeline
from inturn.store.kept import HeldMessage, Line, Mark, Spot
from inturn.worker.reading import Reader


class Source(Protocol):
    """Reads what is kept of a group beside its line; see :class:`inturn.store.base.GroupStore`."""

    def held(self, group: str, turns: Sequence[int] | None, ids: Sequence[str] | None) -> list[HeldMessage]:
        """What a group holds: all of it (None and None), or what has one of these turns or ids."""
        ...

    def held_from(self, group: str, spot: Spot, limit: int) -> list[HeldMessage]:
        """What a group holds from a spot on, in order."""
        ...

    def held_longest(self, group: str, limit: int) -> list[tuple[int, Spot]]:
        """Since when a group holds those messages that wait longest, and where they lie."""
        ...

    def marks(self, group: str, marks: Sequence[bytes]) -> list[Mark]:
        """What is remembered beside a group of messages with these marks."""
        ...


def recall(
    source: Source, reader: Reader, line: Timeline, stored: Line, entries: Sequence[Entry], *, needs_all: bool
) -> bool:
    """Put back what a group holds and remembers, as far as a turn can ask for it.

    Args:
        source: where it is kept.
        reader: makes the messages.
        line: the group's timeline, which takes it.
        stored: the group as it is kept.
        entries: the messages of the turn.
        needs_all: whether any message that is held may move, wherever it lies.

    Returns:
        Whether the timeline has all that the group holds.
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


def _moves(line: Timeline, entries: Sequence[Entry]) -> bool:
    """Whether these messages may let held ones go: else only copies of what comes are looked up, however much it is."""
    if line.parked in STOPPED:
        return False
    if not isinstance(line, GaplessTimeline):
        return True
    due = line.next()
    return any(entry.turn == due or entry.epoch != (line.epoch or 0) for entry in entries)


def _has_order(line: Timeline, entries: Sequence[Entry]) -> bool:
    """Whether what is let go are the first messages in the order in which they are kept."""
    return isinstance(line, TimestampTimeline) or (
        isinstance(line, GaplessTimeline) and all(entry.epoch == (line.epoch or 0) for entry in entries)
    )


def _movable(source: Source, group: str, line: Timeline, entries: Sequence[Entry]) -> Iterator[HeldMessage]:
    """The held messages that these may let go: a run of revisions, or the times up to the watermark to come."""
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


def _from(source: Source, group: str, spot: Spot, expected: int) -> Iterator[HeldMessage]:
    """What a group holds from a spot on, read in parts that grow: about as many are ``expected`` to be taken."""
    last, most = None, expected + 1
    while True:
        most = min(most, limits.HELD_AT_ONCE)
        part = source.held_from(group, spot, most)
        yield from (each for each in part if each[:3] != last)
        if len(part) < most:
            return
        last = spot = part[-1][:3]
        most *= 4
