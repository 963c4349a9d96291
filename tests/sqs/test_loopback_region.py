"""The region of a request whose signature nobody looks at, as botocore and others sign."""

import pytest
from signing import signed

from inturn.sqs.errors import SqsError
from inturn.sqs.limits import CREDENTIAL_BYTES
from inturn.sqs.loopback import credential, scoped_region


def region(target: bytes, headers: dict[bytes, bytes]) -> str | None:
    credentials = credential(target, headers)
    return None if credentials is None else scoped_region(credentials)


@pytest.mark.parametrize("name", ["us-east-1", "eu-west-1", "mars", "0"])
@pytest.mark.parametrize("expires", [None, 60])
def test_the_region_is_read_from_the_signature(name: str, expires: int | None) -> None:
    sent = signed(region=name, expires=expires)
    assert region(sent.target, sent.headers) == name


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (b"AWS4-HMAC-SHA256 Credential=a/b/20261123/eu-west-1/sqs/aws4_request, SignedHeaders=host", "eu-west-1"),
        (b"AWS4-HMAC-SHA256 SignedHeaders=host, Credential=k/1/eu-west-1/sqs/aws4_request, Signature=x", "eu-west-1"),
        (b"AWS4-HMAC-SHA256 Credential=k/1/eu-west-1/sqs/aws4_request", "eu-west-1"),
        (b"AWS4-HMAC-SHA256 Credential=k/eu-west-1, SignedHeaders=host", None),
        (b"AWS4-HMAC-SHA256 Credential=, SignedHeaders=host", None),
        (b"Bearer x", None),
        (b"", None),
        (b"Credential=" + b"x" * CREDENTIAL_BYTES + b"/1/eu-west-1/sqs/aws4_request, x", None),
    ],
)
def test_the_region_is_read_from_any_authorization_header(header: bytes, found: str | None) -> None:
    assert region(b"/", {b"authorization": header}) == found


def test_an_unsigned_request_has_no_region() -> None:
    assert region(b"/?Action=ListQueues", {}) is None


@pytest.mark.parametrize("name", ["EU", "a:b", "", "x" * 33])
def test_an_invalid_region_in_a_signature_is_refused(name: str) -> None:
    sent = signed(region=name)
    with pytest.raises(SqsError, match=r"scoped to a valid region .*, not "):
        region(sent.target, sent.headers)


def test_a_long_credential_is_truncated() -> None:
    long = b"x" * 10_000
    for target, headers in (
        (b"/", {b"authorization": b"Credential=" + long}),
        (b"/?X-Amz-Credential=" + long, {}),
    ):
        assert len(credential(target, headers) or b"") == CREDENTIAL_BYTES
