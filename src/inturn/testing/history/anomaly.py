"""An anomaly of a history: its kind, a sentence, and the events that prove it."""

from dataclasses import dataclass
from enum import StrEnum

from inturn.testing.history.events import NEVER, OK, AppliedEffect, Event, ReceiveCall, SendCall


class AnomalyKind(StrEnum):
    """The kinds of anomaly, the worst first."""

    LOST = "lost"
    """An acknowledged message was never delivered, or never applied."""
    TWICE = "twice"
    """A message was delivered again after its acknowledgement, or applied again."""
    OVERTAKEN = "overtaken"
    """A message was delivered, or applied, before its predecessor in the group was done."""
    TWO_HOLDERS = "two holders"
    """Two receivers had messages of one group at the same time."""
    DEDUP = "dedup broken"
    """One deduplication id became two messages."""
    TOTAL_ORDER = "total order broken"
    """Sequence numbers contradict the order of the sends, or one number names two messages."""
    CHANGED = "changed"
    """A delivered message differs from the sent one, or was never sent."""


@dataclass(frozen=True)
class Anomaly:
    """An anomaly; ``str`` returns the sentence and the events.

    Attributes:
        kind: the kind.
        text: the violation, in one sentence.
        events: the shortest counterexample: events that prove the anomaly only together. For a missing message it is
            only its send.
    """

    kind: AnomalyKind
    text: str
    events: tuple[Event, ...] = ()

    def __str__(self) -> str:
        """Return the sentence and, below it, the events in the order of time."""
        began = min((event.asked for event in self.events), default=0)
        lines = [_line(event, began) for event in sorted(self.events, key=lambda event: event.asked)]
        return "\n".join([f"{self.kind}: {self.text}", *lines])


def _line(event: Event, began: int) -> str:
    since = f"{(event.asked - began) / 1e9:.3f}"
    until = "never" if event.answered == NEVER else f"{(event.answered - began) / 1e9:.3f}"
    if isinstance(event, SendCall):
        act = f"send {event.dedup_id} to {event.group}: {_answer(event, f'number {event.number}')}"
    elif isinstance(event, ReceiveCall):
        deliveries = (
            ", ".join(f"{delivery.dedup_id} ({delivery.group} {delivery.number})" for delivery in event.deliveries)
            or "nothing"
        )
        act = f"receive: {_answer(event, deliveries)}"
    elif isinstance(event, AppliedEffect):
        act = f"apply {event.dedup_id} ({event.group} {event.number}) at place {event.place}"
    else:
        verb = "delete" if event.deletes else "nack"
        act = f"{verb} {event.number}: {_answer(event, 'done')}"
    return f"  {since} to {until} s  {event.client}  {act}"


def _answer(event: Event, done: str) -> str:
    return done if event.outcome == OK else event.outcome
