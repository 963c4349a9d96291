"""The events of a history: the calls of clients with their answers, one line of JSON each.

All times are nanoseconds of one monotonic clock, which the processes of a machine share.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TypeAlias

import msgspec

if TYPE_CHECKING:
    from inturn.queue.message import Message as QueueMessage

OK: Final = "ok"
"""The outcome of a call that was answered."""
UNKNOWN: Final = "unknown"
"""No answer was received: the call may have been carried out, now or later."""
UNASKED: Final = "unasked"
"""The call never reached a server, for example because the connection was refused."""
NEVER: Final = 2**63 - 1
"""The time of an answer that was not received."""


class ClientCall(msgspec.Struct, kw_only=True):
    """A call of a client. If its outcome is neither :data:`OK` nor :data:`UNASKED` it may have been carried out.

    Attributes:
        client: the client, which makes one call after the other.
        asked: the time just before the call.
        answered: the time just after the answer; :data:`NEVER` if the client died before.
        outcome: OK, UNKNOWN, UNASKED, or the name of an error.
    """

    client: str
    asked: int
    answered: int = NEVER
    outcome: str = OK


class SendCall(ClientCall, tag="send", kw_only=True):
    """The send of a message; each message of a batch is one event, in the order of the batch.

    Attributes:
        dedup_id: the message's identity; sends with the same id are the same message.
        group: its group.
        body: its body, or a digest of it.
        number: the sequence number in the answer.
    """

    dedup_id: str
    group: str
    body: str
    number: int | None = None


class ReceivedMessage(msgspec.Struct):
    """A received message; ``handle`` names the lease."""

    number: int
    dedup_id: str
    group: str
    body: str
    handle: str

    @classmethod
    def of(cls, message: "QueueMessage") -> Self:
        """Return a message from inturn's ``Queue.receive``; a message without an id is identified by its number."""
        number = message.sequence_number
        return cls(
            number,
            message.dedup_id or str(number),
            message.group or "",
            str(message.body),
            f"{number}/{message.fencing_token}",
        )


class ReceiveCall(ClientCall, tag="receive", kw_only=True):
    """A receive, with the messages in the order in which they were returned."""

    deliveries: list[ReceivedMessage] = []


class SettleCall(ClientCall, tag="settle", kw_only=True):
    """The acknowledgement of a message (``deletes``), or its nack; each message of a batch is one event."""

    number: int
    handle: str
    deletes: bool = True


class AppliedEffect(ClientCall, tag="apply", kw_only=True):
    """The effect of a message, read from the place where effects are stored, such as a table.

    Attributes:
        dedup_id: the identity of the message.
        group: its group.
        number: its place in the source.
        place: the place of the effect among those of its group.
    """

    dedup_id: str
    group: str
    number: int
    place: int


Event: TypeAlias = SendCall | ReceiveCall | SettleCall | AppliedEffect
_decode = msgspec.json.Decoder(Event).decode


def read(*paths: str | Path) -> list[Event]:
    """Return the events of history files, and of all ``*.jsonl`` in directories.

    A call whose client died before the answer has the outcome UNKNOWN. A torn last line is left out.
    """
    events: list[Event] = []
    for path in map(Path, paths):
        for file in sorted(path.glob("*.jsonl")) if path.is_dir() else [path]:
            events += _calls(file.read_bytes())
    return events


def _calls(data: bytes) -> list[Event]:
    """Return the events of one file; the line with the answer replaces the line that was written before the call."""
    events: list[Event] = []
    begun: dict[tuple[object, ...], int] = {}
    for line in data.split(b"\n")[:-1]:  # what follows the last line feed is empty, or torn
        event = _decode(line)
        identity = event.number if isinstance(event, SettleCall) else getattr(event, "dedup_id", None)
        key = (type(event), event.client, event.asked, identity)
        if event.answered == NEVER and not isinstance(event, AppliedEffect):
            begun[key] = len(events)
            events.append(event)
        elif (position := begun.pop(key, None)) is not None:
            events[position] = event
        else:
            events.append(event)
    return events


def figures(events: Iterable[Event]) -> Counter[str]:
    """Return the number of calls by outcome, of messages, and of repeated sends and deliveries."""
    counts: Counter[str] = Counter()
    acknowledged: set[str] = set()
    received: set[int] = set()
    for event in events:
        verb = event.__struct_config__.tag
        if isinstance(event, SettleCall):
            verb = "delete" if event.deletes else "nack"
        counts[f"{verb} {event.outcome}"] += 1
        if isinstance(event, SendCall) and event.outcome == OK:
            counts["acknowledged again"] += event.dedup_id in acknowledged
            acknowledged.add(event.dedup_id)
        elif isinstance(event, ReceiveCall):
            counts["delivered"] += len(event.deliveries)
            counts["delivered again"] += sum(message.number in received for message in event.deliveries)
            received.update(message.number for message in event.deliveries)
    counts["messages"] = len(acknowledged)
    return counts


def acknowledged(sends: Sequence[SendCall]) -> dict[str, SendCall]:
    """Return the first acknowledged send of each message."""
    acked: dict[str, SendCall] = {}
    for send in sends:
        if send.outcome == OK and send.number is not None:
            acked.setdefault(send.dedup_id, send)
    return acked
