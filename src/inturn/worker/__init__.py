"""Pipelines in this process, over a durable queue."""

from inturn.worker.chain import To
from inturn.worker.run import work
from inturn.worker.worker import Worker

__all__ = ["To", "Worker", "work"]
