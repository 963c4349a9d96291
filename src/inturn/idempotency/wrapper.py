"""A wrapper that runs a handler once for each key: lock, run, accept, or release if it raises.

It calls the verbs in the right order, which is easy to get wrong. Side effects of the handler elsewhere are still at
least once: the process may die between the handler and the accept.
"""

import functools
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, ParamSpec, TypeVar, overload

import msgspec

from inturn.core import limits
from inturn.core.arguments import check_type
from inturn.core.errors import InputError, KeyInProgress
from inturn.core.values.construct import decoded
from inturn.idempotency.keys import Completed, IdempotencyKeys, InProgress, Locked, encoded, noting_release_errors

P = ParamSpec("P")
T = TypeVar("T")


def _arguments() -> None:
    """Stand for a payload of all arguments."""


_FIRST_RESULT: Final = object()  # no default result: the first result is kept


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
    default_result: Any = _FIRST_RESULT,
    result_type: Any = None,
    payload: Callable[..., Any] | None = _arguments,
    timeout_s: float = limits.KEY_LOCK_S,
    keep_s: float | None = limits.KEY_KEPT_S,
    hold_on: tuple[type[BaseException], ...] = (),
) -> Any:
    """Run a handler once for each key; a function, and a decorator ``@idempotent(key=…, store=…)``.

    A duplicate gets the first result; while the first call is running it gets ``KeyInProgress``. If the handler raises,
    the key is released and the next call runs the handler again.

    Args:
        handler: a plain or an async function.
        key: called with the handler's arguments; returns the key.
        store: the keys.
        default_result: the result for duplicates. If given, the first result is not kept and need not be JSON.
        result_type: the type to which a kept result is decoded, such as a dataclass or a Struct; None: plain JSON
            values. The first caller's result is converted likewise, so all get the same.
        payload: called with the handler's arguments; returns the part that must be the same in a duplicate: by default
            all arguments, which must then have a canonical form. None: nothing is compared.
        timeout_s: the length of the lock in seconds. It must exceed the handler's longest run; after a crash the key
            stays locked for that long.
        keep_s: the seconds for which a completed key is kept; None: for ever.
        hold_on: errors after which the effects of the handler are unknown, such as a time-out: the key is not
            released, so no caller runs the handler until ``timeout_s`` has passed.

    Returns:
        A function with the handler's arguments. Besides the handler's errors it raises ``KeyInProgress``;
        ``KeyConflict`` if the key was used with another payload; ``LockLost`` if the handler took longer than
        ``timeout_s``, so that another call may have run as well; and ``InputError`` if JSON cannot hold the result or
        it is not a ``result_type``. In that case the handler has run, and its key is accepted, without a result if JSON
        cannot hold it.

    Raises:
        InputError: if the handler is a generator, which has no result.
    """

    def wrap(handler: Callable[..., Any]) -> Callable[..., Any]:
        check_type("handler", handler, Callable, "a plain or an async function")
        if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
            raise InputError(f"{handler!r} is a generator, which has no result; expected a plain or an async function")
        once = _IdempotentHandler(handler, key, store, default_result, result_type, payload, timeout_s, keep_s, hold_on)
        if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__):

            @functools.wraps(handler)
            async def run_async(*args: Any, **kwargs: Any) -> Any:
                return await once.arun(args, kwargs)

            return run_async

        @functools.wraps(handler)
        def run(*args: Any, **kwargs: Any) -> Any:
            return once.run(args, kwargs)

        return run

    return wrap if handler is None else wrap(handler)


@dataclass
class _IdempotentHandler:
    """The common part of a handler's calls, in threads and tasks; the fields are arguments of `idempotent`."""

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
        """Call the handler in a thread."""
        attempt = self.store.try_lock(self.key(*args, **kwargs), self.timeout_s, payload=self._payload_of(args, kwargs))
        if not isinstance(attempt, Locked):
            return self._duplicate_result(attempt)
        try:
            result = self.handler(*args, **kwargs)
            if isinstance(result, Awaitable):
                _refuse(result)
        except BaseException as error:
            if not isinstance(error, self.hold_on):
                with noting_release_errors(error):
                    self.store.release(attempt)
            raise
        stored, result, wrong = self._storable_result(result)
        self.store.accept(attempt, stored, keep_s=self.keep_s)
        if wrong is not None:
            raise wrong
        return result

    async def arun(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the handler in a task."""
        attempt = await self.store.try_lock.aio(
            self.key(*args, **kwargs), self.timeout_s, payload=self._payload_of(args, kwargs)
        )
        if not isinstance(attempt, Locked):
            return self._duplicate_result(attempt)
        try:
            result = await self.handler(*args, **kwargs)
        except BaseException as error:
            if not isinstance(error, self.hold_on):
                with noting_release_errors(error):
                    await self.store.release.aio_to_the_end(attempt)
            raise
        stored, result, wrong = self._storable_result(result)
        await self.store.accept.aio_to_the_end(attempt, stored, keep_s=self.keep_s)
        if wrong is not None:
            raise wrong
        return result

    def _payload_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the payload of a call, whether arguments were given by position, name or default."""
        if self.payload is not _arguments:
            return None if self.payload is None else self.payload(*args, **kwargs)
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments

    def _duplicate_result(self, attempt: InProgress | Completed) -> Any:
        """Return the result for a duplicate."""
        if isinstance(attempt, Completed):
            return self._decoded(attempt.json) if self.default_result is _FIRST_RESULT else self.default_result
        seconds = attempt.retry_after_s
        raise KeyInProgress(f"key {attempt.key!r} is in progress; retry in at most {seconds:g} s", seconds)

    def _storable_result(self, result: Any) -> tuple[Any, Any, InputError | None]:
        """Return the result to be kept, the caller's result, and an error if it cannot be kept.

        The handler has run by then, so the error is raised only once the key is accepted.
        """
        if self.default_result is not _FIRST_RESULT:
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
            return msgspec.json.decode(
                text, type=Any if self.result_type is None else self.result_type, dec_hook=decoded
            )
        except msgspec.ValidationError as error:
            raise InputError(f"the result {text[:200]} is not a valid {self.result_type}: {error}") from error


def _refuse(result: Awaitable[Any]) -> None:
    """Refuse a result that would be awaited later, without the lock.

    Raises:
        InputError: always.
    """
    if inspect.iscoroutine(result):
        result.close()
    msg = "a plain handler returned an awaitable, which would run without the lock; define the handler with async def"
    raise InputError(msg)
