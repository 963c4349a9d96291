"""Pipelines in this process, over a durable queue."""

from inturn.worker.chain import ToQueue
from inturn.worker.run import work
from inturn.worker.worker import Worker

__all__ = ["ToQueue", "Worker", "work"]
