"""The pipeline in this process, over a durable queue."""

from inturn.worker.work import Worker, work

__all__ = ["Worker", "work"]
