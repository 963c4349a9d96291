"""When a send is the same message again.

A message is known by the id that the producer gives; in a queue with ``content_dedup`` one without an id is known by
the SHA-256 of its body, of nothing else. An id is remembered for the queue's window from the first send on, whatever
becomes of the message meanwhile; the same id within the window is answered with the first message's sequence number.
These are the rules of SQS's FIFO queues (its API documentation, "MessageDeduplicationId"), and a window without end.
"""

import hashlib
from typing import NamedTuple

from inturn.core.envelope import Draft, QueueSettings


class Remembered(NamedTuple):
    """A message that a later one may be the same as.

    Attributes:
        sequence_number: of the first.
        until_ms: how long it is remembered; None: for ever.
    """

    sequence_number: int
    until_ms: int | None


def known_by(draft: Draft, settings: QueueSettings) -> tuple[str, str] | None:
    """What a message is known by: its scope and its id; None if nothing could make it the same as another."""
    dedup_id = draft.dedup_id
    if dedup_id is None:
        if not settings.content_dedup:
            return None
        body = draft.body.encode() if isinstance(draft.body, str) else draft.body
        dedup_id = hashlib.sha256(body).hexdigest()
    return (draft.group or "" if settings.dedup_scope == "group" else "", dedup_id)


def is_same(remembered: Remembered | None, now_ms: int) -> bool:
    """Whether a message that is known by the same is this one again."""
    return remembered is not None and (remembered.until_ms is None or remembered.until_ms > now_ms)


def remembered(sequence_number: int, settings: QueueSettings, now_ms: int) -> Remembered:
    """A message that has just been sent."""
    window = settings.dedup_window_ms
    return Remembered(sequence_number, None if window is None else now_ms + window)
