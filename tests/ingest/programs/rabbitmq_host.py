"""A host of a queue of RabbitMQ, to be killed: python rabbitmq_host.py DATABASE URL QUEUE."""

import sys

import inturn
from inturn.ingest import Ingest, MessageMapping, RabbitSource

address, url, queue = sys.argv[1:]
with inturn.open(address) as db:
    mapping = MessageMapping(group="headers.account", revision="headers.n", id="headers.message-id")
    source = RabbitSource(url, queue, prefetch=20)
    Ingest(source, db.queue("payments"), mapping, name="rabbit", batch=7, lease_s=0.2).run(until="caught up")
