"""A handler that runs once for each key: the verbs in the order that is easily got wrong, written once.

Lock, run, accept; release if it raises. What the handler does elsewhere is done at least once all the same: the
process may die after the handler and before the accept.
"""

import contextlib
import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, ParamSpec, TypeVar, overload

import msgspec

from inturn.core import limits
from inturn.core.errors import InputError, InturnError, KeyInProgress
from inturn.idempotency.keys import Completed, IdempotencyKeys, InProgress, Locked, encoded

P = ParamSpec("P")
T = TypeVar("T")


def _arguments() -> None:
    """Stands for the payload that consists of all arguments."""


_KEPT: Final = object()  # there is no default result: the first is kept


@overload
def idempotent(
    handler: Callable[P, T],
    *,
    key: Callable[..., str],
    store: IdempotencyKeys,
    default_result: Any = ...,
    result_type: Any = ...,
    payload: Callable[..., Any] | None = ...,
    timeout_s: float = ...,
    keep_s: float | None = ...,
    hold_on: tuple[type[BaseException], ...] = ...,
) -> Callable[P, T]: ...
@overload
def idempotent(
    handler: None = None,
    *,
    key: Callable[..., str],
    store: IdempotencyKeys,
    default_result: Any = ...,
    result_type: Any = ...,
    payload: Callable[..., Any] | None = ...,
    timeout_s: float = ...,
    keep_s: float | None = ...,
    hold_on: tuple[type[BaseException], ...] = ...,
) -> Callable[[Callable[P, T]], Callable[P, T]]: ...
def idempotent(  # noqa: PLR0913 - the verbs' own arguments, and each has a default but two
    handler: Callable[..., Any] | None = None,
    *,
    key: Callable[..., str],
    store: IdempotencyKeys,
    default_result: Any = _KEPT,
    result_type: Any = None,
    payload: Callable[..., Any] | None = _arguments,
    timeout_s: float = limits.KEY_LOCK_S,
    keep_s: float | None = limits.KEY_KEPT_S,
    hold_on: tuple[type[BaseException], ...] = (),
) -> Any:
    """Run a handler once for each key; a function, and a decorator ``@idempotent(key=…, store=…)``.

    A duplicate is given the first result; while the first is running it gets ``KeyInProgress``. If the handler raises,
    the key is released and the next call runs it again.

    Args:
        handler: a plain or an async function.
        key: is called with the handler's arguments and gives the key.
        store: where keys are.
        default_result: what duplicates are given; the first result is then not kept, and need not be JSON.
        result_type: what a result is after its way through JSON, a dataclass or a Struct say; None: plain JSON
            values. The first caller is given its result after the same way, so all are given the same.
        payload: is called with the handler's arguments and gives what must be the same in a duplicate; by default it
            is all of them, which must then have a canonical form. None: nothing is compared.
        timeout_s: for how many seconds it is in progress at most, longer than the handler ever takes; after a crash
            nobody runs it for so long.
        keep_s: for how many seconds a completed key is known; None: for ever.
        hold_on: errors of the handler after which nobody knows what it has done, a time-out say: the key is not
            released, and so nobody runs it until ``timeout_s`` has passed.

    Returns:
        A function with the handler's arguments. Besides what the handler raises it raises ``KeyInProgress``;
        ``KeyConflict`` if the key was used with another payload; ``LockLost`` if the handler took longer than
        ``timeout_s``, when another may have been run beside it; and ``InputError`` if the result cannot be kept. The
        handler has run then, and its key is accepted without a result.

    Raises:
        InputError: The handler is a generator, which has no result.
    """
    if handler is None:
        return functools.partial(
            idempotent,
            key=key,
            store=store,
            default_result=default_result,
            result_type=result_type,
            payload=payload,
            timeout_s=timeout_s,
            keep_s=keep_s,
            hold_on=hold_on,
        )
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        msg = f"{handler!r} is a generator: it has no result that could be kept"
        raise InputError(msg)
    once = _Once(handler, key, store, default_result, result_type, payload, timeout_s, keep_s, hold_on)
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__):

        @functools.wraps(handler)
        async def run_async(*args: Any, **kwargs: Any) -> Any:
            return await once.arun(args, kwargs)

        return run_async

    @functools.wraps(handler)
    def run(*args: Any, **kwargs: Any) -> Any:
        return once.run(args, kwargs)

    return run


@dataclass
class _Once:
    """What a handler's calls have in common, for threads and for tasks; the fields are arguments of `idempotent`."""

    handler: Callable[..., Any]
    key: Callable[..., str]
    store: IdempotencyKeys
    default_result: Any
    result_type: Any
    payload: Callable[..., Any] | None
    timeout_s: float
    keep_s: float | None
    hold_on: tuple[type[BaseException], ...]

    def __post_init__(self) -> None:
        self.signature = inspect.signature(self.handler)

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call in a thread."""
        attempt = self.store.try_lock(self.key(*args, **kwargs), self.timeout_s, payload=self._payload_of(args, kwargs))
        if not isinstance(attempt, Locked):
            return self._told(attempt)
        try:
            result = self.handler(*args, **kwargs)
            if isinstance(result, Awaitable):
                _refuse(result)
        except BaseException as error:
            if not isinstance(error, self.hold_on):
                with _beside(error):
                    self.store.release(attempt)
            raise
        kept, result, wrong = self._kept(result)
        self.store.accept(attempt, kept, keep_s=self.keep_s)
        if wrong is not None:
            raise wrong
        return result

    async def arun(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call in a task."""
        attempt = await self.store.try_lock.aio(
            self.key(*args, **kwargs), self.timeout_s, payload=self._payload_of(args, kwargs)
        )
        if not isinstance(attempt, Locked):
            return self._told(attempt)
        try:
            result = await self.handler(*args, **kwargs)
        except BaseException as error:
            if not isinstance(error, self.hold_on):
                with _beside(error):
                    await self.store.release.aio_to_the_end(attempt)
            raise
        kept, result, wrong = self._kept(result)
        await self.store.accept.aio_to_the_end(attempt, kept, keep_s=self.keep_s)
        if wrong is not None:
            raise wrong
        return result

    def _payload_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What must be the same in a duplicate, however the arguments were given: by place, by name, by default."""
        if self.payload is not _arguments:
            return None if self.payload is None else self.payload(*args, **kwargs)
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments

    def _told(self, attempt: InProgress | Completed) -> Any:
        """What a duplicate is given."""
        if isinstance(attempt, Completed):
            return self._decoded(attempt.json) if self.default_result is _KEPT else self.default_result
        seconds = attempt.retry_after_s
        msg = f"{attempt.key!r} is in progress: come again, in {seconds:g} s at the latest"
        raise KeyInProgress(msg, seconds)

    def _kept(self, result: Any) -> tuple[Any, Any, InputError | None]:
        """What is kept of a result, what it is to the caller, and what is wrong with it.

        It is too late to say that nothing was done, so an error is told once the key is accepted.
        """
        if self.default_result is not _KEPT:
            return None, result, None
        text = "null"
        try:
            text = encoded(result)
            result, wrong = self._decoded(text), None
        except InputError as error:
            error.add_note("the handler has run, and its key is accepted; see default_result= and result_type=")
            wrong = error
        return msgspec.Raw(text.encode()), result, wrong

    def _decoded(self, text: str) -> Any:
        try:
            return msgspec.json.decode(text, type=Any if self.result_type is None else self.result_type)
        except msgspec.ValidationError as error:
            msg = f"the result {text[:200]} is no {self.result_type}: {error}"
            raise InputError(msg) from error


def _refuse(result: Awaitable[Any]) -> None:
    """What is awaited later would run without the lock.

    Raises:
        InputError: always.
    """
    if inspect.iscoroutine(result):
        result.close()
    msg = "a plain handler returned something to be awaited, which would run without the lock: make it async def"
    raise InputError(msg)


@contextlib.contextmanager
def _beside(error: BaseException) -> Iterator[None]:
    """What goes wrong while an error is on its way does not take its place."""
    try:
        yield
    except InturnError as other:
        error.add_note(f"its idempotency key was not released: {other}")
