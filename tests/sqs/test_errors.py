"""Every error of the API has its codes and its status, and an error from inside tells nothing of it."""

import inspect
from collections.abc import Callable

import pytest
from boto_halves import service

from inturn.core import errors as core
from inturn.sqs import errors
from inturn.sqs.errors import MODEL, SqsError, as_sqs_error

MADE: dict[str, SqsError] = {
    name: make(
        *(7 if "int" in str(parameter.annotation) else "x" for parameter in inspect.signature(make).parameters.values())
    )
    for name, make in vars(errors).items()
    if inspect.isfunction(make) and not name.startswith("_") and name != "told"
}

STATUS = {
    "InvalidAddress": 404,
    "InvalidSecurity": 403,
    "KmsOptInRequired": 403,
    "OverLimit": 403,
    "PurgeQueueInProgress": 403,
    "ReceiptHandleIsInvalid": 404,
    "RequestThrottled": 403,
    "ResourceNotFoundException": 404,
}
"""Of the model's errors, those that are not 400, by its ``httpError`` trait."""

QUERY_CODES = {
    "KmsAccessDenied": "KMS.AccessDeniedException",
    "KmsDisabled": "KMS.DisabledException",
    "KmsInvalidKeyUsage": "KMS.InvalidKeyUsageException",
    "KmsInvalidState": "KMS.InvalidStateException",
    "KmsNotFound": "KMS.NotFoundException",
    "KmsOptInRequired": "KMS.OptInRequired",
    "KmsThrottled": "KMS.ThrottlingException",
}


NOT_HERE = {*QUERY_CODES, "InvalidIdFormat", "InvalidSecurity", "QueueDeletedRecently"}
"""Errors of the model that have no cause here: nothing is encrypted, the signature's errors are those that services
have in common, a malformed handle has its newer error, and the name of a deleted queue is free at once."""


def test_every_error_of_the_api_model_is_implemented_or_excluded() -> None:
    codes = {error.code for error in MADE.values() if error.namespace == MODEL}
    assert codes.isdisjoint(NOT_HERE)
    assert codes | NOT_HERE == {shape.name for shape in service("json").error_shapes}


@pytest.mark.parametrize("shape", service("query").error_shapes, ids=lambda shape: shape.name)
def test_errors_have_the_codes_and_status_of_the_api_model(shape: object) -> None:
    name, known = shape.name, shape.metadata.get("error", {})
    for error in MADE.values():
        if error.code == name:
            assert error.query_code == known.get("code", QUERY_CODES.get(name, name))
            assert error.status == known.get("httpStatusCode", STATUS.get(name, 400)) == STATUS.get(name, 400)
            assert error.sender_fault


def test_queue_does_not_exist_has_the_text_of_each_protocol() -> None:
    error = errors.queue_does_not_exist()
    assert error.message == "The specified queue does not exist."
    assert error.query_message == "The specified queue does not exist for this wsdl version."


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        (core.NoSuchQueue("q"), errors.queue_does_not_exist),
        (core.QueueExists("q"), lambda: errors.queue_name_exists("q")),
        (core.LeaseExpired("q"), lambda: errors.invalid_parameter_value("The receipt handle has expired.")),
        (core.InputError("q"), lambda: errors.invalid_parameter_value("q")),
        (core.QueueFull("q"), errors.request_throttled),
        (core.StoreError("secret"), errors.service_unavailable),
        (core.StoreConflict("secret"), errors.service_unavailable),
        (core.TransactionOver("secret"), errors.service_unavailable),
        (core.InturnError("secret"), errors.internal_failure),
        (KeyError("secret"), errors.internal_failure),
        (MemoryError("secret"), errors.internal_failure),
    ],
    ids=lambda case: type(case).__name__,
)
def test_internal_errors_become_sqs_errors_without_their_text(
    inside: Exception, outside: Callable[[], SqsError]
) -> None:
    error, expected = as_sqs_error(inside), outside()
    assert vars(error) == vars(expected)
    assert "secret" not in str(error)


def test_sender_fault_is_set_for_every_error_below_500() -> None:
    assert {error.code for error in MADE.values() if not error.sender_fault} == {
        "InternalFailure",
        "ServiceUnavailableException",
    }
    assert all(error.sender_fault == (error.status < 500) for error in MADE.values())


def test_an_sqs_error_is_passed_through_unchanged() -> None:
    error = errors.missing_parameter("QueueUrl")
    assert as_sqs_error(error) is error
    assert str(error) == "MissingParameter: The request must contain the parameter QueueUrl."
