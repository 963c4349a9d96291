"""The ids of records of a source without positions, stored for ever: a repeated record is not sent again."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from inturn.core.errors import InputError
from inturn.core.identity import canonical
from inturn.core.queue.messages import Draft
from inturn.core.texts import quoted
from inturn.ingest.mapping import MessageMapping
from inturn.ingest.source import Source
from inturn.store.sources import SourceStore


class DraftComparison(NamedTuple):
    """The drafts of a batch, sorted by their ids.

    Attributes:
        new_indices: the indices of the new drafts.
        repeated: the number of drafts that were already sent.
        conflicts: the indices of drafts whose id was used for another message, with that id.
    """

    new_indices: list[int]
    repeated: int
    conflicts: dict[int, str]


def with_id(source: Source | type[Source], mapping: MessageMapping, *, once: bool) -> MessageMapping:
    """Return the mapping, with an id that identifies the records of a source without positions.

    Raises:
        InputError: if there is no such id, and ``once`` is true.
    """
    if source.has_positions or mapping.id is not None:
        return mapping
    if source.default_id is not None:
        return replace(mapping, id=source.default_id)
    if mapping.revision is None and once:
        raise InputError(
            "the source has no positions, so a repeated record is recognized by an id alone, but the mapping has "
            "neither id nor revision; set id, such as id = 'headers.message-id', or revision, or set once = false"
        )
    return mapping


def compare_and_remember(sources: SourceStore, source: str, drafts: Sequence[Draft]) -> DraftComparison:
    """Sort drafts, each with an id or a revision, by the stored ids, and store the new ids."""
    comparison, new_digests = compare_ids(sources.known_ids(source, ids_of(drafts)), drafts)
    sources.save_ids(source, new_digests)
    return comparison


def ids_of(drafts: Sequence[Draft]) -> list[str]:
    """Return the ids by which drafts are recognized."""
    return [draft.dedup_id or canonical([draft.group, draft.revision]) for draft in drafts]


def compare_ids(known_digests: Mapping[str, str], drafts: Sequence[Draft]) -> tuple[DraftComparison, dict[str, str]]:
    """Return the drafts sorted by the known digests, by id, and the digests of the new drafts."""
    new_digests: dict[str, str] = {}
    comparison = DraftComparison([], 0, {})
    for index, (id_, draft) in enumerate(zip(ids_of(drafts), drafts, strict=True)):
        digest = _digest(draft)
        known = known_digests.get(id_) or new_digests.get(id_)
        if known is None:
            new_digests[id_] = digest
            comparison.new_indices.append(index)
        elif known == digest:
            comparison = comparison._replace(repeated=comparison.repeated + 1)
        else:
            comparison.conflicts[index] = id_
    return comparison, new_digests


def conflict_reason(id_: str) -> str:
    """Return the reason for rejecting a record whose id another message has."""
    return f"the id {quoted(id_)} was already used for another message"


def _digest(draft: Draft) -> str:
    body = draft.body.encode() if isinstance(draft.body, str) else draft.body
    head = canonical([draft.group, draft.revision]).encode()
    return hashlib.sha256(b"%d %b%b" % (len(head), head, body)).hexdigest()[:32]
