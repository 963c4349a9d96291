"""What SQS says when it cannot do what it was asked: one function per error, and core's errors turned into them.

Sources: the API's model with its ``awsQueryError`` and ``httpError`` traits (codes and HTTP status of the errors that
it defines), the documentation's common errors (the others), and the service's own words for the texts. An error has
two codes: the JSON protocol's, which is the name of a shape, and the Query protocol's, which JSON answers carry too, in
the header ``x-amzn-query-error``. Where a text depends on the case, the caller gives it.
"""

from collections.abc import Callable
from typing import Final, Literal

from inturn.core import errors as core
from inturn.core import limits

MODEL: Final = "com.amazonaws.sqs#"
"""Before the JSON code of an error that the API's model defines."""

COMMON: Final = "com.amazon.coral.service#"
"""Before the JSON code of an error that every service of its kind has."""


class SqsError(Exception):
    """An error as SQS tells it.

    Attributes:
        code: the JSON protocol's code: the name of a shape.
        query_code: the Query protocol's code, and that of a batch's failed entry in both.
        status: the HTTP status.
        message: what went wrong; for the client to see.
        query_message: the same in the Query protocol, where the service words it otherwise.
        fault: whose it is.
        namespace: what stands before the code in JSON.
        missing: the name in the store of the queue that is not there; for the log, not for the client.
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
        """Whether it is the client's: the same request will fail again."""
        return self.fault == "Sender"

    def __str__(self) -> str:
        return f"{self.query_code}: {self.message}"


# Errors of the API's model


def _model(code: str, message: str, *, query_code: str | None = None, status: int = 400) -> SqsError:
    return SqsError(code, query_code or code, status, message, namespace=MODEL)


def _prefixed(code: str, message: str, *, status: int = 400) -> SqsError:
    """One of those whose code the Query protocol prefixes."""
    return _model(code, message, query_code=f"AWS.SimpleQueueService.{code}", status=status)


def batch_entry_ids_not_distinct(entry_id: str) -> SqsError:
    """Two entries of a batch have this id."""
    return _prefixed("BatchEntryIdsNotDistinct", f"Id {entry_id} repeated.")


def batch_request_too_long(size: int) -> SqsError:
    """The messages of a batch have so many bytes together."""
    text = f"Batch requests cannot be longer than {limits.BODY_BYTES} bytes. You have sent {size} bytes."
    return _prefixed("BatchRequestTooLong", text)


def empty_batch_request(entry: str) -> SqsError:
    """A batch without entries; ``entry`` is what one would be: SendMessageBatchRequestEntry."""
    return _prefixed("EmptyBatchRequest", f"There should be at least one {entry} in the request.")


def invalid_address(message: str) -> SqsError:
    """What should be a queue's URL is none."""
    return _model("InvalidAddress", message, status=404)


def invalid_attribute_name(name: str) -> SqsError:
    """A queue has no attribute of this name, or not this kind of queue."""
    return _model("InvalidAttributeName", f"Unknown Attribute {name}.")


def invalid_attribute_value(name: str, reason: str = "") -> SqsError:
    """A queue's attribute cannot have this value."""
    text = f"Invalid value for the parameter {name}."
    return _model("InvalidAttributeValue", f"{text} Reason: {reason}" if reason else text)


def invalid_batch_entry_id() -> SqsError:
    """An entry's id is too long, empty, or of other characters."""
    text = (
        "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
        "It can be at most 80 letters long."
    )
    return _prefixed("InvalidBatchEntryId", text)


def invalid_id_format(message: str = "") -> SqsError:
    """What `receipt_handle_is_invalid` was before; the model still has it."""
    return _model("InvalidIdFormat", message)


def invalid_message_contents(
    message: str = "Invalid characters found. Valid unicode characters are "
    "#x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF",
) -> SqsError:
    """A body has characters that XML cannot hold."""
    return _model("InvalidMessageContents", message)


def invalid_security(message: str) -> SqsError:
    """The request is not signed, or not as it must be, or came without TLS."""
    return _model("InvalidSecurity", message, status=403)


def kms_access_denied(message: str) -> SqsError:
    """The caller may not use the key."""
    return _model("KmsAccessDenied", message, query_code="KMS.AccessDeniedException")


def kms_disabled(message: str) -> SqsError:
    """The key is disabled."""
    return _model("KmsDisabled", message, query_code="KMS.DisabledException")


def kms_invalid_key_usage(message: str) -> SqsError:
    """The key is not for this."""
    return _model("KmsInvalidKeyUsage", message, query_code="KMS.InvalidKeyUsageException")


def kms_invalid_state(message: str) -> SqsError:
    """The key's state does not allow it."""
    return _model("KmsInvalidState", message, query_code="KMS.InvalidStateException")


def kms_not_found(message: str) -> SqsError:
    """There is no such key."""
    return _model("KmsNotFound", message, query_code="KMS.NotFoundException")


def kms_opt_in_required(message: str) -> SqsError:
    """The caller has not asked for keys."""
    return _model("KmsOptInRequired", message, query_code="KMS.OptInRequired", status=403)


def kms_throttled(message: str) -> SqsError:
    """The keys were asked too often."""
    return _model("KmsThrottled", message, query_code="KMS.ThrottlingException")


def message_not_inflight(message: str = "") -> SqsError:
    """The message is not received, or not any more."""
    return _prefixed("MessageNotInflight", message)


def over_limit(message: str) -> SqsError:
    """A limit would be passed: too many in flight, too many permissions."""
    return _model("OverLimit", message, status=403)


def purge_queue_in_progress(queue: str) -> SqsError:
    """The queue of this name was purged less than a minute ago."""
    text = f"Only one PurgeQueue operation on {queue} is allowed every 60 seconds."
    return _prefixed("PurgeQueueInProgress", text, status=403)


def queue_deleted_recently() -> SqsError:
    """The queue was deleted less than a minute ago."""
    text = "You must wait 60 seconds after deleting a queue before you can create another with the same name."
    return _prefixed("QueueDeletedRecently", text)


def queue_does_not_exist(name: str | None = None) -> SqsError:
    """There is no such queue; ``name`` is what it would be called in the store."""
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
    """There is a queue of that name with other attributes; see `other_attribute` for the text."""
    return _model("QueueNameExists", message, query_code="QueueAlreadyExists")


def other_attribute(name: str) -> SqsError:
    """There is a queue of that name in which this attribute has another value."""
    text = f"A queue already exists with the same name and a different value for attribute {name}"
    return queue_name_exists(text)


def receipt_handle_is_invalid(handle: str) -> SqsError:
    """No receive gives handles such as this one."""
    text = f'The input receipt handle "{handle}" is not a valid receipt handle.'
    return _model("ReceiptHandleIsInvalid", text, status=404)


def redrive_policy(value: str, reason: str) -> SqsError:
    """A queue cannot have this RedrivePolicy."""
    return invalid_value(value, "RedrivePolicy", reason)


def redrive_allow_policy(value: str) -> SqsError:
    """No queue can have this RedriveAllowPolicy; the service has one reason for all of them, with this apostrophe."""
    reason = "Amazon SQS can't create the redrive allow policy, as it\u2019s in an unsupported format."
    return invalid_value(value, "RedriveAllowPolicy", reason)


def request_throttled(message: str = "Request is throttled.") -> SqsError:
    """More was asked than may be."""
    return _model("RequestThrottled", message, status=403)


def resource_not_found(parameter: str) -> SqsError:
    """There is no queue, or no task, such as this parameter names: SourceArn."""
    text = f"The resource that you specified for the {parameter} parameter doesn't exist."
    return _model("ResourceNotFoundException", text, status=404)


def no_such_task() -> SqsError:
    """A handle of a move task that names none of its queue's."""
    return _model("ResourceNotFoundException", "Task does not exist.", status=404)


def too_many_entries_in_batch_request(count: int) -> SqsError:
    """A batch has so many entries."""
    text = f"Maximum number of entries per request are 10. You have sent {count}."
    return _prefixed("TooManyEntriesInBatchRequest", text)


def unsupported_operation(message: str) -> SqsError:
    """It cannot be done with this kind of queue."""
    return _prefixed("UnsupportedOperation", message)


# Errors that every service of this kind has


def missing_parameter(name: str) -> SqsError:
    """A parameter that must be there is not."""
    text = f"The request must contain the parameter {name}."
    return SqsError("MissingRequiredParameterException", "MissingParameter", 400, text)


def invalid_parameter_value(message: str) -> SqsError:
    """A parameter cannot have this value."""
    return SqsError("InvalidParameterValueException", "InvalidParameterValue", 400, message)


def invalid_value(value: object, parameter: str, reason: str) -> SqsError:
    """The same in the service's usual words; the reason is a sentence with its full stop."""
    return invalid_parameter_value(f"Value {value} for parameter {parameter} is invalid. Reason: {reason}")


def receipt_handle_expired(handle: str) -> SqsError:
    """The receiver's lease was over."""
    return invalid_value(handle, "ReceiptHandle", "The receipt handle has expired.")


def invalid_arn(parameter: str) -> SqsError:
    """What should be an ARN is none."""
    form = "arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
    return invalid_parameter_value(f"You must use this format to specify the {parameter}: {form}")


def invalid_parameter_combination(message: str) -> SqsError:
    """Parameters that exclude each other."""
    return SqsError("InvalidParameterCombinationException", "InvalidParameterCombination", 400, message)


def invalid_action(action: str) -> SqsError:
    """The API has no action of this name."""
    text = f"The action {action[:100]} is not valid for this endpoint."
    return SqsError("UnknownOperationException", "InvalidAction", 400, text)


def unknown_operation() -> SqsError:
    """A request that is no call at all, as a browser's; the Query protocol answers it without a text."""
    text = "The request must contain the parameter Action."
    return SqsError("UnknownOperationException", "UnknownOperationException", 404, text)


def missing_action(what: str) -> SqsError:
    """The request does not say what it asks for; ``what`` would."""
    return SqsError("MissingActionException", "MissingAction", 400, f"The request must contain {what}.")


def malformed_query_string(message: str) -> SqsError:
    """A form that cannot be read as one."""
    return SqsError("MalformedQueryStringException", "MalformedQueryString", 400, message)


def serialization(message: str) -> SqsError:
    """A body that cannot be read, or a value of another type."""
    return SqsError("SerializationException", "SerializationException", 400, message)


def access_denied(message: str) -> SqsError:
    """This key may not do that."""
    return SqsError("AccessDeniedException", "AccessDenied", 403, message)


def incomplete_signature(message: str) -> SqsError:
    """A signature that lacks a part, or cannot be read."""
    return SqsError("IncompleteSignatureException", "IncompleteSignature", 400, message)


def invalid_client_token_id() -> SqsError:
    """There is no such access key."""
    text = "The security token included in the request is invalid."
    return SqsError("UnrecognizedClientException", "InvalidClientTokenId", 403, text)


def missing_authentication_token() -> SqsError:
    """The request is not signed."""
    text = "Request is missing Authentication Token"
    return SqsError("MissingAuthenticationTokenException", "MissingAuthenticationToken", 403, text)


def request_expired(message: str = "Request has expired.") -> SqsError:
    """A request signed for a time that is over."""
    return SqsError("RequestExpiredException", "RequestExpired", 400, message)


def signature_does_not_match(
    message: str = "The request signature we calculated does not match the signature you provided. "
    "Check your AWS Secret Access Key and signing method. Consult the service documentation for details.",
) -> SqsError:
    """Another key signed it, or signed something else, or at another time."""
    return SqsError("InvalidSignatureException", "SignatureDoesNotMatch", 403, message)


def throttling(message: str = "Rate exceeded") -> SqsError:
    """The endpoint itself is asked too much."""
    return SqsError("ThrottlingException", "Throttling", 400, message)


def internal_failure() -> SqsError:
    """Something here went wrong; what it was stands in the log."""
    text = "We encountered an internal error. Please try again."
    return SqsError("InternalFailure", "InternalFailure", 500, text, fault="Receiver")


def service_unavailable() -> SqsError:
    """The database cannot be used just now."""
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
    """What a client is told of any error: an unknown one tells nothing of what is inside."""
    if isinstance(error, SqsError):
        return error
    return next((tell(str(error)) for kind, tell in _TOLD if isinstance(error, kind)), internal_failure())
