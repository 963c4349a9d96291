"""Counts and sums of the messages of each group, in which a message counts once."""

import decimal
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Unpack

from inturn.core.errors import PipelineError
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.order import Order
from inturn.core.values import path
from inturn.pipelines.options import PipelineOptions, check_paths, pipeline_of

_EXACT: Final = decimal.Context(prec=38, traps=[decimal.Inexact, decimal.InvalidOperation])
"""Decimals of up to 38 digits, as many as a column of a table has; a sum that needs more raises."""


@dataclass(frozen=True)
class MessageCount:
    """The state of :func:`count`."""

    count: int = 0


@dataclass(frozen=True)
class IntegerSum:
    """The state of :func:`sum` for integers."""

    sum: int | None = None
    count: int = 0


@dataclass(frozen=True)
class FloatSum:
    """The state of :func:`sum` for floats."""

    sum: float | None = None
    count: int = 0


@dataclass(frozen=True)
class DecimalSum:
    """The state of :func:`sum` for decimals."""

    sum: Decimal | None = None
    count: int = 0


Sums = IntegerSum | FloatSum | DecimalSum
_STATES: Final[dict[type, type[Sums]]] = {int: IntegerSum, float: FloatSum, Decimal: DecimalSum}
_TAKEN: Final[dict[type, tuple[type, ...]]] = {
    int: (int,),
    float: (int, float, Decimal),
    Decimal: (int, float, Decimal, str),
}


@dataclass(frozen=True)
class Counter:
    """The handler of :func:`count`."""

    def __call__(self, state: MessageCount, _message: Any) -> tuple[MessageCount, list[Any]]:
        """Count the message."""
        return MessageCount(state.count + 1), []


@dataclass(frozen=True)
class Adder:
    """The handler of :func:`sum`."""

    field: str
    number: type[Any]

    def __call__(self, state: Any, message: Any) -> tuple[Any, list[Any]]:
        """Add the value of the message."""
        value = path.value_at(message, self.field)
        if value is None:
            return state, []
        number = self._number(value)
        if state.sum is None:
            total = number
        else:
            total = _EXACT.add(state.sum, number) if self.number is Decimal else state.sum + number
        return type(state)(total, state.count + 1), []

    def _number(self, value: Any) -> Any:
        if type(value) in _TAKEN[self.number]:
            try:  # the text of a float is the number that its JSON had
                return _EXACT.create_decimal(str(value)) if self.number is Decimal else self.number(value)
            except decimal.DecimalException:
                pass
        expected = {int: "an integer", float: "a number", Decimal: "a decimal number of at most 38 digits"}
        raise ValueError(f"{self.field} is {value!r:.100}; expected {expected[self.number]}")


def count(name: str, *, group: str, order: Order, **options: Unpack[PipelineOptions]) -> Pipeline[Any, Any, Any]:
    """Return a pipeline that counts the messages of each group; a duplicate does not count.

    The state is ``{"count": n}``.

    Args:
        name: name of the pipeline.
        group: path of the group.
        order: the order of the messages.
        options: further options of :class:`inturn.Pipeline`.

    Raises:
        PipelineError: if an argument is not valid.
    """
    return pipeline_of(count, options, name=name, group=group, order=order, handler=Counter(), state=MessageCount)


def sum(  # noqa: A001 - pipelines.sum, as SQL names it
    name: str,
    *,
    group: str,
    order: Order,
    field: str,
    number: type[int | float | Decimal] = int,
    **options: Unpack[PipelineOptions],
) -> Pipeline[Any, Any, Any]:
    """Return a pipeline that sums a field over the messages of each group; a duplicate is not added.

    The state is ``{"sum": x, "count": n}``, where ``n`` is the number of the values. As in SQL, a null is not a value:
    it is not counted, and the sum of no values is null. An absent field is as a null.

    Args:
        name: name of the pipeline.
        group: path of the group.
        order: the order of the messages. It determines the rounding of a sum of floats.
        field: path of the number in a message.
        number: ``int``, 64 bits; ``float``; or ``Decimal``, 38 digits, without rounding, whose values may also be texts
            (``"12.50"``) and floats (12.5 is the decimal 12.5). A value of another type, and a sum with more digits,
            parks the group.
        options: further options of :class:`inturn.Pipeline`.

    Raises:
        PipelineError: if an argument is not valid.
    """
    if number not in _STATES:
        raise PipelineError(f"sum(number={number!r}); expected int, float or Decimal")
    handler = Adder(field, number)
    pipeline = pipeline_of(sum, options, name=name, group=group, order=order, handler=handler, state=_STATES[number])
    check_paths(pipeline, "sum", {"field": field})
    return pipeline
