"""Access keys, and what each of them may do: a pure decision, apart from how a request proves whose it is."""

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from inturn.server.errors import SqsError, access_denied


@dataclass(frozen=True)
class Key:
    """An access key.

    Attributes:
        id: its public name, as in ``AKIAIOSFODNN7EXAMPLE``.
        secret: what requests are signed with; it is not shown by ``repr``.
        queues: patterns of the names of queues that it may use: ``*``, ``?`` and ``[…]`` as in file names.
        actions: patterns of the actions that it may do, as in ``Send*``, whatever their case.
        account: the number of the account that it belongs to; "" where there is but one.
        admin: whether it may do :data:`ADMIN_ACTIONS` with every queue, whatever patterns and policies say.
    """

    id: str
    secret: str = field(repr=False)
    queues: tuple[str, ...] = ("*",)
    actions: tuple[str, ...] = ("*",)
    account: str = ""
    admin: bool = False


ADMIN_ACTIONS: Final = frozenset(("AddPermission", "GetQueueAttributes", "RemovePermission", "SetQueueAttributes"))
"""What is needed to mend a policy that locks everybody out."""


def permission(action: str) -> str:
    """The permission that an action needs: that of a batch is that of its single form, as with IAM.

    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-api-permissions-reference.html
    """
    return action.removesuffix("Batch")


def allowed(key: Key, action: str, queue: str | None) -> bool:
    """Whether a key may do an action.

    Args:
        key: whose request it is.
        action: as in ``SendMessage``.
        queue: the name of the queue; None for an action that is about none, ``ListQueues``: then only the action is
            looked at, and each queue of the answer is asked for by its name.
    """
    names = {action.lower(), permission(action).lower()}
    if key.admin and action in ADMIN_ACTIONS:
        return True
    may_do = any(fnmatchcase(name, pattern.lower().removeprefix("sqs:")) for name in names for pattern in key.actions)
    return may_do and (queue is None or any(fnmatchcase(queue, pattern) for pattern in key.queues))


def denied(key: Key, action: str, arn: str, account: str, why: str = "") -> SqsError:
    """What a key is told that may not do an action.

    Args:
        key: whose request it was.
        action: as in ``SendMessage``.
        arn: of the queue, or of all queues of the account.
        account: the number of the account.
        why: why not, if it is a policy that says so.
    """
    return access_denied(
        f"User: arn:aws:iam::{account}:user/{key.id} is not authorized to perform: "
        f"sqs:{permission(action).lower()} on resource: {arn}{why}"
    )
