"""The rules of a queue: its messages, who receives next, leases, sessions, deduplication."""
