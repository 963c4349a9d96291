"""AddPermission and RemovePermission: statements of a queue's policy, by their label.

:mod:`inturn.sqs.policies` evaluates the policy.
"""

import json
import re
from typing import Any, Final

from inturn.core.queue.messages import QueueInfo
from inturn.sqs import errors, limits
from inturn.sqs.actions import settings
from inturn.sqs.auth.policy import OWNERS_ONLY
from inturn.sqs.context import Context, extra_setting, in_queue, save_extra
from inturn.sqs.model import AddPermission, Empty, RemovePermission
from inturn.store.commands import Command
from inturn.store.protocols import Store

_LABEL: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")
_ACCOUNT: Final = re.compile(r"\d{12}")
_GRANTED: Final = frozenset(
    (
        "*",
        "ChangeMessageVisibility",
        "DeleteMessage",
        "GetQueueAttributes",
        "GetQueueUrl",
        "ListDeadLetterSourceQueues",
        "PurgeQueue",
        "ReceiveMessage",
        "SendMessage",
    )
)


def add_permission(context: Context, params: AddPermission) -> Command[Empty]:
    """Add a policy statement that allows actions to accounts."""

    def add(store: Store, queue: QueueInfo, now_ms: int) -> Empty:
        _check(params)
        policy = _policy(context, queue)
        if any(statement.get("Sid") == params.label for statement in policy["Statement"]):
            raise errors.invalid_value(params.label, "Label", "Already exists.")
        principals = [f"arn:aws:iam::{account}:root" for account in params.aws_account_ids]
        actions = [f"SQS:{action}" for action in params.actions]
        policy["Statement"].append(
            {
                "Sid": params.label,
                "Effect": "Allow",
                "Principal": {"AWS": principals[0] if len(principals) == 1 else principals},
                "Action": actions[0] if len(actions) == 1 else actions,
                "Resource": context.arn(queue.name),
            }
        )
        _save(context, store, queue, policy, now_ms)
        return Empty()

    return in_queue(context, params.queue_url, add)


def _check(params: AddPermission) -> None:
    _check_label(params.label)
    if not params.actions:
        raise errors.missing_parameter("Actions")
    if not params.aws_account_ids:
        raise errors.invalid_value("[]", "PrincipalId", "Unable to verify.")
    if len(params.actions) > limits.POLICY_ACTIONS:
        text = f"{len(params.actions)} Actions were found, maximum allowed is {limits.POLICY_ACTIONS}."
        raise errors.over_limit(text)
    for action in params.actions:
        if action in OWNERS_ONLY:
            reason = "Only the queue owner is allowed to invoke this action."
            raise errors.invalid_value(f"SQS:{action}", "ActionName", reason)
        if action not in _GRANTED:
            reason = "Please refer to the appropriate WSDL for a list of valid actions. "
            raise errors.invalid_value(f"SQS:{action}", "ActionName", reason)
    for account in params.aws_account_ids:
        if _ACCOUNT.fullmatch(account) is None:
            raise errors.invalid_value(f"[{account}]", "PrincipalId", "Unable to verify.")


def _check_label(label: str) -> None:
    if _LABEL.fullmatch(label) is None:
        reason = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
        raise errors.invalid_value(label, "Label", reason)


def _policy(context: Context, queue: QueueInfo) -> dict[str, Any]:
    text = extra_setting(queue.settings, "policy", None)
    if text is None:
        return {"Version": "2008-10-17", "Id": f"{context.arn(queue.name)}/SQSDefaultPolicy", "Statement": []}
    policy: dict[str, Any] = json.loads(text)
    statements = policy.get("Statement", [])
    policy["Statement"] = statements if isinstance(statements, list) else [statements]
    return policy


def _save(context: Context, store: Store, queue: QueueInfo, policy: dict[str, Any], now_ms: int) -> None:
    """Save a queue's policy; one without statements is removed."""
    text = json.dumps(policy, separators=(",", ":")) if policy["Statement"] else ""
    if len(text) > limits.POLICY_BYTES:
        raise errors.over_limit(f"The policy would have {len(text)} bytes; at most {limits.POLICY_BYTES} are allowed.")
    changes = {"Policy": text}
    queue.settings = settings.with_changes(context, store, queue.name, queue.settings, changes, changes)
    save_extra(store, queue, modified_ms=now_ms)


def remove_permission(context: Context, params: RemovePermission) -> Command[Empty]:
    """Remove a policy statement."""

    def remove(store: Store, queue: QueueInfo, now_ms: int) -> Empty:
        policy = _policy(context, queue)
        remaining = [statement for statement in policy["Statement"] if statement.get("Sid") != params.label]
        if len(remaining) == len(policy["Statement"]):
            where = " on existing policy" if policy["Statement"] else ""
            raise errors.invalid_value(params.label, "Label", f"can't find label{where}.")
        _save(context, store, queue, {**policy, "Statement": remaining}, now_ms)
        return Empty()

    return in_queue(context, params.queue_url, remove)
