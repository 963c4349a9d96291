"""Groups whose records come from another partition than before, such as after partitions were added to a topic.

The order of such a group's records over two partitions is undefined. If the order of its messages is the order of the
partition, they wait until an operator accepts the new partition, or the group continues there.
"""

from dataclasses import replace
from typing import Final, Literal, TypeAlias

import msgspec

from inturn.core.errors import InputError
from inturn.core.queue.messages import Content, Draft
from inturn.core.texts import quoted
from inturn.ingest.batches import IngestBatch
from inturn.ingest.events import EVENTS
from inturn.ingest.mapping import MessageMapping
from inturn.ingest.positions import position_json
from inturn.store.sources import MovedRecord, SourceStore

OnMove: TypeAlias = Literal["park", "follow", "ignore"]

_CHOICES: Final = ("park", "follow", "ignore")


def checked_on_move(on_move: OnMove | None, mapping: MessageMapping) -> OnMove:
    """Return the treatment of groups that move; by default ``park`` if the mapping orders by position, else ``ignore``.

    Raises:
        InputError: if it is not a valid choice.
    """
    if on_move is None:
        return "park" if mapping.revision == "position" and mapping.group != "partition" else "ignore"
    if on_move not in _CHOICES:
        raise InputError(f"on_move is {on_move!r}; expected one of {', '.join(map(repr, _CHOICES))}")
    return on_move


def without_moved(
    store: SourceStore, source: str, batch: IngestBatch, queue: str, on_move: OnMove, now_ms: int
) -> IngestBatch:
    """Return a batch without the drafts of groups that moved, which are stored; or move these groups."""
    positions: dict[str, str] = {}
    for record, draft in zip(batch.records, batch.drafts, strict=True):
        if draft.group is not None and draft.group not in positions:
            positions[draft.group] = position_json(record.position)
    homes = store.homes(source, batch.partition, positions)
    moved_homes = {group: home for group, home in homes.items() if home.partition != batch.partition}
    if not moved_homes:
        return batch
    group, home = next(iter(moved_homes.items()))
    effect = "their messages wait for acceptance" if on_move == "park" else "they continue there"
    EVENTS.warning(
        "moved",
        source,
        "source %(source)s: %(count)d groups moved, such as %(quoted)s, in partition %(earlier)s since position "
        f"%(since)s, now in %(partition)s at position %(position)s: {effect}",
        source=source,
        count=len(moved_homes),
        quoted=quoted(group),
        earlier=home.partition,
        since=home.position,
        partition=batch.partition,
        position=positions[group],
    )
    if on_move == "follow":
        store.move_homes(source, batch.partition, {group: positions[group] for group in moved_homes})
        return batch
    kept_indices, moved = list[int](), list[MovedRecord]()
    for index, (record, draft) in enumerate(zip(batch.records, batch.drafts, strict=True)):
        place = None if draft.group is None else moved_homes.get(draft.group)
        if place is None or draft.group is None:
            kept_indices.append(index)
        else:
            location = batch.partition, position_json(record.position), *place
            moved.append(MovedRecord(draft.group, *location, queue, msgspec.msgpack.encode(draft)))
    store.save_moved(source, moved, now_ms)
    return replace(
        batch,
        records=[batch.records[index] for index in kept_indices],
        drafts=[batch.drafts[index] for index in kept_indices],
        moved=len(moved),
    )


def draft_of(moved: MovedRecord) -> Draft:
    """Return the message of a group that moved."""
    body, content, *options = msgspec.msgpack.decode(moved.draft)  # msgspec cannot tell text from bytes by a type
    return Draft(body, Content(content), *options)
