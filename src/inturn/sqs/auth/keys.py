"""Access keys and their permissions: a pure decision, separate from the verification of signatures."""

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from inturn.sqs.errors import SqsError, access_denied


@dataclass(frozen=True)
class Key:
    """An access key.

    Attributes:
        id: its public name, as in ``AKIAIOSFODNN7EXAMPLE``.
        secret: the signing secret; not shown by ``repr``.
        queues: patterns of the names of permitted queues: ``*``, ``?`` and ``[…]`` as in file names.
        actions: patterns of permitted actions, as in ``Send*``, in any case.
        account: the number of the key's account; "" where there is only one.
        admin: whether it may do :data:`ADMIN_ACTIONS` with every queue, whatever patterns and policies say.
    """

    id: str
    secret: str = field(repr=False)
    queues: tuple[str, ...] = ("*",)
    actions: tuple[str, ...] = ("*",)
    account: str = ""
    admin: bool = False


ADMIN_ACTIONS: Final = frozenset(("AddPermission", "GetQueueAttributes", "RemovePermission", "SetQueueAttributes"))
"""The actions needed to repair a policy that locks out all keys."""


def permission(action: str) -> str:
    """Return the permission that an action needs: a batch needs that of its single form, as with IAM.

    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-api-permissions-reference.html
    """
    return action.removesuffix("Batch")


def allowed(key: Key, action: str, queue: str | None) -> bool:
    """Return whether a key may perform an action.

    ``ListQueues`` concerns no single queue: for None only the action is checked.
    """
    names = {action.lower(), permission(action).lower()}
    if key.admin and action in ADMIN_ACTIONS:
        return True
    may_do = any(fnmatchcase(name, pattern.lower().removeprefix("sqs:")) for name in names for pattern in key.actions)
    return may_do and (queue is None or any(fnmatchcase(queue, pattern) for pattern in key.queues))


def denied(key: Key, action: str, arn: str, account: str, reason: str = "") -> SqsError:
    """Return the error for a key that may not perform an action; ``why`` ends the text if a policy is the reason."""
    return access_denied(
        f"User: arn:aws:iam::{account}:user/{key.id} is not authorized to perform: "
        f"sqs:{permission(action).lower()} on resource: {arn}{reason}"
    )
