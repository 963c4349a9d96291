"""Handlers with side effects, over a durable queue."""

from inturn.consumer.consumer import Consumer, consume
from inturn.consumer.unit_of_work import ConsumedCounts

__all__ = ["ConsumedCounts", "Consumer", "consume"]
