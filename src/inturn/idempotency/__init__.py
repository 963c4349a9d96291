"""Idempotency keys: the work behind a key runs once, and duplicates are recognised; see docs/idempotency.md."""

from inturn.idempotency.asgi import IdempotencyMiddleware, KeyedRequest
from inturn.idempotency.keys import Completed, IdempotencyKeys, InProgress, Locked
from inturn.idempotency.memory import MemoryKeys
from inturn.idempotency.redis import RedisKeys
from inturn.idempotency.responses import StoredResponse
from inturn.idempotency.wrapper import idempotent

__all__ = [
    "Completed",
    "IdempotencyKeys",
    "IdempotencyMiddleware",
    "InProgress",
    "KeyedRequest",
    "Locked",
    "MemoryKeys",
    "RedisKeys",
    "StoredResponse",
    "idempotent",
]
