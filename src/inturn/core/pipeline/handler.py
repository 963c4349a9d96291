"""Checks of a handler when its pipeline is defined, and short descriptions of wrong results."""

import functools
import inspect
import reprlib
from collections.abc import Callable, Sized
from typing import Any, Final

from inturn.core import limits
from inturn.core.errors import PipelineError

_EXPECTED: Final = "expected a plain function handler(state, message) that returns (state, outputs)"
_NOT_PLAIN: Final[tuple[tuple[Callable[[object], bool], str], ...]] = (
    (
        inspect.iscoroutinefunction,
        "is async; handlers are pure and synchronous: put effects that await into deliver= of inturn.work",
    ),
    (
        inspect.isasyncgenfunction,
        "is an async generator; handlers are pure and synchronous: put effects that await into deliver= of inturn.work",
    ),
    (inspect.isgeneratorfunction, "is a generator; handlers do not yield: collect the outputs in a list"),
)
_UNITS: Final = ((dict, "with", "key"), (str, "of", "character"), (bytes, "of", "byte"))


def check_handler(handler: Callable[..., Any]) -> None:
    """Refuse a handler that cannot take two arguments and return (state, outputs), as far as that can be known.

    Raises:
        PipelineError: if it is async, a generator, or takes another number of arguments.
    """
    for is_kind, why in _NOT_PLAIN:
        if _is(is_kind, handler):
            raise PipelineError(f"the handler {_name(handler)} {why}; {_EXPECTED}")
    if (signature := _misfit(handler, None, None)) is not None:
        raise PipelineError(f"the handler {_name(handler)}{signature} cannot take two arguments; {_EXPECTED}")


def check_state(state: Callable[..., Any]) -> None:
    """Refuse a ``state`` that cannot make a first state when called without arguments, as far as that can be known.

    Raises:
        PipelineError: if it is async, a generator, or needs arguments.
    """
    mend = "expected a type or function whose call makes the first state"
    if not callable(state):
        kind = type(state).__name__
        msg = f"Pipeline(state={reprlib.repr(state)}); {mend}, not an instance: write state={kind}, or a function"
        raise PipelineError(msg)
    if any(_is(is_kind, state) for is_kind, _ in _NOT_PLAIN):
        raise PipelineError(f"Pipeline(state={_name(state)}) is async or a generator; {mend}")
    if (signature := _misfit(state)) is not None:
        msg = f"Pipeline(state={_name(state)}) needs arguments, {signature}; {mend}: give its fields defaults"
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
    if any(_is(is_kind, upgrade) for is_kind, _ in _NOT_PLAIN) or _misfit(upgrade, None, 1) is not None:
        raise PipelineError(f"Pipeline(upgrade={_name(upgrade)}); {expected}")


def wrong_result(made: object, state: object) -> str:
    """Return the fault of a handler's result; empty if the result is (state, outputs).

    Args:
        made: result of the handler.
        state: the pipeline's ``state``: a handler that returns an instance of that type has forgotten the outputs.
    """
    if not isinstance(made, list | tuple) or len(made) != 2:
        is_bare = isinstance(state, type) and isinstance(made, state)
        mend = "; write `return state, []` where there are no outputs" if is_bare else ""
        return f"expected (state, outputs), got {described(made)}{mend}"
    if not isinstance(made[1], list | tuple):
        return f"the outputs are {described(made[1])}; expected a list or a tuple"
    return ""


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
    _, joint, unit = next((each for each in _UNITS if isinstance(value, each[0])), (object, "of", "item"))
    count = len(value)
    return f"{kind} {joint} {count} {unit}{'' if count == 1 else 's'}"


def _is(is_kind: Callable[[object], bool], function: Any) -> bool:
    """Return whether a function, or the function behind a partial or an object with ``__call__``, is of a kind."""
    while isinstance(function, functools.partial):
        function = function.func
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
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__qualname__", None) or type(function).__qualname__
