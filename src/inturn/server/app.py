"""The endpoint without its HTTP server: from a request through the action and the writer to the answer.

It is here that the parts meet; none of them knows another. A request costs one call of each, and no task of its own.
"""

import time
import uuid
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Protocol

from inturn.database import Database
from inturn.server import errors, wire
from inturn.server.actions import DONE_BY
from inturn.server.actions.moves import Mover
from inturn.server.context import Context, Place, again
from inturn.server.errors import SqsError
from inturn.server.failures import Failures
from inturn.server.http import Reply, Request, Response
from inturn.server.missing import Missing
from inturn.server.naming import Caller
from inturn.server.wire import Call
from inturn.store.commands import Ask, Command, Receive


class Gate(Protocol):
    """Who may do what. Each raises :class:`SqsError` if a request is refused."""

    def admit(self, head: Request) -> None:
        """Look at the head of a request whose body is still to come."""
        ...

    def enter(self, request: Request) -> Any:
        """Who asks, before it is read what for."""
        ...

    def permit(self, who: Any, request: Request, call: Call) -> Caller:
        """Return who asks, and from where."""
        ...

    def first(self, command: Command[Any]) -> Command[Any]:
        """What is done before what a request that was let in asks for; it gives that in the end."""
        ...


class Open:
    """A gate that everybody may pass."""

    def admit(self, head: Request) -> None:
        """Nobody is refused."""

    def enter(self, request: Request) -> None:
        """Nobody must say who they are."""

    def permit(self, who: None, request: Request, call: Call) -> Caller:  # noqa: ARG002 - whatever it is
        """Everybody may do everything."""
        return Caller()

    def first(self, command: Command[Any]) -> Command[Any]:
        """Nothing is to be done before what is asked for."""
        return command


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
        gate: who may do what; None: everybody may everything.
        failures: what is told of those that are not the client's.

    Attributes:
        gate: as given; it may become another while requests come.
    """

    def __init__(
        self,
        db: Database,
        place: Place,
        *,
        gate: Gate | None = None,
        failures: Failures | None = None,
    ) -> None:
        self.counts = Counts()
        self._db = db
        self.gate: Gate = gate or Open()
        self._failures = failures or Failures()
        self._mover = Mover(db.writer, self._failures, is_alone=db.store.servers.shared is None)
        self._context = Context(db=db, place=place, on_move=self._mover.begin)
        self._missing = Missing(self._context, self._failures)
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

    def admit(self, head: Request) -> Response | None:
        """Look at the head of a request whose body is still to come: the answer, if it is refused."""
        began = time.perf_counter()
        try:
            self.gate.admit(head)
        except Exception as error:  # noqa: BLE001 - the client is told what it may know
            return self._refusal("", wire.protocol_of(head), began, error)
        return None

    def handle(self, request: Request, reply: Reply) -> None:
        """Answer a request; called in the event loop, and so is the reply."""
        began = time.perf_counter()
        gate, action = self.gate, ""
        try:
            who = gate.enter(request)  # before anything of it is read
            call = wire.parse(request)
            action = call.action
            context = self._context.to(gate.permit(who, request, call))
            if b"x-amzn-trace-id" in request.headers:
                context = replace(context, trace=request.headers[b"x-amzn-trace-id"].decode("latin-1"))
            self._post(reply, gate.first(self._command(context, call)), partial(self._done, reply, call, began))
        except Exception as error:  # noqa: BLE001 - as above
            reply(self._refusal(action, wire.protocol_of(request), began, error))

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
            reply(self._refusal(call.action, call.protocol, began, error))
            return
        try:
            if isinstance(answer, Command):  # to be done next
                self._post(reply, answer, partial(self._done, reply, call, began))
                return
            response = wire.answered(call, answer, self._id())
        except Exception as failed:  # noqa: BLE001 - as above
            reply(self._refusal(call.action, call.protocol, began, failed))
            return
        self.counts.add(call.action, "", time.perf_counter() - began)
        reply(response)

    def _refusal(self, action: str, protocol: wire.Protocol, began: float, error: BaseException) -> Response:
        told = errors.told(error)
        if not told.sender_fault:
            self._failures.failed(f"{action or 'a request'} failed", error)
        if told.missing is not None:
            self._missing.note(told.missing)
        self.counts.add(action, told.query_code, time.perf_counter() - began)
        return wire.refused(protocol, told, self._id())

    def _id(self) -> str:
        """A request's id, as a UUID: a random part for this run, and a count. It need not be hard to guess."""
        self._ids += 1
        run = self._run
        return f"{run[:8]}-{run[8:12]}-4{run[12:15]}-8{run[15:18]}-{self._ids:012x}"
