"""Consumes a queue with rate limits; prints the time, by the store's clock, at which each message was received."""

import json
import sys

import inturn
from inturn import Rate
from inturn.queue import Message

address, overall, group, burst = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
received = []


def note(message: Message) -> None:
    lease_ms = 30_000
    received.append((round(message.leased_until.timestamp() * 1000) - lease_ms, message.group, message.body))


with inturn.open(address, durable=False) as db:
    inturn.consume(
        db.queue("q", create=False),
        note,
        rate_limit=Rate(overall, "1 second", burst=burst) if overall else None,
        group_rate_limit=Rate(group, "1 second") if group else None,
        until="empty",
    )
print(json.dumps(received))
