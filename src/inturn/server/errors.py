"""The errors of SQS, one function each, and the translation of core's errors into them.

Sources: the API's model with its ``awsQueryError`` and ``httpError`` traits (codes and HTTP status of the errors that
it defines), the documentation's common errors (the others), and the service's own texts. An error has two codes: the
JSON protocol's, which is the name of a shape, and the Query protocol's, which JSON responses carry too, in the header
``x-amzn-query-error``. Where a text depends on the case, the caller gives it.
"""

from collections.abc import Callable
from typing import Final, Literal

from inturn.core import errors as core
from inturn.core import limits

MODEL: Final = "com.amazonaws.sqs#"
"""The prefix of the JSON codes that the API's model defines."""

COMMON: Final = "com.amazon.coral.service#"
"""The prefix of the JSON codes that services have in common."""


class SqsError(Exception):
    """An error of the SQS API.

    Attributes:
        code: the JSON protocol's code: the name of a shape.
        query_code: the Query protocol's code, and that of a batch's failed entry in both protocols.
        status: the HTTP status.
        message: the text for the client.
        query_message: the text in the Query protocol, where the service's differs.
        fault: the side at fault.
        namespace: the prefix of the code in JSON.
        missing: the stored name of a queue that does not exist; for the log, not for the client.
    """

    missing: str | None = None

    def __init__(
        self,
        code: str,
        query_code: str,
        status: int,
        message: str,
        *,
        query_message: str | None = None,
        fault: Literal["Sender", "Receiver"] = "Sender",
        namespace: str = COMMON,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.query_code = query_code
        self.status = status
        self.message = message
        self.query_message = message if query_message is None else query_message
        self.fault = fault
        self.namespace = namespace

    @property
    def sender_fault(self) -> bool:
        """Whether the client is at fault: the same request will fail again."""
        return self.fault == "Sender"

    def __str__(self) -> str:
        return f"{self.query_code}: {self.message}"


# Errors of the API's model


def _model(code: str, message: str, *, query_code: str | None = None, status: int = 400) -> SqsError:
    return SqsError(code, query_code or code, status, message, namespace=MODEL)


def _prefixed(code: str, message: str, *, status: int = 400) -> SqsError:
    """Return an error whose code has a prefix in the Query protocol."""
    return _model(code, message, query_code=f"AWS.SimpleQueueService.{code}", status=status)


def batch_entry_ids_not_distinct(entry_id: str) -> SqsError:
    """Return the error for an id that two entries of a batch have."""
    return _prefixed("BatchEntryIdsNotDistinct", f"Id {entry_id} repeated.")


def batch_request_too_long(size: int) -> SqsError:
    """Return the error for a batch whose messages are too large together; ``size`` is in bytes."""
    text = f"Batch requests cannot be longer than {limits.BODY_BYTES} bytes. You have sent {size} bytes."
    return _prefixed("BatchRequestTooLong", text)


def empty_batch_request(entry: str) -> SqsError:
    """Return the error for a batch without entries; ``entry`` is their type, as in SendMessageBatchRequestEntry."""
    return _prefixed("EmptyBatchRequest", f"There should be at least one {entry} in the request.")


def invalid_address(message: str) -> SqsError:
    """Return the error for a malformed queue URL."""
    return _model("InvalidAddress", message, status=404)


def invalid_attribute_name(name: str) -> SqsError:
    """Return the error for an attribute that queues, or queues of this type, do not have."""
    return _model("InvalidAttributeName", f"Unknown Attribute {name}.")


def invalid_attribute_value(name: str, reason: str = "") -> SqsError:
    """Return the error for an invalid value of a queue attribute."""
    text = f"Invalid value for the parameter {name}."
    return _model("InvalidAttributeValue", f"{text} Reason: {reason}" if reason else text)


def invalid_batch_entry_id() -> SqsError:
    """Return the error for an entry id that is empty, too long or has other characters."""
    text = (
        "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
        "It can be at most 80 letters long."
    )
    return _prefixed("InvalidBatchEntryId", text)


def invalid_id_format(message: str = "") -> SqsError:
    """Return the predecessor of `receipt_handle_is_invalid`, which the model still has."""
    return _model("InvalidIdFormat", message)


def invalid_message_contents(
    message: str = "Invalid characters found. Valid unicode characters are "
    "#x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF",
) -> SqsError:
    """Return the error for a body with characters that XML cannot hold."""
    return _model("InvalidMessageContents", message)


def invalid_security(message: str) -> SqsError:
    """Return the error for a request that is unsigned, wrongly signed or sent without TLS."""
    return _model("InvalidSecurity", message, status=403)


def kms_access_denied(message: str) -> SqsError:
    """Return the error for a KMS key that the caller may not use."""
    return _model("KmsAccessDenied", message, query_code="KMS.AccessDeniedException")


def kms_disabled(message: str) -> SqsError:
    """Return the error for a disabled KMS key."""
    return _model("KmsDisabled", message, query_code="KMS.DisabledException")


def kms_invalid_key_usage(message: str) -> SqsError:
    """Return the error for a KMS key of another purpose."""
    return _model("KmsInvalidKeyUsage", message, query_code="KMS.InvalidKeyUsageException")


def kms_invalid_state(message: str) -> SqsError:
    """Return the error for a KMS key whose state does not allow the request."""
    return _model("KmsInvalidState", message, query_code="KMS.InvalidStateException")


def kms_not_found(message: str) -> SqsError:
    """Return the error for a KMS key that does not exist."""
    return _model("KmsNotFound", message, query_code="KMS.NotFoundException")


def kms_opt_in_required(message: str) -> SqsError:
    """Return the error for a caller without a KMS subscription."""
    return _model("KmsOptInRequired", message, query_code="KMS.OptInRequired", status=403)


def kms_throttled(message: str) -> SqsError:
    """Return the error for too many KMS requests."""
    return _model("KmsThrottled", message, query_code="KMS.ThrottlingException")


def message_not_inflight(message: str = "") -> SqsError:
    """Return the error for a message that is not in flight."""
    return _prefixed("MessageNotInflight", message)


def over_limit(message: str) -> SqsError:
    """Return the error for a request that would exceed a limit, as on messages in flight or permissions."""
    return _model("OverLimit", message, status=403)


def purge_queue_in_progress(queue: str) -> SqsError:
    """Return the error for a queue that was purged less than a minute ago; ``queue`` is its name."""
    text = f"Only one PurgeQueue operation on {queue} is allowed every 60 seconds."
    return _prefixed("PurgeQueueInProgress", text, status=403)


def queue_deleted_recently() -> SqsError:
    """Return the error for a queue name that was deleted less than a minute ago."""
    text = "You must wait 60 seconds after deleting a queue before you can create another with the same name."
    return _prefixed("QueueDeletedRecently", text)


def queue_does_not_exist(name: str | None = None) -> SqsError:
    """Return the error for a queue that does not exist; ``name`` is its name in the store."""
    error = SqsError(
        "QueueDoesNotExist",
        "AWS.SimpleQueueService.NonExistentQueue",
        400,
        "The specified queue does not exist.",
        query_message="The specified queue does not exist for this wsdl version.",
        namespace=MODEL,
    )
    error.missing = name
    return error


def queue_name_exists(message: str) -> SqsError:
    """Return the error for an existing queue with other attributes; see `other_attribute` for the text."""
    return _model("QueueNameExists", message, query_code="QueueAlreadyExists")


def other_attribute(name: str) -> SqsError:
    """Return the error for an existing queue with another value of this attribute."""
    text = f"A queue already exists with the same name and a different value for attribute {name}"
    return queue_name_exists(text)


def receipt_handle_is_invalid(handle: str) -> SqsError:
    """Return the error for a malformed or foreign receipt handle."""
    text = f'The input receipt handle "{handle}" is not a valid receipt handle.'
    return _model("ReceiptHandleIsInvalid", text, status=404)


def redrive_policy(value: str, reason: str) -> SqsError:
    """Return the error for an invalid RedrivePolicy."""
    return invalid_value(value, "RedrivePolicy", reason)


def redrive_allow_policy(value: str) -> SqsError:
    """Return the error for an invalid RedriveAllowPolicy; the service has one text for all, with this apostrophe."""
    reason = "Amazon SQS can't create the redrive allow policy, as it\u2019s in an unsupported format."
    return invalid_value(value, "RedriveAllowPolicy", reason)


def request_throttled(message: str = "Request is throttled.") -> SqsError:
    """Return the error for a queue that takes no more requests for now."""
    return _model("RequestThrottled", message, status=403)


def resource_not_found(parameter: str) -> SqsError:
    """Return the error for a queue or task that does not exist; ``parameter`` named it, as in SourceArn."""
    text = f"The resource that you specified for the {parameter} parameter doesn't exist."
    return _model("ResourceNotFoundException", text, status=404)


def no_such_task() -> SqsError:
    """Return the error for a task handle that names none of its queue's tasks."""
    return _model("ResourceNotFoundException", "Task does not exist.", status=404)


def too_many_entries_in_batch_request(count: int) -> SqsError:
    """Return the error for a batch with too many entries."""
    text = f"Maximum number of entries per request are 10. You have sent {count}."
    return _prefixed("TooManyEntriesInBatchRequest", text)


def unsupported_operation(message: str) -> SqsError:
    """Return the error for an operation that the queue or the task does not support."""
    return _prefixed("UnsupportedOperation", message)


# Errors that services have in common


def missing_parameter(name: str) -> SqsError:
    """Return the error for a required parameter that is missing."""
    text = f"The request must contain the parameter {name}."
    return SqsError("MissingRequiredParameterException", "MissingParameter", 400, text)


def invalid_parameter_value(message: str) -> SqsError:
    """Return the error for an invalid parameter value."""
    return SqsError("InvalidParameterValueException", "InvalidParameterValue", 400, message)


def invalid_value(value: object, parameter: str, reason: str) -> SqsError:
    """Return `invalid_parameter_value` with the service's usual text; the reason is a sentence with its full stop."""
    return invalid_parameter_value(f"Value {value} for parameter {parameter} is invalid. Reason: {reason}")


def receipt_handle_expired(handle: str) -> SqsError:
    """Return the error for a receipt handle whose lease is over."""
    return invalid_value(handle, "ReceiptHandle", "The receipt handle has expired.")


def invalid_arn(parameter: str) -> SqsError:
    """Return the error for a malformed ARN."""
    form = "arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
    return invalid_parameter_value(f"You must use this format to specify the {parameter}: {form}")


def invalid_parameter_combination(message: str) -> SqsError:
    """Return the error for parameters that exclude each other."""
    return SqsError("InvalidParameterCombinationException", "InvalidParameterCombination", 400, message)


def invalid_action(action: str) -> SqsError:
    """Return the error for an unknown action."""
    text = f"The action {action[:100]} is not valid for this endpoint."
    return SqsError("UnknownOperationException", "InvalidAction", 400, text)


def unknown_operation() -> SqsError:
    """Return the error for a request that is no API call, as a browser's; the Query protocol omits its text."""
    text = "The request must contain the parameter Action."
    return SqsError("UnknownOperationException", "UnknownOperationException", 404, text)


def missing_action(what: str) -> SqsError:
    """Return the error for a request without an action; ``what`` is the missing part."""
    return SqsError("MissingActionException", "MissingAction", 400, f"The request must contain {what}.")


def malformed_query_string(message: str) -> SqsError:
    """Return the error for a malformed form."""
    return SqsError("MalformedQueryStringException", "MalformedQueryString", 400, message)


def serialization(message: str) -> SqsError:
    """Return the error for a malformed body, or a value of the wrong type."""
    return SqsError("SerializationException", "SerializationException", 400, message)


def access_denied(message: str) -> SqsError:
    """Return the error for a request that is not permitted."""
    return SqsError("AccessDeniedException", "AccessDenied", 403, message)


def incomplete_signature(message: str) -> SqsError:
    """Return the error for a signature that is malformed or lacks a part."""
    return SqsError("IncompleteSignatureException", "IncompleteSignature", 400, message)


def invalid_client_token_id() -> SqsError:
    """Return the error for an unknown access key."""
    text = "The security token included in the request is invalid."
    return SqsError("UnrecognizedClientException", "InvalidClientTokenId", 403, text)


def missing_authentication_token() -> SqsError:
    """Return the error for an unsigned request."""
    text = "Request is missing Authentication Token"
    return SqsError("MissingAuthenticationTokenException", "MissingAuthenticationToken", 403, text)


def request_expired(message: str = "Request has expired.") -> SqsError:
    """Return the error for a request whose signature has expired."""
    return SqsError("RequestExpiredException", "RequestExpired", 400, message)


def signature_does_not_match(
    message: str = "The request signature we calculated does not match the signature you provided. "
    "Check your AWS Secret Access Key and signing method. Consult the service documentation for details.",
) -> SqsError:
    """Return the error for a wrong signature: of another key, another request or another time."""
    return SqsError("InvalidSignatureException", "SignatureDoesNotMatch", 403, message)


def signature_already_used() -> SqsError:
    """Return the error for a repeated signature, where that is refused."""
    return signature_does_not_match("Signature already used: sign each request anew.")


def throttling(message: str = "Rate exceeded") -> SqsError:
    """Return the error for too many requests to the endpoint itself."""
    return SqsError("ThrottlingException", "Throttling", 400, message)


def internal_failure() -> SqsError:
    """Return the error for an internal failure, whose cause is in the log only."""
    text = "We encountered an internal error. Please try again."
    return SqsError("InternalFailure", "InternalFailure", 500, text, fault="Receiver")


def service_unavailable() -> SqsError:
    """Return the error for a database that cannot be used for now."""
    text = "The request has failed due to a temporary failure of the server."
    return SqsError("ServiceUnavailableException", "ServiceUnavailable", 503, text, fault="Receiver")


# Core's errors

_TOLD: Final[tuple[tuple[type[BaseException], Callable[[str], SqsError]], ...]] = (
    (core.NoSuchQueue, lambda _: queue_does_not_exist()),
    (core.QueueExists, queue_name_exists),
    (core.LeaseExpired, lambda _: invalid_parameter_value("The receipt handle has expired.")),
    (core.InputError, invalid_parameter_value),
    (core.QueueFull, lambda _: request_throttled()),
    (core.StoreError, lambda _: service_unavailable()),
    (core.TransactionOver, lambda _: service_unavailable()),
)


def told(error: BaseException) -> SqsError:
    """Return the error that a client is sent for an exception; an unexpected one becomes `internal_failure`."""
    if isinstance(error, SqsError):
        return error
    return next((tell(str(error)) for kind, tell in _TOLD if isinstance(error, kind)), internal_failure())
