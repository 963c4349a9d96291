"""Delivery to an HTTP endpoint: a POST with ``Idempotency-Key``, signed as in Standard Webhooks."""

import base64
import binascii
import datetime as dt
import hashlib
import hmac
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any, Final

from inturn.core import limits
from inturn.core.address import shown
from inturn.core.errors import DeliveryError, DeliveryRefused, InputError
from inturn.core.override import override
from inturn.deliver.fields import body_of

_TRANSIENT: Final = frozenset({408, 409, 425, 429})
"""Statuses below 500 that may change on retry; 409: the first request with this key is still running."""
_DENIED: Final = frozenset({401, 403, 404})
"""Statuses that are temporary while the endpoint is being deployed or its key rotated."""


class http:  # noqa: N801 - it is called as a function is
    """Deliver outputs by POST, as JSON.

    ``Idempotency-Key`` and ``webhook-id`` are the effect id. A status of 2xx is success. 408, 409, 425, 429, 5xx and
    errors of the network are tried again, with the worker's pauses or after ``Retry-After`` if that is later. So are
    401, 403 and 404 for some time. All other statuses, redirects too, refuse the output for good.

    Args:
        url: the endpoint.
        secret: the secret of a Standard Webhooks signature, ``whsec_`` and base64; several during rotation.
        headers: further headers.
        timeout_s: the maximum silence of the endpoint, in seconds.
        denied_s: the time for which an output is retried while the endpoint answers 401, 403 or 404, in seconds. It
            counts from the first such answer to this process, and restarts after any other answer.

    Raises:
        InputError: if the address, a secret or ``denied_s`` is not valid.
    """

    def __init__(
        self,
        url: str,
        *,
        secret: str | Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        timeout_s: float = limits.DELIVER_TIMEOUT_S,
        denied_s: float = limits.DELIVER_DENIED_S,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise InputError(f"url is {shown(url)!r}; expected an address that begins with https:// or http://")
        if not denied_s >= 0:
            raise InputError(f"denied_s is {denied_s!r}; expected a number of seconds, 0 or more")
        self._denied_s, self._denied_since = denied_s, dict[str, float]()  # by effect id
        self._url, self._headers, self._timeout_s = url, dict(headers or {}), timeout_s
        self._secrets = [_key(value) for value in ([secret] if isinstance(secret, str) else secret)]
        self._opener = urllib.request.build_opener(_NoRedirects)

    def __call__(self, output: Any, effect_id: str) -> None:
        """Deliver one output."""
        body = body_of(output)
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "inturn",
            **self._headers,
            # A string of RFC 8941, as draft-ietf-httpapi-idempotency-key-header has it.
            "Idempotency-Key": f'"{effect_id}"',
            **self._signature(effect_id, body),
        }
        denied_since_s = self._denied_since.pop(effect_id, None)
        request = urllib.request.Request(self._url, body, headers, method="POST")  # noqa: S310 - checked above
        try:
            with self._opener.open(request, timeout=self._timeout_s):
                return
        except urllib.error.HTTPError as error:
            with error:
                text = error.read(limits.SHOWN_LENGTH).decode(errors="replace")
            message = f"{shown(self._url)} answered {error.code} {error.reason}: {text}"
            if self._is_transient(error.code, effect_id, denied_since_s):
                pause_s = _retry_after_s(error.headers.get("Retry-After", ""))
                raise DeliveryError(message, retry_after_s=pause_s) from None
            raise DeliveryRefused(message) from None
        except (OSError, HTTPException) as error:
            raise DeliveryError(f"{shown(self._url)} cannot be reached: {error!r}") from error

    def _is_transient(self, status: int, effect_id: str, denied_since_s: float | None) -> bool:
        """Return whether a retry may succeed."""
        if status not in _DENIED:
            return status in _TRANSIENT or status >= 500
        now_s = time.monotonic()
        since_s = now_s if denied_since_s is None else denied_since_s
        if now_s - since_s >= self._denied_s:
            return False
        if len(self._denied_since) >= limits.KNOWN_GROUPS:  # such as of outputs delivered by other processes since
            self._denied_since.clear()
        self._denied_since[effect_id] = since_s
        return True

    def _signature(self, effect_id: str, body: bytes) -> dict[str, str]:
        """Return the headers of Standard Webhooks 1.0."""
        if not self._secrets:
            return {}
        now = str(int(time.time()))
        signed = b".".join((effect_id.encode(), now.encode(), body))
        signatures = [base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode() for key in self._secrets]
        return {
            "webhook-id": effect_id,
            "webhook-timestamp": now,
            "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
        }


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follow no redirect: it would turn the POST into a GET."""

    @override
    def redirect_request(self, *_: Any) -> None:
        return None


def _retry_after_s(text: str) -> float:
    """Return the pause that a ``Retry-After`` of RFC 9110 asks for, in seconds; 0 if it is not valid."""
    text = text.strip()
    try:
        if text.isascii() and text.isdigit():
            return int(text)
        retry_time = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    return (
        retry_time.replace(tzinfo=retry_time.tzinfo or dt.UTC).timestamp() - time.time()
    )  # the form of asctime has no zone


def _key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        raise InputError("the secret is not valid; expected whsec_ and base64 (Standard Webhooks)")
    return key
