"""Methods that are called plainly from threads, and awaited from tasks, without a second class for either.

A method that is an operation returns the command that it stands for. Calling it runs the command; its ``aio`` awaits
it: ``queue.send(body)`` and ``await queue.send.aio(body)``.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from inturn.core.errors import InputError, InturnError
from inturn.store.commands import Command, Joined, Transaction

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Runner(Protocol):
    """Runs commands: a writer, or what stands in its place."""

    def run(self, command: Command[T]) -> T:
        """Do a command for a thread."""
        ...

    async def arun(self, command: Command[T]) -> T:
        """Do a command for a task."""
        ...


class HasWriter(Protocol):
    """What operations belong to."""

    @property
    def writer(self) -> Runner:
        """Who runs commands, each in a transaction of its own."""
        ...


S = TypeVar("S", bound=HasWriter)


class Bound(Generic[P, T_co]):
    """An operation of one object."""

    __slots__ = ("_command", "_writer")

    def __init__(self, command: Callable[P, Command[T_co]], writer: Runner) -> None:
        self._command = command
        self._writer = writer

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T_co:
        """Do it; what it did is durable when this returns."""
        command = self._command(*args, **kwargs)
        return self._writer.run(command) if command.tx is None else _joined(self._writer, command.tx).run(command)

    def aio(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T_co]:
        """Do it without holding up the event loop."""
        command = self._command(*args, **kwargs)
        return self._writer.arun(command) if command.tx is None else _joined(self._writer, command.tx).arun(command)

    async def aio_to_the_end(self, *args: P.args, **kwargs: P.kwargs) -> T_co:
        """Do it without holding up the event loop; who is cancelled meanwhile is told once it is done.

        Nobody knows what became of a verb that was cancelled, so it is said again. It must be one that changes nothing
        the second time; a refusal of that one says nothing, and so goes along with the cancellation as a note. It
        needs no task of its own, which the end of the event loop would cancel too.
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
                cancelled.add_note(f"said again after the cancellation: {refusal}")
            if cancelled is not None:
                raise cancelled
            return answer


def _joined(writer: Runner, tx: Transaction) -> Joined:
    """What does commands in a transaction of the caller's.

    Raises:
        InputError: if it is none, or none for this database.
    """
    if isinstance(tx, Joined):
        is_own: Callable[[str], bool] | None = getattr(writer, "is_own", None)
        if is_own is None or not is_own(tx.identity):
            msg = (
                "tx is a transaction of another database, in which this would be done instead; give it one that "
                "transaction() of this Database has begun, or of another Database over the same file or tables"
            )
            raise InputError(msg)
        return tx
    adopt: Callable[[Any], Joined] | None = getattr(writer, "adopt", None)
    if adopt is None:
        msg = f"tx is {tx!r}; it is that of `with db.transaction() as tx:`"
        raise InputError(msg)
    return adopt(tx)


class Operation(Generic[S, P, T_co]):
    """A method that is one command; made by :func:`operation`."""

    def __init__(self, method: Callable[Concatenate[S, P], Command[T_co]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__
        self.__wrapped__ = method  # for help() and documentation

    @overload
    def __get__(self, instance: None, owner: type) -> "Operation[S, P, T_co]": ...
    @overload
    def __get__(self, instance: S, owner: type) -> Bound[P, T_co]: ...
    def __get__(self, instance: S | None, owner: type) -> "Operation[S, P, T_co] | Bound[P, T_co]":
        """The operation of an object."""
        if instance is None:
            return self
        return Bound(self._method.__get__(instance, owner), instance.writer)


def operation(method: Callable[Concatenate[S, P], Command[T_co]]) -> Operation[S, P, T_co]:
    """Make an operation of a method that returns a command; ``tx=`` runs it within a transaction."""
    return Operation(method)
