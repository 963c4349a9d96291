"""The queues of a database over HTTP, spoken to as SQS is."""
