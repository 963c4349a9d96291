"""Reads of what a turn needs of its group's held messages and memory: no more than the turn can use."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Protocol

from inturn.core import limits
from inturn.core.identity import TimelineEntry
from inturn.core.pipeline.timeline import Timeline
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
    if unknown := line.unknown(entries):
        line.remind(source.marks(group, unknown))
    if not stored.held:
        return True
    moves = line.may_release(entries)
    is_whole = needs_all or (moves and (stored.held <= limits.HELD_AT_ONCE or not line.releases_first(entries)))
    if is_whole:
        found = source.held(group, None, None)
    elif line.order.has_revisions:
        found = source.held(group, [entry.turn for entry in entries], None)
    else:
        found = source.held(group, None, [entry.id or "" for entry in entries])
    if moves and not is_whole:
        known = {each[:3] for each in found}
        first = partial(_from, source, group, len(entries))
        found += [each for each in line.releasable(entries, first) if each[:3] not in known]
    for each in found:
        line.restore(reader.again(each))
    return is_whole


def _from(source: RecordReader, group: str, expected: int, spot: Spot) -> Iterator[HeldMessage]:
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
