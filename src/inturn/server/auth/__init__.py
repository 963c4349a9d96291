"""Authentication and authorisation: Signature Version 4, access keys, permissions per queue, policies."""

from inturn.server.auth.keys import ADMIN_ACTIONS, Key, allowed, denied, permission
from inturn.server.auth.policy import PolicyError
from inturn.server.auth.replay import Replays
from inturn.server.auth.verifier import Signer, Verifier

__all__ = [
    "ADMIN_ACTIONS",
    "Key",
    "PolicyError",
    "Replays",
    "Signer",
    "Verifier",
    "allowed",
    "denied",
    "permission",
]
