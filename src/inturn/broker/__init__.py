"""Turns for the tasks of one process: grouped, bounded, in order; docs/broker.md."""

from inturn.broker.broker import QueueBroker, Turn
from inturn.broker.task import Task

__all__ = ["QueueBroker", "Task", "Turn"]
