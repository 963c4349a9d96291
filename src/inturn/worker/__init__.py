"""Pipelines in this process, over a durable queue."""

from inturn.worker.worker import Worker, work

__all__ = ["Worker", "work"]
