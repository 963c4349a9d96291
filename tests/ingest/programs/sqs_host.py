"""A host of a queue of SQS, to be killed: python sqs_host.py DATABASE QUEUE_URL."""

import sys

import inturn
from inturn.ingest import Ingest, MessageMapping, SqsSource

address, url = sys.argv[1:]
with inturn.open(address) as db:
    source = SqsSource(url, region="us-east-1", visibility_s=1)
    mapping = MessageMapping(revision="body.n")
    Ingest(source, db.queue("payments"), mapping, name="sqs", batch=7, lease_s=0.2).run(until="caught up")
