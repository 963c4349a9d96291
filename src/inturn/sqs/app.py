"""The endpoint without its HTTP server: from a request through the action and the writer to the response.

This module connects the parts, which are independent of each other. A request costs one call of each part and no
asyncio task of its own.
"""

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from inturn.database import Database
from inturn.serving.http.failures import FailureLog
from inturn.serving.http.http1 import Reply, Request, Response
from inturn.sqs import errors, wire
from inturn.sqs.actions import DONE_BY
from inturn.sqs.actions.moves import Mover
from inturn.sqs.context import Context, Permit, QueueNaming, in_transaction, store_command
from inturn.sqs.errors import SqsError
from inturn.sqs.metrics import RequestCounts
from inturn.sqs.naming import RequestOrigin, scope_of
from inturn.sqs.wire import ApiCall
from inturn.store.commands import Command, Receive, StoreCall
from inturn.store.protocols import Store


class AccessCheck(Protocol):
    """Authentication and authorisation. Each method raises :class:`SqsError` if a request is refused."""

    def admit(self, head: Request) -> None:
        """Check the head of a request before its body arrives."""
        ...

    def authenticate(self, request: Request) -> Any:
        """Return the signer, before the request's parameters are read."""
        ...

    def authorize(self, signer: Any, request: Request, call: ApiCall) -> Permit:
        """Check that the signer may perform the call; return the caller, and the checks that need a transaction."""
        ...


class OpenAccess:
    """An access check that permits every request."""

    def admit(self, head: Request) -> None:
        """Accept every head."""

    def authenticate(self, request: Request) -> None:
        """Accept requests without a signature."""

    def authorize(self, signer: None, request: Request, call: ApiCall) -> Permit:  # noqa: ARG002 - nothing is checked
        """Permit every action."""
        return Permit(RequestOrigin())


class App:
    """Answers API requests over a database.

    Attributes:
        access: authentication and authorisation, which by default permits everything; it may be replaced while requests
            arrive.
        show_page: shows the page that a GET or HEAD requests, and returns whether it requests a page; without a reply
            it only returns that.
    """

    def __init__(
        self,
        db: Database,
        naming: QueueNaming,
        *,
        access: AccessCheck | None = None,
        failures: FailureLog | None = None,
    ) -> None:
        self.counts = RequestCounts()
        self._db = db
        self.access: AccessCheck = access or OpenAccess()
        self.show_page: Callable[[Request, Reply | None], bool] = lambda _request, _reply: False
        self._failures = failures or FailureLog()
        self._mover = Mover(db.writer, self._failures)
        self._context = Context(db=db, naming=naming, on_move=self._mover.begin)
        self._ids = 0
        self._run = uuid.uuid4().hex[:20]

    async def start(self) -> None:
        """Read the existing queues and resume their move tasks.

        Raises:
            StoreError: if the database cannot be used.
        """
        await self._db.writer.arun(StoreCall("", lambda _store, _now_ms: None))
        await self._mover.resume()

    async def resume_moves(self) -> None:
        """Resume move tasks that another server has stopped running.

        Raises:
            StoreError: if the database cannot be used.
        """
        await self._mover.resume()

    async def stop(self) -> None:
        """Stop the background move tasks; requests are still answered."""
        await self._mover.stop()

    def admit(self, head: Request) -> Response | None:
        """Check the head of a request before its body arrives; return the response if it is refused, else None."""
        began = time.perf_counter()
        if head.method != "POST" and self.show_page(head, None):
            return None
        try:
            self.access.admit(head)
        except Exception as error:  # noqa: BLE001 - the client receives an error without details
            return self._refusal("", wire.protocol_of(head), began, error)
        return None

    def handle(self, request: Request, reply: Reply) -> None:
        """Answer a request; this and the reply are called in the event loop."""
        if request.method != "POST" and self.show_page(request, reply):
            return
        began = time.perf_counter()
        access, action = self.access, ""
        try:
            signer = access.authenticate(request)  # before the parameters are parsed
            call = wire.parse(request)
            action = call.action
            caller, checks = access.authorize(signer, request, call)
            context = self._context.for_caller(caller)
            if b"x-amzn-trace-id" in request.headers:
                context = replace(context, trace=request.headers[b"x-amzn-trace-id"].decode("latin-1"))
            command = self._command(context, call)
            first = _checking(checks, command) if checks else command
            self._post(reply, first, partial(self._done, reply, call, began))
        except Exception as error:  # noqa: BLE001 - as above
            reply(self._refusal(action, wire.protocol_of(request), began, error))

    @staticmethod
    def _command(context: Context, call: ApiCall) -> Command[Any]:
        action = DONE_BY[call.action]
        try:
            return action(context, call.params)
        except SqsError:
            return in_transaction(action, context, call.params)

    def _post(self, reply: Reply, command: Command[Any], done: Callable[[Any, BaseException | None], None]) -> None:
        abandon = self._db.writer.post(command, done)
        if isinstance(command, Receive):  # a disconnected client must not receive messages
            reply.on_disconnect = abandon

    def _done(self, reply: Reply, call: ApiCall, began: float, answer: Any, error: BaseException | None) -> None:
        if error is not None:
            reply(self._refusal(call.action, call.protocol, began, error))
            return
        try:
            if isinstance(answer, Command):  # a follow-up command
                self._post(reply, answer, partial(self._done, reply, call, began))
                return
            response = wire.answered(call, answer, self._id())
        except Exception as failed:  # noqa: BLE001 - as above
            reply(self._refusal(call.action, call.protocol, began, failed))
            return
        self.counts.add(call.action, "", time.perf_counter() - began)
        reply(response)

    def _refusal(self, action: str, protocol: wire.Protocol, began: float, error: BaseException) -> Response:
        sqs_error = errors.as_sqs_error(error)
        if not sqs_error.sender_fault:
            self._failures.failed(f"{action or 'a request'} failed", error)
        if sqs_error.missing is not None:
            self._note_missing(sqs_error.missing)
        self.counts.add(action, sqs_error.query_code, time.perf_counter() - began)
        return wire.refused(protocol, sqs_error, self._id())

    def _note_missing(self, queue: str) -> None:
        """Log a queue that was not found, if its name exists in another region or account; only for the log."""
        home = self._context.home
        scope, name = scope_of(home, queue)
        scoped = [scope_of(home, key) for key in list(self._db.store.queues)]  # another thread may add queues
        other_scopes = sorted(str(scope) for scope, other in scoped if other == name)
        if other_scopes:
            text = "queue %(queue)r was requested in %(scope)s, but exists in %(others)s"
            self._failures.warning(
                "wrong_region", queue, text, queue=name, scope=str(scope), others=", ".join(other_scopes)
            )

    def _id(self) -> str:
        """Return a request id as a UUID: a random part for this run, and a counter. It need not be hard to guess."""
        self._ids += 1
        run = self._run
        return f"{run[:8]}-{run[8:12]}-4{run[12:15]}-8{run[15:18]}-{self._ids:012x}"


def _checking(checks: Sequence[Callable[[Store], None]], command: Command[Any]) -> Command[Any]:
    """Return a command that runs the checks and then the given command."""
    return store_command(lambda store, _now_ms: [check(store) for check in checks], lambda _none: command)
