"""The errors of SQS, one maker each, and the translation of core's errors into them.

Sources: the API's model with its ``awsQueryError`` and ``httpError`` traits (codes and HTTP status of the errors that
it defines), the documentation's common errors (the others), and the service's own texts. An error has two codes: the
JSON protocol's, which is the name of a shape, and the Query protocol's, which JSON responses carry too, in the header
``x-amzn-query-error``. Where a text depends on the case, the caller passes it.
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
        """True if the client is at fault: the same request will fail again."""
        return self.fault == "Sender"

    def __str__(self) -> str:
        return f"{self.query_code}: {self.message}"


def _templated(
    code: str, text: str = "{}", *, query_code: str | None = None, status: int = 400, namespace: str = MODEL
) -> Callable[[object], SqsError]:
    """Return the maker of an error whose text is about one value; by default the value is the whole text."""

    def make(value: object) -> SqsError:
        return SqsError(code, query_code or code, status, text.format(value), namespace=namespace)

    return make


def _fixed(
    code: str, text: str, *, query_code: str | None = None, status: int = 400, namespace: str = MODEL
) -> Callable[[], SqsError]:
    """Return the maker of an error that has always the same text."""
    make = _templated(code, query_code=query_code, status=status, namespace=namespace)
    return lambda: make(text)


# Errors of the API's model; some have a prefix in the Query protocol, and some another code.

_PREFIX: Final = "AWS.SimpleQueueService."

batch_entry_ids_not_distinct = _templated(
    "BatchEntryIdsNotDistinct", "Id {} repeated.", query_code=f"{_PREFIX}BatchEntryIdsNotDistinct"
)
batch_request_too_long = _templated(  # the messages of a batch are too large together; the value is their size in bytes
    "BatchRequestTooLong",
    f"Batch requests cannot be longer than {limits.BODY_BYTES} bytes. You have sent {{}} bytes.",
    query_code=f"{_PREFIX}BatchRequestTooLong",
)
empty_batch_request = _templated(  # the value is the type of its entries, as in SendMessageBatchRequestEntry
    "EmptyBatchRequest",
    "There should be at least one {} in the request.",
    query_code=f"{_PREFIX}EmptyBatchRequest",
)
invalid_address = _templated("InvalidAddress", status=404)
invalid_attribute_name = _templated("InvalidAttributeName", "Unknown Attribute {}.")
invalid_batch_entry_id = _fixed(
    "InvalidBatchEntryId",
    "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
    "It can be at most 80 letters long.",
    query_code=f"{_PREFIX}InvalidBatchEntryId",
)
invalid_message_contents = _fixed(  # a body with characters that XML cannot hold
    "InvalidMessageContents",
    "Invalid characters found. Valid unicode characters are "
    "#x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF",
)
message_not_inflight = _fixed(
    "MessageNotInflight", "The specified message isn't in flight.", query_code=f"{_PREFIX}MessageNotInflight"
)
over_limit = _templated("OverLimit", status=403)
purge_queue_in_progress = _templated(  # the value is the queue's name
    "PurgeQueueInProgress",
    "Only one PurgeQueue operation on {} is allowed every 60 seconds.",
    query_code=f"{_PREFIX}PurgeQueueInProgress",
    status=403,
)
queue_name_exists = _templated("QueueNameExists", query_code="QueueAlreadyExists")
receipt_handle_is_invalid = _templated(  # malformed, or of another queue
    "ReceiptHandleIsInvalid", 'The input receipt handle "{}" is not a valid receipt handle.', status=404
)
request_throttled = _fixed("RequestThrottled", "Request is throttled.", status=403)
resource_not_found = _templated(  # a queue or a task; the value is the parameter that named it, as in SourceArn
    "ResourceNotFoundException",
    "The resource that you specified for the {} parameter doesn't exist.",
    status=404,
)
no_such_task = _fixed("ResourceNotFoundException", "Task does not exist.", status=404)
too_many_entries_in_batch_request = _templated(
    "TooManyEntriesInBatchRequest",
    "Maximum number of entries per request are 10. You have sent {}.",
    query_code=f"{_PREFIX}TooManyEntriesInBatchRequest",
)
unsupported_operation = _templated("UnsupportedOperation", query_code=f"{_PREFIX}UnsupportedOperation")


def invalid_attribute_value(name: str, reason: str = "") -> SqsError:
    """Return the error for an invalid value of a queue attribute."""
    text = f"Invalid value for the parameter {name}."
    return _templated("InvalidAttributeValue")(f"{text} Reason: {reason}" if reason else text)


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


def other_attribute(name: str) -> SqsError:
    """Return the error for an existing queue with another value of this attribute."""
    return queue_name_exists(f"A queue already exists with the same name and a different value for attribute {name}")


# Errors that services have in common

missing_parameter = _templated(
    "MissingRequiredParameterException",
    "The request must contain the parameter {}.",
    query_code="MissingParameter",
    namespace=COMMON,
)
invalid_parameter_value = _templated(
    "InvalidParameterValueException", query_code="InvalidParameterValue", namespace=COMMON
)
unknown_operation = _fixed(  # no API call, as a browser's; the Query protocol omits the text
    "UnknownOperationException", "The request must contain the parameter Action.", status=404, namespace=COMMON
)
missing_action = _templated(
    "MissingActionException", "The request must contain {}.", query_code="MissingAction", namespace=COMMON
)
malformed_query_string = _templated(
    "MalformedQueryStringException", query_code="MalformedQueryString", namespace=COMMON
)
serialization = _templated("SerializationException", namespace=COMMON)  # a malformed body, or a value of another type
access_denied = _templated("AccessDeniedException", query_code="AccessDenied", status=403, namespace=COMMON)
incomplete_signature = _templated(  # malformed, or without a part
    "IncompleteSignatureException", query_code="IncompleteSignature", namespace=COMMON
)
invalid_client_token_id = _fixed(  # an unknown access key
    "UnrecognizedClientException",
    "The security token included in the request is invalid.",
    query_code="InvalidClientTokenId",
    status=403,
    namespace=COMMON,
)
missing_authentication_token = _fixed(
    "MissingAuthenticationTokenException",
    "Request is missing Authentication Token",
    query_code="MissingAuthenticationToken",
    status=403,
    namespace=COMMON,
)


def signature_does_not_match(
    message: str = "The request signature we calculated does not match the signature you provided. "
    "Check your AWS Secret Access Key and signing method. Consult the service documentation for details.",
) -> SqsError:
    """Return the error for a wrong signature: of another key, another request or another time."""
    return SqsError("InvalidSignatureException", "SignatureDoesNotMatch", 403, message)


def signature_already_used() -> SqsError:
    """Return the error for a repeated signature, where that is refused."""
    return signature_does_not_match("Signature already used: sign each request anew.")


def invalid_action(action: str) -> SqsError:
    """Return the error for an unknown action."""
    text = f"The action {action[:100]} is not valid for this endpoint."
    return SqsError("UnknownOperationException", "InvalidAction", 400, text)


def internal_failure() -> SqsError:
    """Return the error for an internal failure, whose cause is in the log only."""
    text = "We encountered an internal error. Please try again."
    return SqsError("InternalFailure", "InternalFailure", 500, text, fault="Receiver")


def service_unavailable() -> SqsError:
    """Return the error for a database that cannot be used for now."""
    text = "The request has failed due to a temporary failure of the server."
    return SqsError("ServiceUnavailableException", "ServiceUnavailable", 503, text, fault="Receiver")


# Invalid parameter values, in the service's words


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


def redrive_policy(value: str, reason: str) -> SqsError:
    """Return the error for an invalid RedrivePolicy."""
    return invalid_value(value, "RedrivePolicy", reason)


def redrive_allow_policy(value: str) -> SqsError:
    """Return the error for an invalid RedriveAllowPolicy; the service has one text for all, with this apostrophe."""
    reason = "Amazon SQS can't create the redrive allow policy, as it\u2019s in an unsupported format."
    return invalid_value(value, "RedriveAllowPolicy", reason)


# Core's errors

_ERROR_OF: Final[tuple[tuple[type[BaseException], Callable[[str], SqsError]], ...]] = (
    (core.NoSuchQueue, lambda _: queue_does_not_exist()),
    (core.QueueExists, queue_name_exists),
    (core.LeaseExpired, lambda _: invalid_parameter_value("The receipt handle has expired.")),
    (core.InputError, invalid_parameter_value),
    (core.WriterHeld, invalid_parameter_value),
    (core.QueueFull, lambda _: request_throttled()),
    (core.StoreError, lambda _: service_unavailable()),
    (core.TransactionOver, lambda _: service_unavailable()),
)


def as_sqs_error(error: BaseException) -> SqsError:
    """Return the error to send to a client for an exception; an unexpected exception becomes `internal_failure`."""
    if isinstance(error, SqsError):
        return error
    return next((make(str(error)) for kind, make in _ERROR_OF if isinstance(error, kind)), internal_failure())
