"""The endpoint without its HTTP server: from a request through the action and the writer to the answer.

It is here that the parts meet; none of them knows another. A request costs one call of each, and no task of its own.
"""

import logging
import time
import uuid
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from inturn.database import Database
from inturn.server import errors, wire
from inturn.server.actions import DONE_BY
from inturn.server.actions.moves import Mover
from inturn.server.context import Context, Place, again
from inturn.server.errors import SqsError
from inturn.server.http import Reply, Request
from inturn.server.missing import Missing
from inturn.server.naming import Caller
from inturn.server.wire import Call
from inturn.store.commands import Ask, Command, Receive

_LOG: Final = logging.getLogger(__name__)

Check = Callable[[Request, Call], Caller]
"""Who may do this: raises :class:`SqsError` if nobody of that signature may, else says who asks."""

BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""The upper ends of the classes in which latencies are counted, in seconds; one more class is beyond the last."""


@dataclass
class Latency:
    """How long the requests of an action took: how many fell into each class of :data:`BOUNDS_S`, and their sum."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    sum_s: float = 0.0


class Counts:
    """What was asked and how it went, for who wants to show it; changed in the event loop only.

    Attributes:
        requests: how many, by action and code: "" for success, else the Query protocol's code; an action that could
            not be read is "".
        latencies: how long they took, by action, from the parsed request to the answer; a long poll's wait included.
    """

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        self.latencies: defaultdict[str, Latency] = defaultdict(Latency)

    def add(self, action: str, code: str, took_s: float) -> None:
        """A request was answered."""
        self.requests[action, code] += 1
        latency = self.latencies[action]
        latency.counts[bisect_left(BOUNDS_S, took_s)] += 1
        latency.sum_s += took_s


class App:
    """Answers requests over a database.

    Args:
        db: the queues.
        place: account, region and base URL.
        check: who may do what; None: everybody may everything.
        first: what is done before what a request that was just let in asks for; it gives that in the end.
    """

    def __init__(
        self,
        db: Database,
        place: Place,
        *,
        check: Check | None = None,
        first: Callable[[Command[Any]], Command[Any]] = lambda command: command,
    ) -> None:
        self.counts = Counts()
        self._db = db
        self._check = check
        self._first = first
        self._mover = Mover(db.writer, is_alone=db.store.servers.shared is None)
        self._context = Context(db=db, place=place, on_move=self._mover.begin)
        self._missing = Missing(self._context)
        self._ids = 0
        self._run = uuid.uuid4().hex[:20]

    async def start(self) -> None:
        """Read what queues there are, and go on with their move tasks.

        Raises:
            StoreError: if the database cannot be used.
        """
        await self._db.writer.arun(Ask("", lambda _store, _now_ms: None))
        await self._mover.resume()

    async def look(self) -> None:
        """Go on with what another server has left.

        Raises:
            StoreError: if the database cannot be used.
        """
        await self._mover.resume()

    async def stop(self) -> None:
        """Stop what runs by itself; requests are answered still."""
        await self._mover.stop()

    def handle(self, request: Request, reply: Reply) -> None:
        """Answer a request; called in the event loop, and so is the reply."""
        began = time.perf_counter()
        try:
            call = wire.parse(request)
        except SqsError as error:
            self._refuse(reply, "", wire.protocol_of(request), began, error)
            return
        try:
            context = self._context if self._check is None else self._context.to(self._check(request, call))
            if b"x-amzn-trace-id" in request.headers:
                context = replace(context, trace=request.headers[b"x-amzn-trace-id"].decode("latin-1"))
            self._post(reply, self._first(self._command(context, call)), partial(self._done, reply, call, began))
        except Exception as error:  # noqa: BLE001 - the client is told what it may know
            self._refuse(reply, call.action, call.protocol, began, error)

    @staticmethod
    def _command(context: Context, call: Call) -> Command[Any]:
        action = DONE_BY[call.action]
        try:
            return action(context, call.params)
        except SqsError:
            return again(action, context, call.params)

    def _post(self, reply: Reply, command: Command[Any], done: Callable[[Any, BaseException | None], None]) -> None:
        abandon = self._db.writer.post(command, done)
        if isinstance(command, Receive):  # whose client may hang up, and messages are not for who is gone
            reply.on_gone = abandon

    def _done(self, reply: Reply, call: Call, began: float, answer: Any, error: BaseException | None) -> None:
        if error is not None:
            self._refuse(reply, call.action, call.protocol, began, error)
            return
        try:
            if isinstance(answer, Command):  # to be done next
                self._post(reply, answer, partial(self._done, reply, call, began))
                return
            response = wire.answered(call, answer, self._id())
        except Exception as failed:  # noqa: BLE001 - as above
            self._refuse(reply, call.action, call.protocol, began, failed)
            return
        self.counts.add(call.action, "", time.perf_counter() - began)
        reply(response)

    def _refuse(self, reply: Reply, action: str, protocol: wire.Protocol, began: float, error: BaseException) -> None:
        told = errors.told(error)
        if not told.sender_fault:
            _LOG.error("%s failed", action or "a request", exc_info=error)
        if told.missing is not None:
            self._missing.note(told.missing)
        self.counts.add(action, told.query_code, time.perf_counter() - began)
        reply(wire.refused(protocol, told, self._id()))

    def _id(self) -> str:
        """A request's id, as a UUID: a random part for this run, and a count. It need not be hard to guess."""
        self._ids += 1
        run = self._run
        return f"{run[:8]}-{run[8:12]}-4{run[12:15]}-8{run[15:18]}-{self._ids:012x}"
