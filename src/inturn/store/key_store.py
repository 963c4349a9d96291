"""The protocol of a store of idempotency keys."""

from typing import Protocol

from inturn.core.idempotency_keys import KeyAnswer, KeyRequest


class KeyStore(Protocol):
    """A store of idempotency keys; the rules are in :mod:`inturn.core.idempotency_keys`."""

    def update_key(self, space: str, key: str, request: KeyRequest, now_ms: int) -> KeyAnswer:
        """Read the record of a key, decide, and write the new record, atomically.

        Args:
            space: namespace; keys of different spaces are different keys.
            key: the key.
            request: the requested change.
            now_ms: the time; ignored by a store with its own clock.
        """
        ...
