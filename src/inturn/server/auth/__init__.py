"""Who sent a request, and what they may do: Signature Version 4, access keys, permissions per queue, policies."""

from inturn.server.auth.keys import ADMIN_ACTIONS, Key, account_of, allowed, denied, permission
from inturn.server.auth.policy import PolicyError
from inturn.server.auth.replay import Replays
from inturn.server.auth.verifier import Verifier

__all__ = [
    "ADMIN_ACTIONS",
    "Key",
    "PolicyError",
    "Replays",
    "Verifier",
    "account_of",
    "allowed",
    "denied",
    "permission",
]
