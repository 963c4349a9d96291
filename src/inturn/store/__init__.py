"""Storage of queues: one protocol, and one store for each kind of database."""
