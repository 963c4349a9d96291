"""Where queues are kept: one protocol, one store for every database."""
