"""The call of a handler with one message: plain or async, with or without a transaction."""

import asyncio
import inspect
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

from inturn.consumer.transaction import HandlerTransaction, acknowledging
from inturn.core.errors import HandlerError, InputError
from inturn.faults import reach
from inturn.queue.message import Message
from inturn.telemetry import processing

MessageHandler: TypeAlias = Callable[..., Any]
"""A plain or async function ``handler(message)`` or ``handler(message, tx)``; its result is ignored."""

OpenTransaction: TypeAlias = Callable[[], Any]
"""Returns a context manager, plain or async, that gives a transaction and commits or rolls back at its end."""


class HandlerCall:
    """Calls a handler from any number of threads; async ones run in an event loop.

    Args:
        handler: the handler.
        transaction: opens the caller's transaction; None: a :class:`HandlerTransaction`, if the handler takes one.

    Raises:
        InputError: if the handler does not take the right number of arguments.
    """

    def __init__(self, handler: MessageHandler, transaction: OpenTransaction | None) -> None:
        self._handler, self._open = handler, transaction
        self._takes_tx = _takes_tx(handler, is_needed=transaction is not None)
        self._is_async = any(map(inspect.iscoroutinefunction, (handler, getattr(handler, "__call__", None))))  # noqa: B004 - an object with an async __call__
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_own_loop = False
        self._mutex = threading.Lock()

    def use(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run async handlers in a loop of the caller."""
        self._loop = loop

    def run(self, message: Message) -> bool:
        """Handle a message; return whether it was acknowledged in the handler's transaction.

        Raises:
            AckRefused: if its lease was over, so that the transaction was rolled back.
            HandlerError: if a plain handler returns a coroutine, or the caller's transaction does not fit.
            Exception: an error of the handler.
        """
        if self._is_async:
            is_acked = asyncio.run_coroutine_threadsafe(self._aobserved(message), self._running_loop()).result()
        else:
            with processing(message):
                is_acked = self._run(message)
        if self._open is not None and not is_acked:
            raise HandlerError("the context manager of transaction= kept the handler's error to itself; let it through")
        return is_acked

    def close(self) -> None:
        """Stop the own event loop."""
        if self._loop is not None and self._is_own_loop:
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _run(self, message: Message) -> bool:
        if self._open is not None:
            with self._open() as tx:
                self._call(message, tx)
                with acknowledging(tx):
                    message.ack(tx=tx)
                return True
            return False  # the block has ended without its error
        if not self._takes_tx:
            self._call(message)
            return False
        with HandlerTransaction(message, is_async=False) as own:
            self._call(message, own)
        return own.is_begun

    def _call(self, *arguments: Any) -> None:
        result = self._handler(*arguments)
        if inspect.iscoroutine(result):
            result.close()
            raise HandlerError("the handler returned a coroutine that nobody awaits; define it as an `async def`")
        reach("handled")

    async def _aobserved(self, message: Message) -> bool:
        with processing(message):
            return await self._arun(message)

    async def _arun(self, message: Message) -> bool:
        is_acked = False
        if self._open is not None:
            context = self._open()
            if isinstance(context, AbstractAsyncContextManager):
                async with context as tx:
                    is_acked = await self._acall_and_ack(message, tx)
            else:
                with context as tx:
                    is_acked = await self._acall_and_ack(message, tx)
            return is_acked
        if not self._takes_tx:
            await self._handler(message)
            reach("handled")
            return False
        with HandlerTransaction(message, is_async=True) as own:
            await self._handler(message, own)
            reach("handled")
        return own.is_begun

    async def _acall_and_ack(self, message: Message, tx: Any) -> bool:
        await self._handler(message, tx)
        reach("handled")
        with acknowledging(tx):
            await message.ack.aio(tx=tx)
        return True

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop for async handlers; without one of the caller, it runs in a thread of its own."""
        with self._mutex:
            if self._loop is None:
                self._loop, self._is_own_loop = asyncio.new_event_loop(), True
                threading.Thread(target=self._loop.run_forever, name="inturn-consumer-loop", daemon=True).start()
            return self._loop


def _takes_tx(handler: MessageHandler, *, is_needed: bool) -> bool:
    """Return whether a handler is called with a transaction: if it requires a second argument."""
    try:
        signature = inspect.signature(handler)
    except ValueError:  # a function in C that does not tell
        return is_needed
    for count in (2,) if is_needed else (1, 2):
        try:
            signature.bind(*[None] * count)
        except TypeError:
            continue
        return count == 2
    asked = "handler(message, tx)" if is_needed else "handler(message) or handler(message, tx)"
    raise InputError(f"the handler is {handler!r} with the parameters {signature}; expected {asked}")
