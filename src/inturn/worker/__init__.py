"""Pipelines in this process, over a durable queue."""

from inturn.worker.runner import Worker, work

__all__ = ["Worker", "work"]
