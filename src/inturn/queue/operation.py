"""Methods that threads call and tasks await, without a second class for either.

The body of an operation returns a command. Calling the operation runs the command; its ``aio`` awaits it:
``queue.send(body)`` and ``await queue.send.aio(body)``.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeAlias, TypeVar, overload

from inturn.core.errors import InputError, InturnError
from inturn.store.commands import Command, OpenTransaction, Transaction
from inturn.telemetry import observer

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
_Observed: TypeAlias = AbstractContextManager[observer.Observation]


class Runner(Protocol):
    """Something that runs commands: a writer, or a substitute."""

    def run(self, command: Command[T]) -> T:
        """Run a command from a thread."""
        ...

    async def arun(self, command: Command[T]) -> T:
        """Run a command from a task."""
        ...


class HasWriter(Protocol):
    """An object with operations."""

    @property
    def writer(self) -> Runner:
        """The runner of its commands, each in its own transaction."""
        ...


S = TypeVar("S", bound=HasWriter)


class Bound(Generic[P, T_co]):
    """An operation bound to an object."""

    __slots__ = ("_command", "_writer")

    def __init__(self, command: Callable[P, Command[T_co]], writer: Runner) -> None:
        self._command = command
        self._writer = writer

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T_co:
        """Run the operation; its effect is durable on return."""
        if observer.active is not None and (call := observer.active.operation(self._command)) is not None:
            return self._observed(call, *args, **kwargs)
        command = self._command(*args, **kwargs)
        return self._writer.run(command) if command.tx is None else _joined(self._writer, command.tx).run(command)

    def aio(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T_co]:
        """Run the operation without blocking the event loop."""
        if observer.active is not None and (call := observer.active.operation(self._command)) is not None:
            return self._aobserved(call, *args, **kwargs)
        command = self._command(*args, **kwargs)
        return self._writer.arun(command) if command.tx is None else _joined(self._writer, command.tx).arun(command)

    def _observed(self, observed: _Observed, *args: P.args, **kwargs: P.kwargs) -> T_co:
        with observed as call:
            command = self._command(*args, **kwargs)
            answer = _runner(self._writer, command.tx).run(command)
            call.answered(answer)
            return answer

    async def _aobserved(self, observed: _Observed, *args: P.args, **kwargs: P.kwargs) -> T_co:
        with observed as call:
            command = self._command(*args, **kwargs)
            answer = await _runner(self._writer, command.tx).arun(command)
            call.answered(answer)
            return answer

    async def aio_to_the_end(self, *args: P.args, **kwargs: P.kwargs) -> T_co:
        """Run the operation without blocking the event loop, and deliver a cancellation only once it is done.

        The outcome of a cancelled call is unknown, so the call is repeated. It must change nothing the second time. An
        error of the repeated call proves nothing, so it becomes a note on the cancellation. No extra task is used,
        since the end of the event loop would cancel that too.
        """
        cancelled: asyncio.CancelledError | None = None
        while True:
            try:
                answer = await self.aio(*args, **kwargs)
            except asyncio.CancelledError as error:
                cancelled = error
                continue
            except InturnError as refusal:
                if cancelled is None:
                    raise
                cancelled.add_note(f"the call was repeated after the cancellation, and failed: {refusal}")
            if cancelled is not None:
                raise cancelled
            return answer


def _runner(writer: Runner, tx: Transaction | None) -> Runner:
    return writer if tx is None else _joined(writer, tx)


def _joined(writer: Runner, tx: Transaction) -> OpenTransaction:
    """Return the runner for commands in a caller's transaction, if the transaction belongs to this database."""
    if isinstance(tx, OpenTransaction):
        is_own: Callable[[str], bool] | None = getattr(writer, "is_own", None)
        if is_own is None or not is_own(tx.identity):
            raise InputError(
                "tx is a transaction of another database; pass one of transaction() of this Database, or of another "
                "Database over the same file or tables"
            )
        return tx
    adopt: Callable[[Any], OpenTransaction] | None = getattr(writer, "adopt", None)
    if adopt is None:
        raise InputError(f"tx is {tx!r}; expected the transaction of `with db.transaction() as tx:`")
    return adopt(tx)


class Operation(Generic[S, P, T_co]):
    """A method that returns a command; created by :func:`operation`."""

    def __init__(self, method: Callable[Concatenate[S, P], Command[T_co]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__
        self.__wrapped__ = method  # for help() and documentation

    @overload
    def __get__(self, instance: None, owner: type) -> "Operation[S, P, T_co]": ...
    @overload
    def __get__(self, instance: S, owner: type) -> Bound[P, T_co]: ...
    def __get__(self, instance: S | None, owner: type) -> "Operation[S, P, T_co] | Bound[P, T_co]":
        """Return the operation bound to an object."""
        if instance is None:
            return self
        return Bound(self._method.__get__(instance, owner), instance.writer)


def operation(method: Callable[Concatenate[S, P], Command[T_co]]) -> Operation[S, P, T_co]:
    """Turn a method that returns a command into an operation; ``tx=`` runs it within a transaction."""
    return Operation(method)
