"""Deduplication of sends.

The producer's id identifies a message. In a queue with ``content_dedup``, a message without an id is identified by the
SHA-256 of its body alone. An id is remembered for the queue's window from the first send on, whatever happens to the
message in the meantime. A send with the same id within the window returns the first message's sequence number. These
are the rules of SQS's FIFO queues (its API documentation, "MessageDeduplicationId"), plus an infinite window.
"""

import hashlib
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from inturn.core.queue.messages import Draft, QueueSettings, Sent

DedupKey: TypeAlias = tuple[str, str]
"""A deduplication scope and the id within it."""


class RememberedSend(NamedTuple):
    """A sent message that a later send may duplicate.

    Attributes:
        sequence_number: sequence number of the first send.
        until_ms: end of the deduplication window; None: forever.
        revision: revision of the first message, if it had one.
    """

    sequence_number: int
    until_ms: int | None
    revision: int | None = None


def known_by(draft: Draft, settings: QueueSettings) -> DedupKey | None:
    """Return a message's deduplication scope and id, or None if it cannot duplicate another."""
    dedup_id = draft.dedup_id
    if dedup_id is None:
        if not settings.content_dedup:
            return None
        body = draft.body.encode() if isinstance(draft.body, str) else draft.body
        dedup_id = hashlib.sha256(body).hexdigest()
    return (draft.group or "" if settings.dedup_scope == "group" else "", dedup_id)


def is_same(remembered: RememberedSend | None, now_ms: int) -> bool:
    """Return whether a send with the same scope and id is a duplicate of the remembered message."""
    return remembered is not None and (remembered.until_ms is None or remembered.until_ms > now_ms)


def remembered(sequence_number: int, settings: QueueSettings, now_ms: int) -> RememberedSend:
    """Return the record of a message that was just sent."""
    window = settings.dedup_window_ms
    return RememberedSend(sequence_number, None if window is None else now_ms + window)


def numbered(
    keys: Iterable[DedupKey | None],
    find: Callable[[DedupKey], RememberedSend | None],
    last: int,
    settings: QueueSettings,
    now_ms: int,
) -> tuple[list[Sent], dict[DedupKey, RememberedSend]]:
    """Return a number for each of the messages sent together: the next one, or that of the message it duplicates.

    Args:
        keys: what :func:`known_by` says of each message, in order.
        find: returns what is remembered of a key.
        last: the last number given out.
        settings: settings of the queue.
        now_ms: current time.

    Returns:
        The result for each message, and what is to be remembered.
    """
    sent: list[Sent] = []
    new: dict[DedupKey, RememberedSend] = {}
    for key in keys:
        if key is not None:
            first = new.get(key) or find(key)
            if first is not None and is_same(first, now_ms):
                sent.append(Sent(first.sequence_number, duplicate=True, revision=first.revision))
                continue
            new[key] = remembered(last + 1, settings, now_ms)
        last += 1
        sent.append(Sent(last, duplicate=False))
    return sent, new
