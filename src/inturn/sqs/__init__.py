"""An HTTP endpoint that serves the queues of a database with the SQS API."""
