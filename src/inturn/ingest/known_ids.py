"""The ids of records of a source without positions, kept for ever: a record that comes again is not sent again."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from inturn.core.errors import InputError
from inturn.core.identity import canonical
from inturn.core.queue.messages import Draft
from inturn.ingest.mapping import MessageMapping
from inturn.ingest.source import Source
from inturn.store.sources import SourceStore


class NewDrafts(NamedTuple):
    """The drafts of a batch, sorted by what is known of their ids.

    Attributes:
        places: the places of the new ones.
        repeated: the number of those that were sent before.
        conflicts: the places of those whose id was used for another message, with that id.
    """

    places: list[int]
    repeated: int
    conflicts: dict[int, str]


def identified(source: Source, mapping: MessageMapping, *, once: bool) -> MessageMapping:
    """Return the mapping, with an id that tells the records of a source without positions apart.

    Raises:
        InputError: if there is nothing that does, and ``once`` is asked for.
    """
    if source.has_positions or mapping.id is not None:
        return mapping
    if source.usual_id is not None:
        return replace(mapping, id=source.usual_id)
    if mapping.revision is None and once:
        raise InputError(
            "the source has no positions, so a record that comes again is known by its id alone, and the mapping has "
            "none; add one, such as id = 'headers.message-id', or a revision, or say once = false"
        )
    return mapping


def sorted_out(sources: SourceStore, source: str, drafts: Sequence[Draft]) -> NewDrafts:
    """Sort drafts, each with an id or a revision, by what is known, and remember the new ones."""
    ids = [draft.dedup_id or canonical([draft.group, draft.revision]) for draft in drafts]
    known = sources.known(source, ids)
    new: dict[str, str] = {}
    found = NewDrafts([], 0, {})
    for place, (id_, draft) in enumerate(zip(ids, drafts, strict=True)):
        digest = _digest(draft)
        before = known.get(id_) or new.get(id_)
        if before is None:
            new[id_] = digest
            found.places.append(place)
        elif before == digest:
            found = found._replace(repeated=found.repeated + 1)
        else:
            found.conflicts[place] = id_
    sources.remember(source, new)
    return found


def _digest(draft: Draft) -> str:
    body = draft.body.encode() if isinstance(draft.body, str) else draft.body
    head = canonical([draft.group, draft.revision]).encode()
    return hashlib.sha256(b"%d %b%b" % (len(head), head, body)).hexdigest()[:32]
