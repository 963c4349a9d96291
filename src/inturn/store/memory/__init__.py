"""Queues and pipelines in memory: the oracle for the other stores."""
