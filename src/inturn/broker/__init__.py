"""Turns for the tasks of one process: grouped, bounded, in order; docs/broker.md."""

from inturn.broker.broker import QueueBroker
from inturn.broker.task import Task
from inturn.broker.turn import Turn

__all__ = ["QueueBroker", "Task", "Turn"]
