"""A worker that delivers its outputs to a topic, to be killed: python kafka_worker.py DATABASE SERVERS TOPIC."""

import sys

import inturn
from inturn import deliver
from inturn.core import limits

LEDGER = inturn.Pipeline(
    name="ledger",
    group="account",
    order=inturn.Gapless("revision"),
    handler=lambda state, message: (state, [{"account": message["account"], "n": message["revision"]}]),
)

if __name__ == "__main__":
    limits.OUTBOX_LEASE_S = 0.3  # type: ignore[misc] # the next life need not wait long for this one's claims
    path, servers, topic = sys.argv[1:]
    with inturn.open(path) as db:
        inturn.work(LEDGER, db.queue("payments"), deliver=deliver.kafka(servers, topic, key="account"), until="empty")
