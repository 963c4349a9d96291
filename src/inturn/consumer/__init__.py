"""Handlers with side effects, over a durable queue."""

from inturn.consumer.consumer import Consumer, consume
from inturn.consumer.rounds import ConsumedCounts

__all__ = ["ConsumedCounts", "Consumer", "consume"]
