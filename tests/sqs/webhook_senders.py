"""Senders of webhooks: signed requests of each scheme, as their senders make them."""

import datetime as dt
import hashlib
import hmac
import json
import time
import urllib.error
import urllib.request
from email.message import Message
from typing import Any, NamedTuple

import standardwebhooks

STANDARD, STRIPE, GITHUB = "whsec_aW50dXJuLXRlc3Qtc2VjcmV0LUEtMDAw", "whsec_stripe_1", "It's a secret"


class Told(NamedTuple):
    status: int
    headers: Message
    body: bytes

    @property
    def verdict(self) -> str:
        return f"{self.status} {json.loads(self.body).get('status')}"


def post(url: str, body: bytes, headers: dict[str, str], method: str = "POST") -> Told:
    request = urllib.request.Request(url, body, headers, method=method)  # noqa: S310 - of a test
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            return Told(answer.status, answer.headers, answer.read())
    except urllib.error.HTTPError as error:
        return Told(error.code, error.headers, error.read())


def standard(id_: str, body: bytes, at_s: float | None = None, secret: str = STANDARD) -> dict[str, str]:
    moment = dt.datetime.fromtimestamp(int(time.time() if at_s is None else at_s), dt.UTC)
    signature = standardwebhooks.Webhook(secret).sign(id_, moment, body.decode("latin-1") if body else "")
    return {"Webhook-Id": id_, "Webhook-Timestamp": str(int(moment.timestamp())), "Webhook-Signature": signature}


def stripe(body: bytes, at_s: float | None = None, secret: str = STRIPE) -> dict[str, str]:
    time_s = int(time.time() if at_s is None else at_s)
    digest = hmac.new(secret.encode(), f"{time_s}.".encode() + body, hashlib.sha256).hexdigest()
    return {"Stripe-Signature": f"t={time_s},v1={digest}"}


def github(delivery: str, event: str, body: bytes) -> dict[str, str]:
    digest = hmac.new(GITHUB.encode(), body, hashlib.sha256).hexdigest()
    return {"X-GitHub-Delivery": delivery, "X-GitHub-Event": event, "X-Hub-Signature-256": f"sha256={digest}"}


def encoded(content: Any) -> bytes:
    return json.dumps(content).encode()
