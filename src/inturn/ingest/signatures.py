"""Signatures of webhooks: from bytes, headers, secrets and a time to a verdict.

Three schemes, with the same verdicts as the senders' own verifiers: `Standard Webhooks
<https://www.standardwebhooks.com>`_, Stripe and GitHub. Several secrets are for rotation: one of them must match.
"""

import base64
import hashlib
import hmac
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from inturn.core.errors import InputError

Scheme: TypeAlias = Literal["standard", "stripe", "github", "none"]
Check: TypeAlias = Callable[[Sequence[bytes], Mapping[str, str], bytes, float, float], None]
"""Called with the keys, the headers by their names in lower case, the body, the time and the tolerance in seconds."""

_STANDARD: Final = ("id", "timestamp", "signature")


class SignatureRefused(InputError):
    """A signature that is missing, malformed, wrong, or has a time outside the tolerance.

    Attributes:
        is_malformed: whether the headers contain no signature that could be checked.
    """

    def __init__(self, text: str, *, is_malformed: bool = False) -> None:
        super().__init__(text)
        self.is_malformed = is_malformed


def key_of(scheme: Scheme, secret: str) -> bytes:
    """Return the key of a secret: decoded for Standard Webhooks, the text itself, prefix included, for the others.

    Raises:
        InputError: if the secret is not valid; the text does not show it.
    """
    if scheme != "standard":
        key = secret.encode()
    else:
        try:
            key = base64.b64decode(secret.removeprefix("whsec_") + "==")
        except ValueError:
            raise InputError("a secret is not valid; expected Base64 after 'whsec_' (Standard Webhooks)") from None
    if not key.strip():
        raise InputError("a secret is empty, so anyone could sign with it; set another")
    return key


def standard_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return the headers of Standard Webhooks as ``webhook-…``, also if they were sent as ``svix-…``.

    The two are not mixed: if there is any ``webhook-…`` header, ``svix-…`` headers are ignored, so that the id is
    always the signed one.
    """
    if _prefix(headers) == "webhook":
        return headers
    return {
        **headers,
        **{f"webhook-{name}": headers[f"svix-{name}"] for name in _STANDARD if f"svix-{name}" in headers},
    }


def _prefix(headers: Mapping[str, str]) -> Literal["webhook", "svix"]:
    """Return the prefix of the header names with which a request is signed."""
    has_svix, has_own = (any(f"{prefix}-{name}" in headers for name in _STANDARD) for prefix in ("svix", "webhook"))
    return "svix" if has_svix and not has_own else "webhook"


def check_standard(
    keys: Sequence[bytes], headers: Mapping[str, str], body: bytes, now_s: float, tolerance_s: float
) -> None:
    """Check a request of Standard Webhooks: ``webhook-id``, ``webhook-timestamp`` and ``webhook-signature``.

    The older names ``svix-id``, ``svix-timestamp`` and ``svix-signature`` mean the same.

    Raises:
        SignatureRefused: if it is not genuine, or its time is too far from now, in either direction.
    """
    prefix = _prefix(headers)
    id_, time, signatures = (_required(headers, f"{prefix}-{name}") for name in _STANDARD)
    try:
        at_s = math.floor(float(time))
    except (ValueError, OverflowError):
        raise _malformed(f"{prefix}-timestamp is not a number") from None
    _check_time(f"{prefix}-timestamp", float(time), now_s, tolerance_s)
    signed = f"{id_}.{at_s}.".encode() + body
    expected = [_hmac(key, signed).digest() for key in keys]
    for entry in signatures.split(" "):
        version, comma, text = entry.partition(",")
        if not comma or "," in text:
            raise _malformed(f"{prefix}-signature is not a list of version,signature")
        if version != "v1":
            continue
        try:
            signature = base64.b64decode(text)
        except ValueError:
            raise _malformed(f"{prefix}-signature has a signature that is not Base64") from None
        if _is_one_of(signature, expected):
            return
    raise SignatureRefused("no signature matches")


def check_stripe(
    keys: Sequence[bytes], headers: Mapping[str, str], body: bytes, now_s: float, tolerance_s: float
) -> None:
    """Check a request of Stripe, by its ``stripe-signature``. A time in the future is accepted, as Stripe does.

    Raises:
        SignatureRefused: if it is not genuine, or too old.
    """
    pairs = [pair.split("=", 2) for pair in _required(headers, "stripe-signature").split(",")]
    try:
        at_s = int(next(pair[1] for pair in pairs if pair[0] == "t"))
        received = [pair[1].encode() for pair in pairs if pair[0] == "v1"]
    except (StopIteration, IndexError, ValueError):
        raise _malformed("stripe-signature is not t=<seconds>,v1=<signature>") from None
    signed = b"%d." % at_s + body
    expected = [_hmac(key, signed).hexdigest().encode() for key in keys]
    if not any(_is_one_of(signature, expected) for signature in received):
        raise SignatureRefused("no signature matches")
    _check_time("the time in stripe-signature", at_s, now_s, tolerance_s, is_future_fine=True)


def check_github(
    keys: Sequence[bytes],
    headers: Mapping[str, str],
    body: bytes,
    now_s: float,  # noqa: ARG001 - the signature has no time
    tolerance_s: float,  # noqa: ARG001 - as above
) -> None:
    """Check a request of GitHub, by its ``x-hub-signature-256``, which covers the body only.

    Raises:
        SignatureRefused: if it is not genuine.
    """
    kind, _, signature = _required(headers, "x-hub-signature-256").partition("=")
    if kind != "sha256" or not signature:
        raise _malformed("x-hub-signature-256 is not sha256=<signature>")
    if not _is_one_of(signature.encode(), [_hmac(key, body).hexdigest().encode() for key in keys]):
        raise SignatureRefused("the signature does not match")


CHECKS: Final[Mapping[Scheme, Check]] = {
    "standard": check_standard,
    "stripe": check_stripe,
    "github": check_github,
    "none": lambda _keys, _headers, _body, _now_s, _tolerance_s: None,
}


def _required(headers: Mapping[str, str], name: str) -> str:
    """Return the value of a header that a signature needs; an empty header counts as missing."""
    if not (value := headers.get(name)):
        raise _malformed(f"the header {name} is missing")
    return value


def _check_time(label: str, at_s: float, now_s: float, tolerance_s: float, *, is_future_fine: bool = False) -> None:
    if not at_s >= now_s - tolerance_s:
        raise SignatureRefused(f"{label} is too old: at most {tolerance_s:g} seconds are tolerated")
    if at_s > now_s + tolerance_s and not is_future_fine:
        raise SignatureRefused(f"{label} is too far in the future: at most {tolerance_s:g} seconds are tolerated")


def _hmac(key: bytes, data: bytes) -> hmac.HMAC:
    return hmac.new(key, data, hashlib.sha256)


def _is_one_of(signature: bytes, expected: Sequence[bytes]) -> bool:
    return any(hmac.compare_digest(signature, candidate) for candidate in expected)


def _malformed(text: str) -> SignatureRefused:
    return SignatureRefused(text, is_malformed=True)
