"""Checks of a handler when its pipeline is defined, and short descriptions of invalid results."""

import hashlib
import inspect
import reprlib
from collections.abc import Callable, Sized
from typing import Any, Final

from inturn.core import limits
from inturn.core.errors import HandlerError, InputError, PipelineError
from inturn.core.source_lines import without_partials

_EXPECTED: Final = "expected a plain function handler(state, message) that returns (state, outputs)"
_NOT_PLAIN: Final[tuple[tuple[Callable[[object], bool], str], ...]] = (
    (
        inspect.iscoroutinefunction,
        "is async; handlers are pure and synchronous: move effects that await to deliver= of inturn.work",
    ),
    (
        inspect.isasyncgenfunction,
        "is an async generator; handlers are pure and synchronous: move effects that await to deliver= of inturn.work",
    ),
    (inspect.isgeneratorfunction, "is a generator; handlers must not yield: collect the outputs in a list"),
)
_UNITS: Final = ((dict, "with", "key"), (str, "of", "character"), (bytes, "of", "byte"))


def check_handler(handler: Callable[..., Any]) -> None:
    """Refuse a handler that cannot take two arguments and return (state, outputs), as far as that can be known.

    Raises:
        PipelineError: if it is async, a generator, or takes another number of arguments.
    """
    for is_kind, reason in _NOT_PLAIN:
        if is_defined_as(is_kind, handler):
            raise PipelineError(f"the handler {_name(handler)} {reason}; {_EXPECTED}")
    if (signature := _misfit(handler, None, None)) is not None:
        raise PipelineError(f"the handler {_name(handler)}{signature} cannot take two arguments; {_EXPECTED}")


def check_state(state: Callable[..., Any]) -> None:
    """Refuse a ``state`` that cannot make a first state when called without arguments, as far as that can be known.

    Raises:
        PipelineError: if it is async, a generator, or needs arguments.
    """
    advice = "expected a type or function that returns the first state when called without arguments"
    if not callable(state):
        kind = type(state).__name__
        msg = f"Pipeline(state={reprlib.repr(state)}); {advice}, not an instance: write state={kind}, or a function"
        raise PipelineError(msg)
    if any(is_defined_as(is_kind, state) for is_kind, _ in _NOT_PLAIN):
        raise PipelineError(f"Pipeline(state={_name(state)}) is async or a generator; {advice}")
    if (signature := _misfit(state)) is not None:
        msg = f"Pipeline(state={_name(state)}) requires arguments, {signature}; {advice}: give its fields defaults"
        raise PipelineError(msg)


def check_upgrade(version: object, upgrade: Callable[..., Any] | None) -> None:
    """Refuse a version that is not a number in range, and an upgrade that cannot take a state and a version.

    Raises:
        PipelineError: in either case.
    """
    if type(version) is not int or not 1 <= version <= limits.VERSION:
        raise PipelineError(f"Pipeline(version={version!r}); expected a whole number from 1 to {limits.VERSION}")
    if upgrade is None:
        return
    expected = "expected a plain function upgrade(state, version) that returns a state"
    if not callable(upgrade):
        raise PipelineError(f"Pipeline(upgrade={reprlib.repr(upgrade)}); {expected}")
    if any(is_defined_as(is_kind, upgrade) for is_kind, _ in _NOT_PLAIN) or _misfit(upgrade, None, 1) is not None:
        raise PipelineError(f"Pipeline(upgrade={_name(upgrade)}); {expected}")


def wrong_result(result: object, state: object) -> str:
    """Return the fault of a handler's result; empty if the result is (state, outputs).

    Args:
        result: result of the handler.
        state: the pipeline's ``state``: a handler that returns only an instance of that type has omitted the outputs.
    """
    if not isinstance(result, list | tuple) or len(result) != 2:
        is_bare = isinstance(state, type) and isinstance(result, state)
        hint = "; write `return state, []` if there are no outputs" if is_bare else ""
        return f"expected (state, outputs), got {described(result)}{hint}"
    if not isinstance(result[1], list | tuple):
        return f"the outputs are {described(result[1])}; expected a list or a tuple"
    return ""


def check_result(wrong: HandlerError | None, applied: int, is_proved: Callable[[], bool]) -> None:
    """Refuse a step of a handler whose result is not (state, outputs), if the handler has applied no message yet.

    Such a handler is wrong for every message: nothing of its step is stored, and no group is parked. Once it has
    applied a message, the fault is that of a single message, and its group is parked.

    Args:
        wrong: error about a result of the step; None: all results were valid.
        applied: the number of messages that the step applied.
        is_proved: returns whether this handler, by its :func:`fingerprint`, has applied a message in an earlier step.

    Raises:
        HandlerError: ``wrong``.
    """
    if wrong is not None and not applied and not is_proved():
        raise wrong


def fingerprint(handler: Callable[..., Any]) -> str:
    """Return a short hash of a handler's code, by which a changed handler is recognised.

    The hash does not cover the functions that it calls.
    """
    try:
        text = inspect.getsource(handler)
    except (OSError, TypeError):
        code = getattr(handler, "__code__", None)
        text = repr((code.co_code, code.co_consts, code.co_names)) if code else repr(type(handler))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def described(value: object) -> str:
    """Return the type and size of a value, without its content.

    >>> described({"balance": 5, "owner": "ann"}), described(None), described((1, 2, 3))
    ('dict with 2 keys', 'None', 'tuple of 3 items')
    """
    kind = type(value).__name__
    if value is None or isinstance(value, bool | int | float):
        return reprlib.repr(value)
    if not isinstance(value, Sized):
        return kind
    _, joint, unit = next((row for row in _UNITS if isinstance(value, row[0])), (object, "of", "item"))
    count = len(value)
    return f"{kind} {joint} {count} {unit}{'' if count == 1 else 's'}"


def refuse_generator(label: str, function: Callable[..., Any]) -> None:
    """Refuse a function with effects that yields: a call of it runs none of its code.

    Raises:
        InputError: if it does.
    """
    if is_defined_as(inspect.isgeneratorfunction, function) or is_defined_as(inspect.isasyncgenfunction, function):
        raise InputError(f"{label} is {_name(function)}, a generator, which would never run; do not yield in it")


def is_defined_as(is_kind: Callable[[object], bool], function: Any) -> bool:
    """Return whether a function, or the function behind a partial or an object with ``__call__``, is of a kind."""
    function = without_partials(function)
    return is_kind(function) or (not isinstance(function, type) and is_kind(type(function).__call__))


def _misfit(function: Callable[..., Any], *arguments: object) -> inspect.Signature | None:
    """Return the signature of a function that cannot take these arguments; None if it can, or if that is unknown."""
    try:
        signature = inspect.signature(function, follow_wrapped=False)  # the wrapper is what is called
    except (TypeError, ValueError):  # written in C
        return None
    try:
        signature.bind(*arguments)
    except TypeError:
        return signature
    return None


def _name(function: Any) -> str:
    function = without_partials(function)
    return getattr(function, "__qualname__", None) or type(function).__qualname__
