"""A queue's attributes in SQS form, translated to and from inturn's settings.

`wanted` checks a request's attributes and normalises their values; `current` returns a queue's attributes in the same
form, so that the two can be compared; `applied` turns them into settings. Source: the API's documentation of
CreateQueue and SetQueueAttributes, and where that says nothing, the service's behaviour: the DeduplicationScope at
creation stays in effect, a later one is only stored. inturn adds DeduplicationWindowSeconds: the time for which a FIFO
queue remembers a deduplication id, in seconds, or ``forever``.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from inturn.core import limits as core_limits
from inturn.core.queue.messages import QueueInfo, QueueSettings
from inturn.sqs import errors, limits, naming
from inturn.sqs.auth.policy import PolicyError, parse, unmatched_resources
from inturn.sqs.context import Context, extra_setting, is_arn, is_fifo
from inturn.sqs.errors import MODEL, SqsError
from inturn.sqs.events import EVENTS
from inturn.store.protocols import Store

WINDOW: Final = "DeduplicationWindowSeconds"
FOREVER: Final = "forever"
RETRY: Final = "RetryDelaySeconds"
"""The delay of a message whose lease expires, after its first attempt, in seconds; only inturn has this."""
DEPTH: Final = "MaximumQueueDepth"
"""The maximum number of messages in a queue, 0 for no limit; only inturn has this attribute."""
KEEP: Final = "KeepAcknowledgedSeconds"
"""The time for which acknowledged messages stay in the log, 0 for none; only inturn has this attribute."""
KEEP_BYTES: Final = "KeepAcknowledgedBytes"
"""The number of bytes of bodies that the log keeps, 0 for no such limit; only inturn has this attribute."""
_MESSAGE_SIZE: Final = 1_024
_DATA_KEY_S: Final = (60, 86_400)
_USUAL_DATA_KEY_S: Final = "300"
_ALLOWED_SOURCES: Final = 10

_NUMBERS: Final = {
    "DelaySeconds": (0, limits.SEND_DELAY_S),
    "KmsDataKeyReusePeriodSeconds": _DATA_KEY_S,
    DEPTH: (0, core_limits.MAX_DEPTH),
    KEEP: (0, core_limits.KEPT_S),
    KEEP_BYTES: (0, core_limits.MAX_DEPTH),
    "MaximumMessageSize": (_MESSAGE_SIZE, core_limits.BODY_BYTES),
    "MessageRetentionPeriod": limits.RETENTION_S,
    "ReceiveMessageWaitTimeSeconds": (0, limits.RECEIVE_WAIT_S),
    RETRY: (0, limits.SEND_DELAY_S),
    "VisibilityTimeout": (0, core_limits.VISIBILITY_S),
}
_CHOICES: Final = {
    "ContentBasedDeduplication": ("true", "false"),
    "DeduplicationScope": ("queue", "messageGroup"),
    "FifoThroughputLimit": ("perQueue", "perMessageGroupId"),
    "SqsManagedSseEnabled": ("true", "false"),
}
_DOCUMENTS: Final = ("Policy", "RedriveAllowPolicy", "RedrivePolicy")
_FIFO_ONLY: Final = ("ContentBasedDeduplication", "DeduplicationScope", "FifoQueue", "FifoThroughputLimit", WINDOW)
SETTABLE: Final = frozenset((*_NUMBERS, *_CHOICES, *_DOCUMENTS, *_FIFO_ONLY, "KmsMasterKeyId"))

_DEFAULTS: Final = {
    "DelaySeconds": "0",
    "MessageRetentionPeriod": "345600",
    "VisibilityTimeout": "30",
}
"""The defaults of a queue that is created over SQS."""

_REDRIVE_ALLOW: Final = {"redrivePermission", "sourceQueueArns"}
_REDRIVE: Final = ("deadLetterTargetArn", "maxReceiveCount")

# Attributes kept in `extra` rather than in settings of inturn's own, with their names there.
_EXTRA: Final = {
    "DeduplicationScope": "deduplication_scope",
    "FifoThroughputLimit": "fifo_throughput_limit",
    "KmsDataKeyReusePeriodSeconds": "kms_data_key_reuse_s",
    "KmsMasterKeyId": "kms_master_key_id",
    "MaximumMessageSize": "maximum_message_size",
    "Policy": "policy",
    "ReceiveMessageWaitTimeSeconds": "receive_wait_s",
    "RedriveAllowPolicy": "redrive_allow_policy",
    "SqsManagedSseEnabled": "sqs_managed_sse",
}


def normalized(attributes: Mapping[str, str], *, fifo: bool) -> dict[str, str]:
    """Return a request's attributes with normalised values, or refuse them; "" removes an attribute."""
    return {name: _normalized_value(name, value, fifo=fifo) for name, value in attributes.items()}


def _normalized_value(name: str, value: str, *, fifo: bool) -> str:
    if name not in SETTABLE:
        raise errors.invalid_attribute_name(name)
    if not fifo and name in _FIFO_ONLY:
        raise _only_fifo(name)
    if name in _NUMBERS:
        return _number(name, value, *_NUMBERS[name])
    if name in _CHOICES:
        choice = value.lower() if "true" in _CHOICES[name] else value
        if choice not in _CHOICES[name]:
            raise errors.invalid_attribute_value(name)
        return choice
    if name == "FifoQueue":
        if value.lower() != "true":
            raise errors.invalid_attribute_value(name, "Modifying queue type is not supported.")
        return "true"
    if name == WINDOW:
        return value if value == FOREVER else _number(name, value, 1, core_limits.KEPT_S)
    if name in _DOCUMENTS and value:
        return _document(name, value)
    return value


def _only_fifo(name: str) -> SqsError:
    if name in {"DeduplicationScope", "FifoThroughputLimit"}:
        text = f"You can specify the {name} only when FifoQueue is set to true."
        return SqsError("InvalidAttributeName", "InvalidAttributeName", 400, text, namespace=MODEL)
    return errors.invalid_attribute_name(name)


def _number(name: str, value: str, least: int, most: int) -> str:
    if not (value.isascii() and value.isdigit() and len(value) <= len(str(core_limits.MAX_DEPTH))):
        raise errors.invalid_attribute_value(name)
    if not least <= int(value) <= most:
        raise errors.invalid_attribute_value(name)
    return str(int(value))


def _document(name: str, text: str) -> str:
    if name == "Policy":
        return _policy(text)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if name == "RedriveAllowPolicy":
        return _redrive_allow(text, document)
    if not isinstance(document, dict):
        raise errors.redrive_policy(text, "Redrive policy is not a valid JSON map.")
    return _redrive(text, document)


def _policy(text: str) -> str:
    try:
        parse(text)
    except PolicyError as error:
        raise errors.invalid_attribute_value("Policy", str(error)) from None
    return text


def _redrive(text: str, policy: Mapping[str, Any]) -> str:
    for part in _REDRIVE:
        if part not in policy:
            raise errors.redrive_policy(text, f"Redrive policy does not contain mandatory attribute: {part}.")
    if len(policy) > len(_REDRIVE):
        raise errors.redrive_policy(text, f"Only following attributes are supported: [{', '.join(_REDRIVE)}].")
    count = policy["maxReceiveCount"]
    number = int(count) if isinstance(count, str) and count.isascii() and count.isdigit() and len(count) < 6 else count
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= core_limits.MAX_RECEIVES:
        shown = "of another kind" if isinstance(count, dict | list) else count
        raise errors.redrive_policy(
            text,
            f"Invalid value for maxReceiveCount: {shown}, "
            f"valid values are from 1 to {core_limits.MAX_RECEIVES} both inclusive.",
        )
    target = policy["deadLetterTargetArn"]
    if not isinstance(target, str) or not is_arn(target):
        raise errors.redrive_policy(text, "Invalid value for deadLetterTargetArn.")
    return _compact({"deadLetterTargetArn": target, "maxReceiveCount": number})


def _redrive_allow(text: str, policy: object) -> str:
    if not isinstance(policy, dict):
        raise errors.redrive_allow_policy(text)
    permission, arns = policy.get("redrivePermission"), policy.get("sourceQueueArns", [])
    if permission not in ("allowAll", "denyAll", "byQueue") or not policy.keys() <= _REDRIVE_ALLOW:
        raise errors.redrive_allow_policy(text)
    if not isinstance(arns, list) or not all(isinstance(arn, str) and is_arn(arn) for arn in arns):
        raise errors.redrive_allow_policy(text)
    if (permission == "byQueue") != bool(arns) or len(arns) > _ALLOWED_SOURCES:
        raise errors.redrive_allow_policy(text)
    return _compact(policy)


def _compact(document: Mapping[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"))


# --- a queue's attributes ---


def current_attributes(context: Context, queue: QueueInfo) -> dict[str, str]:
    """Return the settable attributes that a queue has."""
    settings = queue.settings
    attributes: dict[str, str] = {
        "DelaySeconds": _seconds(settings.delay_s),
        "MaximumMessageSize": str(core_limits.BODY_BYTES),
        "ReceiveMessageWaitTimeSeconds": "0",
        "VisibilityTimeout": _seconds(settings.visibility_timeout_s),
    }
    if settings.retention_s is not None:
        attributes["MessageRetentionPeriod"] = _seconds(settings.retention_s)
    attributes.update(_inturn_attributes(settings))
    if settings.dead_letter is not None:
        policy = {"deadLetterTargetArn": context.arn(settings.dead_letter), "maxReceiveCount": settings.max_receives}
        attributes["RedrivePolicy"] = _compact(policy)
    if is_fifo(queue):
        attributes["FifoQueue"] = "true"
        attributes["ContentBasedDeduplication"] = "true" if settings.content_dedup else "false"
        attributes["DeduplicationScope"] = _scope(settings)
        attributes["FifoThroughputLimit"] = "perQueue"
        attributes[WINDOW] = FOREVER if settings.dedup_window_s is None else _seconds(settings.dedup_window_s)
    for name, key in _EXTRA.items():
        value = extra_setting(settings, key, None)
        if value is not None:
            attributes[name] = str(value)
    if "KmsMasterKeyId" in attributes:
        attributes.setdefault("KmsDataKeyReusePeriodSeconds", _USUAL_DATA_KEY_S)
    elif attributes.get("KmsDataKeyReusePeriodSeconds") == _USUAL_DATA_KEY_S:
        del attributes["KmsDataKeyReusePeriodSeconds"]  # as the service does
    attributes.setdefault("SqsManagedSseEnabled", "false")  # nothing is encrypted here
    return attributes


def _inturn_attributes(settings: QueueSettings) -> dict[str, str]:
    """Return the attributes that only inturn has, and only if they are set: SQS clients do not expect them."""
    attributes = {}
    if settings.retry_delay_s:
        attributes[RETRY] = _seconds(settings.retry_delay_s)
    if settings.max_depth is not None:
        attributes[DEPTH] = str(settings.max_depth)
    if settings.keep_ms is not None:
        attributes[KEEP] = _seconds(settings.keep_ms / 1000)
    if settings.keep_bytes is not None:
        attributes[KEEP_BYTES] = str(settings.keep_bytes)
    return attributes


def _scope(settings: QueueSettings) -> str:
    """Return the deduplication scope that a queue was created with."""
    return "messageGroup" if settings.dedup_scope == "group" else "queue"


def _seconds(value: float) -> str:
    """Round up to whole seconds; inturn's own API allows fractions."""
    return str(math.ceil(value))


# --- new settings ---


def with_changes(
    context: Context,
    store: Store,
    name: str,
    settings: QueueSettings | None,
    changes: Mapping[str, str],
    requested: Mapping[str, str],
) -> QueueSettings:
    """Return settings with the changes applied; refuse attributes that exclude each other.

    Args:
        context: the naming of queues.
        store: the store, where the dead-letter queue must exist.
        name: of the queue.
        settings: the queue's settings; None for a new queue.
        changes: from :func:`normalized`.
        requested: the request's own attribute values, for error texts.
    """
    fields: dict[str, Any] = {}
    if settings is None:
        settings, changes = QueueSettings(), {**_DEFAULTS, **changes}
        fields["dedup_scope"] = "group" if changes.get("DeduplicationScope") == "messageGroup" else "queue"
    extra = _with_one_encryption(settings.extra, changes)
    _warn_of_encryption(name, settings.extra, changes)
    _warn_of_resources(name, settings.extra, changes)
    for attribute, value in changes.items():
        if attribute in _EXTRA:
            if value:
                extra[_EXTRA[attribute]] = int(value) if attribute in _NUMBERS else value
            else:
                extra.pop(_EXTRA[attribute], None)
        elif attribute == "RedrivePolicy":
            fields["dead_letter"], fields["max_receives"] = _target(
                context, store, name, value, requested.get("RedrivePolicy", value)
            )
        elif attribute != "FifoQueue":
            fields.update(_FIELDS[attribute](value))
    changed = replace(settings, extra=extra, **fields)
    scope = extra.get("deduplication_scope", _scope(changed))
    if extra.get("fifo_throughput_limit") == "perMessageGroupId" and scope != "messageGroup":
        reason = "The perMessageGroupId value is allowed only when the value for DeduplicationScope is messageGroup."
        raise errors.invalid_attribute_value("FifoThroughputLimit", reason)
    return changed


_FIELDS: Final[dict[str, Callable[[str], dict[str, Any]]]] = {
    "ContentBasedDeduplication": lambda value: {"content_dedup": value == "true"},
    "DelaySeconds": lambda value: {"delay_s": int(value)},
    "MessageRetentionPeriod": lambda value: {"retention_s": int(value)},
    DEPTH: lambda value: {"max_depth": int(value) or None},
    KEEP: lambda value: {"keep_for": int(value) or None},
    KEEP_BYTES: lambda value: {"keep_bytes": int(value) or None},
    RETRY: lambda value: {"retry_delay_s": int(value)},
    "VisibilityTimeout": lambda value: {"visibility_timeout_s": int(value)},
    WINDOW: lambda value: {"dedup_window_s": None if value == FOREVER else int(value)},
}


def _with_one_encryption(extra: Mapping[str, Any], changes: Mapping[str, str]) -> dict[str, Any]:
    """Return the kept attributes without the encryption setting that a change replaces."""
    remaining = dict(extra)
    if changes.get("KmsMasterKeyId"):
        if changes.get("SqsManagedSseEnabled") == "true":
            raise SqsError(
                "InvalidAttributeName",
                "InvalidAttributeName",
                400,
                "You can use one type of server-side encryption (SSE) at one time. "
                "You can either enable KMS SSE or SQS SSE.",
                namespace=MODEL,
            )
        remaining.pop(_EXTRA["SqsManagedSseEnabled"], None)
    elif changes.get("SqsManagedSseEnabled") == "true":
        remaining.pop(_EXTRA["KmsMasterKeyId"], None)
    return remaining


def _warn_of_encryption(name: str, extra: Mapping[str, Any], changes: Mapping[str, str]) -> None:
    """Log a warning for each newly set encryption attribute."""
    for attribute in ("KmsMasterKeyId", "SqsManagedSseEnabled"):
        value = changes.get(attribute)
        if value not in (None, "", "false", extra.get(_EXTRA[attribute])):
            text = "%(attribute)s of queue %(queue)r is stored, but nothing is encrypted"
            EVENTS.warning("not_encrypted", name, text, queue=name, attribute=attribute)


def _warn_of_resources(name: str, extra: Mapping[str, Any], changes: Mapping[str, str]) -> None:
    """Log a warning if a newly set policy has resources that match nothing."""
    text = changes.get("Policy", "")
    unmatched = [] if text == extra.get(_EXTRA["Policy"]) else unmatched_resources(text)
    if unmatched:
        more = f" and {len(unmatched) - 1} more" if len(unmatched) > 1 else ""
        text = f"a resource in the policy of queue %(queue)r is not an ARN and matches nothing: %(resource)r{more}"
        EVENTS.warning("unmatched_resource", name, text, queue=name, resource=unmatched[0])


def _target(context: Context, store: Store, name: str, value: str, requested: str) -> tuple[str | None, int | None]:
    """Return the dead-letter queue that a policy names, and its receive limit."""
    if not value:
        return None, None
    policy = json.loads(value)
    target = context.of_arn(policy["deadLetterTargetArn"])
    if target == name:
        return target, policy["maxReceiveCount"]
    info = store.queues.get(target or "")
    named = naming.parse_arn(policy["deadLetterTargetArn"])
    if named is not None and named[0].account != naming.scope_of(context.home, name)[0].account:
        raise errors.redrive_policy(requested, "Dead letter target owner should be same as the source.")
    if target is None or info is None:
        raise errors.redrive_policy(requested, "Dead letter target does not exist.")
    if is_fifo(info) != name.endswith(".fifo"):
        raise errors.redrive_policy(requested, "Dead-letter queue must be same type of queue as the source.")
    allow = json.loads(
        extra_setting(info.settings, "redrive_allow_policy", None) or '{"redrivePermission": "allowAll"}'
    )
    permission, sources = allow["redrivePermission"], allow.get("sourceQueueArns", [])
    if permission == "denyAll" or (permission == "byQueue" and context.arn(name) not in sources):
        reason = "Dead letter target does not allow this queue to use it, see its RedriveAllowPolicy."
        raise errors.redrive_policy(requested, reason)
    return target, policy["maxReceiveCount"]
