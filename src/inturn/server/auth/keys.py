"""Access keys, and what each of them may do: a pure decision, apart from how a request proves whose it is."""

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

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
    """

    id: str
    secret: str = field(repr=False)
    queues: tuple[str, ...] = ("*",)
    actions: tuple[str, ...] = ("*",)
    account: str = ""


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
    may_do = any(fnmatchcase(name, pattern.lower().removeprefix("sqs:")) for name in names for pattern in key.actions)
    return may_do and (queue is None or any(fnmatchcase(queue, pattern) for pattern in key.queues))


def may_use(key: Key, action: str, queue: str, owner: str) -> bool:
    """Say whether a key may do an action with a queue: with those of its own account, as its patterns say.

    Args:
        key: whose request it is.
        action: as in ``SendMessage``.
        queue: the name of the queue within its region and account.
        owner: the number of the account whose queue it is.
    """
    return owner == key.account and allowed(key, action, queue)


def denied(key: Key, action: str, arn: str, account: str) -> SqsError:
    """What a key is told that may not do an action.

    Args:
        key: whose request it was.
        action: as in ``SendMessage``.
        arn: of the queue, or of all queues of the account.
        account: the number of the account.
    """
    return access_denied(
        f"User: arn:aws:iam::{account}:user/{key.id} is not authorized to perform: "
        f"sqs:{permission(action).lower()} on resource: {arn}"
    )
