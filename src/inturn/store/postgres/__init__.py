"""Queues in a PostgreSQL database, for any number of processes on any number of machines."""
