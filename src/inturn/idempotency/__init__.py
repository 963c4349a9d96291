"""Idempotency keys: what a key stands for is run once, and duplicates are told; docs/idempotency.md."""

from inturn.idempotency.keys import Completed, IdempotencyKeys, InProgress, Locked
from inturn.idempotency.memory import MemoryKeys
from inturn.idempotency.redis import RedisKeys
from inturn.idempotency.wrapper import idempotent

__all__ = ["Completed", "IdempotencyKeys", "InProgress", "Locked", "MemoryKeys", "RedisKeys", "idempotent"]
