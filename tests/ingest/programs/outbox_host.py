"""A host of an outbox table, to be killed: python outbox_host.py DATABASE OUTBOX DELETE."""

import sys

import inturn
from inturn.ingest import Ingest, MessageMapping, OutboxSource

address, outbox, deletes = sys.argv[1:]
with inturn.open(address) as db:
    mapping = MessageMapping(group="body.account", revision="body.n")
    source = OutboxSource(outbox, "outbox", delete=deletes == "delete")
    Ingest(source, db.queue("payments"), mapping, name="outbox", batch=7, lease_s=0.2).run(until="caught up")
