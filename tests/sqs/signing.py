"""Requests as botocore signs them, for the tests: its own signers, with a clock that stands where it is put."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple
from unittest.mock import patch
from urllib.parse import urlsplit

from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from inturn.sqs.auth import Key, Verifier

NOW = 1_700_000_000.0
KEY = Key("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")


class Sent(NamedTuple):
    """A request as it comes to the server."""

    method: str
    target: bytes
    headers: dict[bytes, bytes]
    body: bytes

    def header(self, name: str, value: bytes | None) -> "Sent":
        """The same with another header, or without it."""
        headers = {key: old for key, old in self.headers.items() if key != name.encode()}
        return self._replace(headers=headers if value is None else headers | {name.encode(): value})

    def verified(self, verifier: Verifier, now: float = NOW) -> Key:
        return verifier.verify(self.method, self.target, self.headers, self.body, now).key


def signed(
    url: str = "http://localhost:9324/",
    body: bytes = b"{}",
    headers: Mapping[str, str] | None = None,
    *,
    method: str = "POST",
    key: Key = KEY,
    region: str = "us-east-1",
    service: str = "sqs",
    token: str | None = None,
    time_s: float = NOW,
    expires: int | None = None,
    params: Mapping[str, str] | None = None,
) -> Sent:
    """What botocore makes of a request: a presigned URL if it expires, else an Authorization header."""
    defaults = {"X-Amz-Target": "AmazonSQS.SendMessage", "Content-Type": "application/x-amz-json-1.0"}
    request = AWSRequest(method, url, defaults if headers is None else dict(headers), body, dict(params or {}))
    if method == "GET":
        request.data = b""
    credentials = Credentials(key.id, key.secret, token)
    with patch("botocore.auth.get_current_datetime", lambda: datetime.fromtimestamp(time_s, UTC)):
        if expires is None:
            SigV4Auth(credentials, service, region).add_auth(request)
        else:
            SigV4QueryAuth(credentials, service, region, expires).add_auth(request)
    ready = request.prepare()
    parts = urlsplit(ready.url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lower = {name.lower().encode(): _bytes(value) for name, value in ready.headers.items()}
    lower.setdefault(b"host", parts.netloc.encode())
    return Sent(method, target.encode(), lower, _bytes(ready.body or b""))


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
