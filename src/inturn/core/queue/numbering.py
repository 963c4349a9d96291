"""Numbering: revisions that the queue assigns to the messages of a group, without gaps.

The memory store runs these rules; every other store is tested against it:

1. A message sent with ``revision="next"`` gets its group's last revision plus one. A group's numbering begins with 1,
   unless another beginning was set before.
2. The last revision is stored in the transaction of the send. So an abort or a crash leaves no hole, and the order of
   the revisions is that of the sequence numbers.
3. A duplicate gets no revision. Its answer has the revision of the first message, whatever last revision it expects.
4. A send with an expected revision is refused if the group's last revision is another; the last revision of a group
   without numbering is 0.
5. In a group that the queue numbers, a revision assigned by a producer is refused. A message without one is accepted.
6. The last revision outlives the messages, and a purge. Only the removal of the queue removes it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from inturn.core import limits
from inturn.core.errors import InputError, RevisionMismatch
from inturn.core.queue.deduplication import DedupKey, RememberedSend
from inturn.core.queue.messages import Draft, Sent

_sent: Final[Callable[[tuple[Any, ...]], Sent]] = partial(tuple.__new__, Sent)  # half the cost of the constructor


def groups_to_look_up(drafts: Iterable[Draft]) -> list[str]:
    """Return the groups whose last revisions are needed for these drafts, in order of name."""
    selected = (draft for draft in drafts if draft.numbering is not None or draft.revision is not None)
    return sorted({draft.group for draft in selected if draft.group is not None})


def are_numbered(drafts: Iterable[Draft]) -> bool:
    """Return whether the queue is to number any of these messages."""
    return any(draft.numbering is not None for draft in drafts)


def numbered(
    drafts: Sequence[Draft], sent: Iterable[tuple[int, bool, int | None]], last: Mapping[str, int | None]
) -> tuple[list[Sent], dict[str, int]]:
    """Return the results of messages sent together, with their revisions, and the new last revisions.

    Args:
        drafts: the messages.
        sent: the result for each, as a ``Sent`` or a plain tuple.
        last: the last revisions of the groups that have one.

    Raises:
        RevisionMismatch: if a message expects another last revision of its group.
        InputError: if a producer assigns a revision in a group that the queue numbers, or no revision is left.
    """
    new: dict[str, int] = {}
    answers: list[Sent] = []
    for draft, (number, is_duplicate, first) in zip(drafts, sent, strict=True):
        revision = first
        if is_duplicate:
            if first is None:  # the first may be among these
                revision = next((answer.revision for answer in answers if answer.sequence_number == number), None)
        elif draft.numbering is not None:
            group = draft.group or ""
            before = new[group] if group in new else last.get(group) or 0
            expected = draft.numbering.expected
            if (expected is not None and expected != before) or before >= limits.REVISION - 1:
                raise _refusal(expected, before, group)
            revision = new[group] = before + 1
        else:
            revision = draft.revision
            if revision is not None:
                _check_given(revision, draft.group, new, last)
        answers.append(_sent((number, is_duplicate, revision)))
    return answers, new


def begun(last: int | None, revision: int, group: str) -> int:
    """Return the last revision of a group whose next one is to be ``revision``.

    Raises:
        RevisionMismatch: if the group is already numbered, and its next revision is another.
    """
    if last is not None and last + 1 != revision:
        raise RevisionMismatch(
            f"the queue already numbers the group {group!r}: its last revision is {last}, not {revision - 1}",
            revision - 1,
            last,
        )
    return revision - 1


def with_revisions(new: Mapping[DedupKey, RememberedSend], sent: Iterable[Sent]) -> dict[DedupKey, RememberedSend]:
    """Return the deduplication records of new messages, with their revisions."""
    revisions = {message.sequence_number: message.revision for message in sent if not message.duplicate}
    return {key: answer._replace(revision=revisions.get(answer.sequence_number)) for key, answer in new.items()}


def _refusal(expected: int | None, last: int, group: str) -> RevisionMismatch | InputError:
    if expected is not None and expected != last:
        return RevisionMismatch(
            f"expected_revision is {expected}, but the last revision given to the group {group!r} is {last}, for "
            "example since another producer has sent; read the group again",
            expected,
            last,
        )
    return InputError(f"the group {group!r} has no revisions left: its last revision is {last}; use another group")


def _check_given(revision: int, group: str | None, *lasts: Mapping[str, int | None]) -> None:
    for last in lasts:
        if group is not None and (assigned := last.get(group)) is not None:
            raise InputError(
                f"revision is {revision}, but the queue assigns the revisions of the group {group!r}: its last "
                f"revision is {assigned}; send with revision='next'"
            )
