"""Authentication and authorisation: Signature Version 4, access keys, permissions per queue, policies."""

from inturn.sqs.auth.keys import ADMIN_ACTIONS, Key, allowed, denied, permission
from inturn.sqs.auth.policy import PolicyError
from inturn.sqs.auth.replay import ReplayGuard
from inturn.sqs.auth.verifier import Signer, Verifier

__all__ = [
    "ADMIN_ACTIONS",
    "Key",
    "PolicyError",
    "ReplayGuard",
    "Signer",
    "Verifier",
    "allowed",
    "denied",
    "permission",
]
