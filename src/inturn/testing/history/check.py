"""The check of a history: all anomalies, each with the shortest events that prove it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from inturn.testing.history import rules
from inturn.testing.history.anomaly import Anomaly, AnomalyKind
from inturn.testing.history.events import UNASKED, AppliedEffect, Event, ReceiveCall, SendCall, SettleCall

_SHOWN: Final = 10


def check(
    events: Iterable[Event],
    *,
    visibility_s: float | None = None,
    slack_s: float = 0.05,
    is_drained: bool = True,
    is_total: bool = False,
) -> list[Anomaly]:
    """Return the anomalies of a history; none if a correct queue could have produced it.

    Args:
        events: the events, those of each client in its order.
        visibility_s: the length of a lease, in seconds; None: leases are not checked.
        slack_s: the maximum by which the queue's clock is ahead of the clients' clock, in seconds.
        is_drained: whether the queue was empty at the end, so that a message that was never delivered is lost.
        is_total: whether sequence numbers follow the order of sends in the whole queue, as inturn's do, and not only
            within a group, as those of SQS.
    """
    lease_ns = None if visibility_s is None else round((visibility_s - slack_s) * 1e9)
    anomalies = list(_anomalies(list(events), lease_ns, is_drained=is_drained, is_total=is_total))
    return [_minimized(anomaly, lease_ns, is_total=is_total) for anomaly in anomalies]


def check_or_raise(
    events: Iterable[Event],
    *,
    visibility_s: float | None = None,
    slack_s: float = 0.05,
    is_drained: bool = True,
    is_total: bool = False,
) -> None:
    """Check a history as :func:`check` does.

    Raises:
        AssertionError: if there is an anomaly; the text contains the worst ten, each with its events.
    """
    anomalies = check(events, visibility_s=visibility_s, slack_s=slack_s, is_drained=is_drained, is_total=is_total)
    if anomalies:
        kinds = list(AnomalyKind)
        anomalies.sort(key=lambda anomaly: (kinds.index(anomaly.kind), len(anomaly.events)))
        rest = f"\n… and {len(anomalies) - _SHOWN} more" if len(anomalies) > _SHOWN else ""
        raise AssertionError("\n".join(str(anomaly) for anomaly in anomalies[:_SHOWN]) + rest)


def _anomalies(events: Sequence[Event], lease_ns: int | None, *, is_drained: bool, is_total: bool) -> Iterator[Anomaly]:
    sends = [event for event in events if isinstance(event, SendCall)]
    receives = [event for event in events if isinstance(event, ReceiveCall)]
    settles = [event for event in events if isinstance(event, SettleCall) and event.outcome != UNASKED]
    effects = [event for event in events if isinstance(event, AppliedEffect)]
    yield from rules.one_message_for_each_id(sends, receives)
    yield from rules.numbers_in_the_order_of_sends(sends, is_total=is_total)
    yield from rules.delivered_as_sent(sends, receives)
    if is_drained:
        yield from rules.nothing_is_lost(sends, receives, effects)
    yield from rules.groups_in_order(receives, settles)
    yield from rules.deleted_stays_deleted(receives, settles)
    if lease_ns is not None:
        yield from rules.one_holder_of_a_group(receives, settles, lease_ns)
    yield from rules.effects_in_order_and_once(effects)


def _minimized(anomaly: Anomaly, lease_ns: int | None, *, is_total: bool) -> Anomaly:
    """Return the anomaly without the events, and the messages within receives, that its proof does not need."""

    def is_proof(events: Sequence[Event]) -> bool:
        remaining = _anomalies(events, lease_ns, is_drained=anomaly.kind is AnomalyKind.LOST, is_total=is_total)
        return any((other.kind, other.text) == (anomaly.kind, anomaly.text) for other in remaining)

    events = _without(anomaly.events, is_proof)
    for index, event in enumerate(events):
        if isinstance(event, ReceiveCall):
            events[index] = _with_fewer(
                event,
                lambda fewer, index=index: is_proof([*events[:index], fewer, *events[index + 1 :]]),  # type: ignore[misc]
            )
    return Anomaly(anomaly.kind, anomaly.text, tuple(events))


def _without(events: Sequence[Event], is_proof: Callable[[Sequence[Event]], bool]) -> list[Event]:
    remaining = list(events)
    for event in events:
        fewer = [other for other in remaining if other is not event]
        if is_proof(fewer):
            remaining = fewer
    return remaining


def _with_fewer(receive: ReceiveCall, is_proof: Callable[[ReceiveCall], bool]) -> ReceiveCall:
    for message in list(receive.deliveries):
        remaining = [delivery for delivery in receive.deliveries if delivery is not message]
        fewer = ReceiveCall(
            client=receive.client,
            asked=receive.asked,
            answered=receive.answered,
            outcome=receive.outcome,
            deliveries=remaining,
        )
        if is_proof(fewer):
            receive = fewer
    return receive
