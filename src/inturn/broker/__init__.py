"""An in-process broker for asyncio tasks: grouped, bounded and in order; see docs/broker.md."""

from inturn.broker.broker import QueueBroker
from inturn.broker.task import Slot, Task

__all__ = ["QueueBroker", "Slot", "Task"]
