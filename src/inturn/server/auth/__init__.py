"""Who sent a request, and what they may do: Signature Version 4, access keys, permissions per queue."""

from inturn.server.auth.keys import Key, allowed, denied
from inturn.server.auth.replay import Replays
from inturn.server.auth.verifier import Verifier

__all__ = ["Key", "Replays", "Verifier", "allowed", "denied"]
