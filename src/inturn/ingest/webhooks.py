"""Webhooks: a signed HTTP request becomes a message, once, and is accepted only after the commit.

    app = WebhookApp(db, [Webhook(name="billing", queue="events", signature="stripe", secrets=["whsec_…"])])

``WebhookApp`` is an ASGI application for your own web server; ``inturn serve`` offers the same as ``[[webhooks]]``.
"""

import gzip
import io
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

import msgspec

from inturn.core import limits
from inturn.core.errors import InputError, InturnError, QueueFull
from inturn.core.override import override
from inturn.core.queue.messages import Draft, QueueInfo, QueueSettings, Sent, checked_name
from inturn.database import Database
from inturn.idempotency.asgi import Receive, Scope, read_body
from inturn.idempotency.responses import Send
from inturn.ingest.events import EVENTS
from inturn.ingest.intake import IntakeRule
from inturn.ingest.limits import (
    REJECTED_BYTES,
    REJECTED_RECORDS,
    WEBHOOK_RETRIES_S,
    WEBHOOK_RETRY_AFTER_S,
    WEBHOOK_TOLERANCE_S,
)
from inturn.ingest.mapping import MappingError, MessageMapping
from inturn.ingest.rejections import RejectedLimits, rejected_record
from inturn.ingest.signatures import CHECKS, Scheme, SignatureRefused, key_of, standard_headers
from inturn.ingest.source import SourceRecord
from inturn.store import commands
from inturn.store.commands import Command, StoreCall
from inturn.store.protocols import SqlStore, Store

Verdict: TypeAlias = Literal["accepted", "duplicate", "rejected"]

_IDS: Final[Mapping[Scheme, str | None]] = {
    "standard": "headers.webhook-id",
    "stripe": "body.id",
    "github": "headers.x-github-delivery",
    "none": None,
}
_ATTRIBUTES: Final[Mapping[Scheme, Mapping[str, str]]] = {"github": {"x-github-event": "headers.x-github-event"}}
_SECRET: Final = dict.fromkeys(
    ("authorization", "cookie", "proxy-authorization"), "it is a secret, so it was not stored with the rejected record"
)
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+")


class _RequestHeaders(dict[str, str]):
    """Headers, stored by names in lower case and read by names in any case."""

    @override
    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)


@dataclass(frozen=True, kw_only=True)
class Webhook:
    """A webhook: the destination of its requests, and the check of their sender.

    Args:
        name: its name in the address, ``/webhooks/<name>``, and the name of its rejected requests.
        queue: the queue of the messages; created if it does not exist. It must remember ids for at least
            ``WEBHOOK_RETRIES_S``, since senders retry for days.
        signature: the scheme of the signature: ``standard`` (Standard Webhooks), ``stripe``, ``github``, or ``none``.
        secrets: the secrets, as the sender shows them; several during rotation.
        tolerance_s: the maximum age, and distance into the future, of a signature's time, in seconds.
        mapping: the mapping of a request: ``headers`` and ``body``; there is no ``key``. The default ``id`` is
            ``webhook-id`` (or ``svix-id``), Stripe's event id or ``x-github-delivery``.
        max_rejected: the approximate maximum number of stored rejected requests. Beyond it a request that cannot be
            mapped is answered with 503, so that its sender sends it again.
        max_rejected_bytes: the same for their size, in bytes.

    Raises:
        InputError: if a value is not valid.
    """

    name: str
    queue: str
    signature: Scheme
    secrets: Sequence[str] = field(default=(), repr=False)
    tolerance_s: float = WEBHOOK_TOLERANCE_S
    mapping: MessageMapping = MessageMapping(group=None)  # noqa: RUF009 - a frozen value
    max_rejected: int = REJECTED_RECORDS
    max_rejected_bytes: int = REJECTED_BYTES

    def __post_init__(self) -> None:
        checked_name(self.queue)
        if not _NAME.fullmatch(self.name) or len(self.name) > limits.NAME_LENGTH:
            raise InputError(
                f"invalid webhook name {self.name!r}: 1 to {limits.NAME_LENGTH} letters, digits, _ . and - are allowed"
            )
        if self.signature not in CHECKS:
            raise InputError(f"signature is {self.signature!r}; expected one of {', '.join(CHECKS)}")
        if (self.signature == "none") != (not self.secrets):
            problem = "has secrets, which signature 'none' does not use" if self.secrets else "has no secret"
            raise InputError(
                f"webhook {self.name!r} {problem}; set a signature with at least one secret, or 'none' alone"
            )
        if isinstance(self.secrets, str):
            raise InputError("secrets is a text; expected a list of texts")
        if not self.tolerance_s > 0:
            raise InputError(f"tolerance_s is {self.tolerance_s!r}; expected a number above 0")
        if self.mapping.id is None:
            object.__setattr__(self, "mapping", replace(self.mapping, id=_IDS[self.signature]))
        if self.signature in _ATTRIBUTES:
            attributes = {**_ATTRIBUTES[self.signature], **(self.mapping.attributes or {})}
            object.__setattr__(self, "mapping", replace(self.mapping, attributes=attributes))
        _ = self._keys, self._map, self._rejected_limits  # for their checks

    @cached_property
    def _keys(self) -> tuple[bytes, ...]:
        return tuple(key_of(self.signature, secret) for secret in self.secrets)

    @cached_property
    def _rejected_limits(self) -> RejectedLimits:
        return RejectedLimits(self.max_rejected, self.max_rejected_bytes).validated()

    @cached_property
    def _map(self) -> Callable[[SourceRecord], Draft | None]:
        return self.mapping.compiled()

    def command(self, headers: Mapping[str, str], body: bytes, now_ms: int) -> Command[Verdict]:
        """Check a request and return the command that stores it.

        The signature is checked over the body as sent; only then a compressed body is unpacked. A genuine request that
        cannot be mapped is stored as a rejected record: its sender could only repeat it.

        Raises:
            SignatureRefused: if it is not genuine.
            BodyTooLong: if the body, as sent or unpacked, is longer than a message may be.
        """
        if len(body) > limits.BODY_BYTES:
            raise _too_long(len(body))
        sent = _RequestHeaders({name.lower(): value for name, value in headers.items()})
        CHECKS[self.signature](self._keys, sent, body, now_ms / 1000, self.tolerance_s)
        record = SourceRecord("webhook", None, body, headers=sent, time_ms=now_ms)
        try:
            draft = self._draft(record)
        except MappingError as error:
            return self._reject_command(record, str(error))
        if draft is None:
            return StoreCall("", lambda _store, _now_ms: "accepted")
        return commands.Send(self.queue, _verdict, (draft,))

    @property
    def intake(self) -> IntakeRule:
        """The rule by which requests become messages, for :meth:`SourceControl.resend`; signatures are not checked."""
        return IntakeRule(self.name, self.queue, self._draft)

    def check_name(self, store: Store) -> None:
        """Check that no source of the database has the same name: the two would share their rejected records.

        Raises:
            InputError: if a source has it.
        """
        if cast("SqlStore", store).sources.partitions(self.name):
            raise InputError(
                f"the database has a source {self.name!r}, and the webhook of that name would share its rejected "
                "records: rename the source or the webhook"
            )

    def _draft(self, record: SourceRecord) -> Draft | None:
        sent = cast("Mapping[str, str]", record.headers)
        sent = _RequestHeaders(standard_headers(sent) if self.signature == "standard" else sent)
        body = _decompressed(record.body or b"", sent.get("content-encoding"))
        return self._map(record._replace(body=body, headers=sent))

    def _reject_command(self, record: SourceRecord, reason: str) -> Command[Verdict]:
        rejected = rejected_record(record, reason, _SECRET)

        def reject(store: Store, now_ms: int) -> Verdict:
            self.check_name(store)
            self._rejected_limits.save(cast("SqlStore", store).sources, self.name, [rejected], now_ms, may_drop=False)
            return "rejected"

        return StoreCall("", reject)


class BodyTooLong(InputError):
    """A request with a body that no message can hold."""


def _too_long(length: int) -> BodyTooLong:
    return BodyTooLong(f"the body has {length:,} bytes; at most {limits.BODY_BYTES:,} are allowed")


def _decompressed(body: bytes, encoding: str | None) -> bytes:
    """Return the body as it was before its ``Content-Encoding``; at most the size of a message is held."""
    kind = (encoding or "identity").strip().lower()
    if kind == "identity":
        return body
    if kind not in {"gzip", "x-gzip"}:
        raise MappingError(f"content-encoding is {kind!r:.100}; only gzip is supported")
    try:
        content = gzip.GzipFile(fileobj=io.BytesIO(body)).read(limits.BODY_BYTES + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise MappingError(f"the body is not gzip: {error}") from error
    if len(content) > limits.BODY_BYTES:
        raise BodyTooLong(f"the body has more than {limits.BODY_BYTES:,} bytes when unpacked")
    return content


class WebhookResponse(NamedTuple):
    """The answer to a request: its status, and a sentence for the sender, as JSON.

    Attributes:
        retry_after_s: when it may be repeated, in seconds; None: it need not be repeated.
    """

    status: int
    body: bytes
    retry_after_s: int | None = None


def accepted_response(verdict: Verdict) -> WebhookResponse:
    """Return the answer to a stored request; the same status whether it is new, a duplicate or rejected."""
    return WebhookResponse(202, msgspec.json.encode({"status": verdict}))


def refusal_response(error: BaseException) -> WebhookResponse:
    """Return the answer to a request that was not stored; errors of this side are not told."""
    if isinstance(error, SignatureRefused):
        return WebhookResponse(400 if error.is_malformed else 401, _error_body(str(error)))
    if isinstance(error, BodyTooLong):
        return WebhookResponse(413, _error_body(str(error)))
    if isinstance(error, QueueFull):
        return WebhookResponse(503, _error_body("the queue is full; send the request again"), WEBHOOK_RETRY_AFTER_S)
    return WebhookResponse(503, _error_body("the request could not be stored; send it again"), WEBHOOK_RETRY_AFTER_S)


def check_head(
    webhooks: Mapping[str, Webhook], name: str, method: str, content_length: bytes | None
) -> WebhookResponse | None:
    """Return the answer to a request that is refused before its body is read; None if it is not."""
    if name not in webhooks:
        return WebhookResponse(404, _error_body(f"no webhook {name[: limits.SHOWN_LENGTH]!r}"))
    if method != "POST":
        return WebhookResponse(405, _error_body("a webhook request needs the method POST"))
    if content_length is not None and content_length.isdigit() and int(content_length) > limits.BODY_BYTES:
        return refusal_response(_too_long(int(content_length)))
    return None


def prepare_command(webhooks: Sequence[Webhook]) -> Command[None]:
    """Return the command that creates the queues of webhooks, and checks existing ones.

    It raises InputError if a queue forgets ids while senders still retry, or a source has a webhook's name.
    """

    def prepare(store: Store, now_ms: int) -> None:
        for webhook in webhooks:
            webhook.check_name(store)
            info = store.queues.get(webhook.queue)
            if info is None:
                store.save(webhook.queue, QueueInfo(0, webhook.queue, QueueSettings(dedup_window_s=None), now_ms))
                continue
            window_s = info.settings.dedup_window_s
            if webhook.mapping.id is not None and window_s is not None and window_s < WEBHOOK_RETRIES_S:
                raise InputError(
                    f"queue {webhook.queue!r} of webhook {webhook.name!r} remembers ids for {window_s:g} s, but "
                    "senders retry for days: set its dedup_window_s to None (for ever) or at least "
                    f"{WEBHOOK_RETRIES_S:,}"
                )

    return StoreCall("", prepare)


class WebhookApp:
    """An ASGI application that receives webhooks: the last part of a request's path is the webhook's name.

    Mount it in Starlette or FastAPI: ``app.mount("/webhooks", WebhookApp(db, webhooks))``.

    Args:
        db: the database with the queues; it stays open.
        webhooks: the webhooks.

    Raises:
        InputError: if two webhooks or a source have the same name, or a queue forgets ids too early.
    """

    def __init__(self, db: Database, webhooks: Sequence[Webhook]) -> None:
        self._db, self._webhooks = db, by_name(webhooks)
        db.writer.run(prepare_command(webhooks))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of the ASGI server."""
        if scope["type"] != "http":
            return
        name = scope["path"].rpartition("/")[2]
        length = dict(scope["headers"]).get(b"content-length")
        answer = check_head(self._webhooks, name, scope["method"], length)
        if answer is None:
            body = await read_body(receive, limits.BODY_BYTES)
            if body is None:
                return
            answer = await self._answer(self._webhooks[name], scope["headers"], body)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer.body))]
        if answer.retry_after_s is not None:
            headers.append((b"retry-after", b"%d" % answer.retry_after_s))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def _answer(self, webhook: Webhook, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> WebhookResponse:
        sent = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
        try:
            return accepted_response(await self._db.writer.arun(webhook.command(sent, body, self._db.writer.clock())))
        except InturnError as error:
            if not isinstance(error, SignatureRefused | BodyTooLong):
                text = "webhook %(webhook)s: %(error)s"
                EVENTS.warning("refused", webhook.name, text, webhook=webhook.name, error=str(error))
            return refusal_response(error)


def by_name(webhooks: Sequence[Webhook]) -> dict[str, Webhook]:
    """Return webhooks by their names.

    Raises:
        InputError: if two have the same name.
    """
    indexed = {webhook.name: webhook for webhook in webhooks}
    if len(indexed) < len(webhooks):
        raise InputError(f"two webhooks have the same name; names: {', '.join(webhook.name for webhook in webhooks)}")
    return indexed


def _verdict(sent: Sequence[Sent]) -> Verdict:
    return "duplicate" if sent[0].duplicate else "accepted"


def _error_body(text: str) -> bytes:
    return msgspec.json.encode({"error": text})
