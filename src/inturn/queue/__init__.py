"""Queues, their messages, sessions, and readers over everything that was sent."""

from inturn.core.queue.messages import QueueSettings
from inturn.queue.drafts import draft
from inturn.queue.message import Message, Peeked, Receipt
from inturn.queue.queue import Queue
from inturn.queue.reader import Reader
from inturn.queue.session import Session

__all__ = ["Message", "Peeked", "Queue", "QueueSettings", "Reader", "Receipt", "Session", "draft"]
