"""A host of a topic, to be killed: python kafka_host.py DATABASE SERVERS TOPIC."""

import sys

import inturn
from inturn.ingest import Ingest, KafkaSource, MessageMapping

address, servers, topic = sys.argv[1:]
with inturn.open(address) as db:
    mapping = MessageMapping(group="body.account", revision="body.n")
    source = KafkaSource(servers, topic, options={"fetch.wait.max.ms": 10})
    Ingest(source, db.queue("payments"), mapping, name="kafka", batch=7, lease_s=0.2).run(until="caught up")
