"""Destinations: ready-made functions for ``deliver=``, each with the effect id as idempotency key.

inturn.work(ledger, payments, deliver=deliver.http("https://bank.example.org/postings", secret="whsec_…"))
"""

from inturn.deliver.http_sink import http
from inturn.deliver.kafka_sink import kafka
from inturn.deliver.rabbitmq_sink import rabbitmq
from inturn.deliver.sqs_sink import sqs
from inturn.deliver.table_sink import table

__all__ = ["http", "kafka", "rabbitmq", "sqs", "table"]
