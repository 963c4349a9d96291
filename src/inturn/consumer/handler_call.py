"""The call of a handler with one message: plain or async, with or without a transaction."""

import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

from inturn.consumer.transaction import HandlerTransaction, acknowledging
from inturn.core.errors import HandlerError, InputError
from inturn.core.pipeline.handler import described, is_defined_as, refuse_generator
from inturn.faults import reach
from inturn.queue.message import Message
from inturn.telemetry import processing
from inturn.worker.event_loop import EventLoop

MessageHandler: TypeAlias = Callable[..., Any]
"""A plain or async function ``handler(message)`` or ``handler(message, tx)`` that returns nothing.

A plain function may return an awaitable.
"""

OpenTransaction: TypeAlias = Callable[[], Any]
"""Returns a context manager, plain or async, whose value is a transaction; it commits or rolls back at its end."""


class HandlerCall:
    """Calls a handler from any number of threads; async ones run in an event loop.

    Args:
        handler: the handler.
        transaction: opens the caller's transaction; None: a :class:`HandlerTransaction`, if the handler takes one.

    Attributes:
        loop: the event loop of async handlers.

    Raises:
        InputError: if the handler does not take the right number of arguments, or is a generator.
    """

    def __init__(self, handler: MessageHandler, transaction: OpenTransaction | None) -> None:
        refuse_generator("handler", handler)
        self._handler, self._open_transaction = handler, transaction
        self._takes_tx = _takes_tx(handler, is_needed=transaction is not None)
        self._is_async = is_defined_as(inspect.iscoroutinefunction, handler)
        self.loop = EventLoop("inturn-consumer-loop")

    def run(self, message: Message) -> bool:
        """Handle a message; return whether it was acknowledged in the handler's transaction.

        Raises:
            AckRefused: if its lease had expired, so that the transaction was rolled back.
            HandlerError: if the handler returned a value, or the caller's transaction is not suitable.
            Exception: an error of the handler.
        """
        if self._is_async:
            is_acked = bool(self.loop.result_of(self._aobserved(message)))
        else:
            with processing(message):
                is_acked = self._run(message)
        if self._open_transaction is not None and not is_acked:
            raise HandlerError("the context manager of transaction= suppressed the handler's error; let it propagate")
        return is_acked

    def _run(self, message: Message) -> bool:
        if self._open_transaction is not None:
            with self._open_transaction() as tx:
                self._call(message, tx)
                with acknowledging(tx):
                    message.ack(tx=tx)
                return True
            return False  # the block has ended without its error
        if not self._takes_tx:
            self._call(message)
            return False
        with HandlerTransaction(message, is_async=False) as tx:
            returned = self._handler(message, tx)
            if inspect.iscoroutine(returned):  # which would need a transaction for async code
                returned.close()
                raise HandlerError("the handler takes tx and returned a coroutine; define it with `async def`")
            self._check_result(self.loop.result_of(returned))
        return tx.is_begun

    def _call(self, *arguments: Any) -> None:
        self._check_result(self.loop.result_of(self._handler(*arguments)))

    def _check_result(self, result: Any) -> None:
        """Refuse a result: the author of the handler would not expect that the message is acknowledged regardless."""
        if result is not None:
            msg = f"the handler returned {described(result)}; expected None, or an exception for a failed attempt"
            raise HandlerError(msg)
        reach("handled")

    async def _aobserved(self, message: Message) -> bool:
        with processing(message):
            return await self._arun(message)

    async def _arun(self, message: Message) -> bool:
        is_acked = False
        if self._open_transaction is not None:
            context = self._open_transaction()
            if isinstance(context, AbstractAsyncContextManager):
                async with context as tx:
                    is_acked = await self._acall_and_ack(message, tx)
            else:
                with context as tx:
                    is_acked = await self._acall_and_ack(message, tx)
            return is_acked
        if not self._takes_tx:
            self._check_result(await self._handler(message))
            return False
        with HandlerTransaction(message, is_async=True) as tx:
            self._check_result(await self._handler(message, tx))
        return tx.is_begun

    async def _acall_and_ack(self, message: Message, tx: Any) -> bool:
        self._check_result(await self._handler(message, tx))
        with acknowledging(tx):
            await message.ack.aio(tx=tx)
        return True


def _takes_tx(handler: MessageHandler, *, is_needed: bool) -> bool:
    """Return whether a handler is called with a transaction: if it requires a second argument."""
    try:
        signature = inspect.signature(handler)
    except ValueError:  # a function in C without a signature
        return is_needed
    for count in (2,) if is_needed else (1, 2):
        try:
            signature.bind(*[None] * count)
        except TypeError:
            continue
        return count == 2
    expected = "handler(message, tx)" if is_needed else "handler(message) or handler(message, tx)"
    raise InputError(f"the handler is {handler!r} with the parameters {signature}; expected {expected}")
