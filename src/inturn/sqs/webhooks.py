"""The webhooks of the endpoint: ``POST /webhooks/<name>``, next to the API and under the same limits."""

import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from inturn.database import Database
from inturn.ingest.signatures import SignatureRefused
from inturn.ingest.webhooks import (
    BodyTooLong,
    Verdict,
    Webhook,
    WebhookResponse,
    accepted_response,
    by_name,
    check_head,
    prepare_command,
    refusal_response,
)
from inturn.serving.http.failures import FailureLog
from inturn.serving.http.http1 import Reply, Request, Response
from inturn.sqs.errors import SqsError
from inturn.sqs.loopback import LoopbackAccess
from inturn.sqs.metrics import RequestCounts

_PATH: Final = b"/webhooks/"
_ACTION: Final = "Webhook"
"""The action of these requests in the metrics."""


class WebhookRoutes:
    """The requests of webhooks. They are authenticated by their signature, not by the access keys of the API.

    Args:
        db: the database with the queues.
        webhooks: the webhooks.
        local: the check that refuses web pages, for webhooks without a signature.
        counts: counts the requests.
        failures: the log of failures.
    """

    def __init__(
        self,
        db: Database,
        webhooks: Sequence[Webhook],
        local: LoopbackAccess,
        counts: RequestCounts,
        failures: FailureLog,
    ) -> None:
        self._db = db
        self._webhooks = by_name(webhooks)
        self._local = local
        self._counts = counts
        self._failures = failures

    async def start(self) -> None:
        """Create the missing queues.

        Raises:
            InputError: if a queue forgets deduplication ids while senders may still retry.
            StoreError: if the database cannot be used.
        """
        await self._db.writer.arun(prepare_command(list(self._webhooks.values())))

    def matches(self, request: Request) -> bool:
        """Return whether a request is for a webhook, and not for the API."""
        return bool(self._webhooks) and request.target.startswith(_PATH)

    def admit(self, head: Request) -> Response | None:
        """Check the head of a request before its body arrives; return the response if it is refused, else None."""
        began = time.perf_counter()
        name = _name(head)
        answer = check_head(self._webhooks, name, head.method, head.headers.get(b"content-length"))
        if answer is None and self._webhooks[name].signature == "none" and not self._is_local(head):
            answer = WebhookResponse(
                403, b'{"error":"this webhook has no signature, so it refuses requests from web pages"}'
            )
        return None if answer is None else self._response(answer, began)

    def handle(self, request: Request, reply: Reply) -> None:
        """Answer a request; this and the reply are called in the event loop."""
        began = time.perf_counter()
        refusal = self.admit(request)
        if refusal is not None:
            reply(refusal)
            return
        webhook = self._webhooks[_name(request)]
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers.items()}
        try:
            command = webhook.command(headers, request.body, self._db.writer.clock())
            self._db.writer.post(command, partial(self._done, webhook, reply, began))
        except Exception as error:  # noqa: BLE001 - the sender is answered in any case
            self._done(webhook, reply, began, None, error)

    def _done(
        self, webhook: Webhook, reply: Reply, began: float, verdict: Verdict | None, error: BaseException | None
    ) -> None:
        if error is None and verdict is not None:
            reply(self._response(accepted_response(verdict), began))
            return
        if isinstance(error, SignatureRefused | BodyTooLong):
            name, text = webhook.name, "a request to webhook %(webhook)s is refused: %(error)s"
            self._failures.warning("refused", f"{name}: {error}", text, webhook=name, error=str(error))
        elif error is not None:
            self._failures.failed(f"a request to webhook {webhook.name} failed", error)
        reply(self._response(refusal_response(error or RuntimeError()), began))

    def _is_local(self, head: Request) -> bool:
        try:
            self._local.admit(head)
        except SqsError:
            return False
        return True

    def _response(self, answer: WebhookResponse, began: float) -> Response:
        code = "" if answer.status == 202 else str(answer.status)
        self._counts.add(_ACTION, code, time.perf_counter() - began)
        retry_after_s = answer.retry_after_s
        headers = () if retry_after_s is None else ((b"Retry-After", b"%d" % retry_after_s),)
        return Response(answer.status, answer.body, "application/json", headers)


def _name(request: Request) -> str:
    return request.target.partition(b"?")[0].removeprefix(_PATH).decode("latin-1")
