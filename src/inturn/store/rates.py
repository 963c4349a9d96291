"""Receives within rate limits, over any SQL store: messages that may not begin yet are hidden until they may."""

import hashlib
from typing import Any, Final, NamedTuple, cast

from inturn.core.queue.delivery import SettleAction, Settlement
from inturn.core.queue.messages import Delivery, QueueInfo, ReceiveRequest
from inturn.core.rate import Rate, RateLimits
from inturn.store.protocols import RateStore, Store

_ALL: Final = ""
"""The key of all messages of a queue."""


class ReceivedWithin(NamedTuple):
    """The result of a receive within rate limits.

    Attributes:
        deliveries: the messages that may begin now.
        is_more: whether a receive at once may find more; if not, ``queue.due_ms`` is when one may.
        is_stopped: whether the rate of all messages is used up, so that no message was searched.
    """

    deliveries: list[Delivery]
    is_more: bool = False
    is_stopped: bool = False


def receive_within(
    store: Store, queue: QueueInfo, request: ReceiveRequest, rates: RateLimits, now_ms: int
) -> ReceivedWithin:
    """Lease messages that may begin now, at most one of each group."""
    now_us, limit = now_ms * 1000, request.limit
    points: RateStore = cast("Any", store).rates
    next_us = points.read(queue, [_ALL]).get(_ALL, 0) if rates.overall else 0
    if rates.overall:
        limit = min(limit, rates.overall.free(next_us, now_us))
        if limit <= 0:
            if rates.overall.is_astray(next_us, now_us):
                points.save(queue, {_ALL: rates.overall.after(next_us, now_us, 0)}, now_us)
            queue.due_ms = -(-rates.overall.free_us(next_us, now_us) // 1000)
            return ReceivedWithin([], is_stopped=True)
    parts = store.receive(queue, [request._replace(limit=1)] * limit, now_ms)
    allowed = received = [delivery for part in parts for delivery in part]
    if rates.group:
        allowed = _within(store, queue, received, rates.group, now_ms)
    if rates.overall and allowed:
        points.save(queue, {_ALL: rates.overall.after(next_us, now_us, len(allowed))}, now_us)
    return ReceivedWithin(allowed, len(received) == limit)


def _within(store: Store, queue: QueueInfo, received: list[Delivery], rate: Rate, now_ms: int) -> list[Delivery]:
    """Return messages whose groups may begin one now; return the others to the queue without counting an attempt."""
    now_us = now_ms * 1000
    points: RateStore = cast("Any", store).rates
    keys = {
        delivery.message.group: _key(delivery.message.group)
        for delivery in received
        if delivery.message.group is not None
    }
    known = points.read(queue, list(keys.values())) if keys else {}
    allowed, back, changed = [], [], {}
    for delivery in received:
        group = delivery.message.group
        next_us = 0 if group is None else known.get(keys[group], 0)
        if group is None or rate.free(next_us, now_us) > 0:
            allowed.append(delivery)
            if group is not None:
                changed[keys[group]] = rate.after(next_us, now_us, 1)
            continue
        if rate.is_astray(next_us, now_us):
            changed[keys[group]] = rate.after(next_us, now_us, 0)
        wait_ms = -(-(rate.free_us(next_us, now_us) - now_us) // 1000)
        number, attempts = delivery.message.sequence_number, delivery.attempts - 1
        back.append(Settlement(number, delivery.token, SettleAction.NACK, wait_ms, attempts=attempts))
    if changed:
        points.save(queue, changed, now_us)
    if back:
        store.settle(queue, back, now_ms)
    return allowed


def _key(group: str) -> str:
    return hashlib.sha256(group.encode()).hexdigest()[:32]
