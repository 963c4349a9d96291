"""Who sent a request, and what they may do: Signature Version 4, access keys, permissions per queue."""

from inturn.server.auth.keys import Key, allowed, denied, may_use
from inturn.server.auth.region import credential, scoped_region
from inturn.server.auth.replay import Replays
from inturn.server.auth.verifier import Signer, Verifier

__all__ = ["Key", "Replays", "Signer", "Verifier", "allowed", "credential", "denied", "may_use", "scoped_region"]
