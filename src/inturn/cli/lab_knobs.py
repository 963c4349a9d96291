"""The knobs of ``inturn lab`` as options: times as ``200ms``, shares as ``2%``, sweeps as ``consumers=1,2,4``."""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from inturn.core.errors import InputError

if TYPE_CHECKING:
    from inturn.lab import LogNormalTime, UniformTime

_UNITS_S: Final = {
    **dict.fromkeys(("us", "µs", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("s", "second", "seconds"), 1.0),
    **dict.fromkeys(("min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
}
_NAMES: Final = {
    "failures": "failure_rate",
    "poison": "poison_rate",
    "crashes": "crash_rate",
    "restart": "restart_s",
    "visibility": "visibility_s",
    "backoff": "backoff_s",
    "reorder": "reorder_s",
    "dedup": "dedup_s",
}
"""Knobs of options with another name; the name of the knob contains its unit."""
_COUNTS: Final = ("consumers", "prefetch", "batch", "partitions", "max_attempts", "seed")


def seconds(text: str, option: str) -> float:
    """Return a duration in seconds.

    Raises:
        InputError: if it is not valid; ``what`` names the option.
    """
    matched = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zµ]+)\s*", text)
    if matched is None or matched[2] not in _UNITS_S:
        raise InputError(f"{option} is {text!r}; expected a time with its unit, such as 200ms, 5s or '10 minutes'")
    return float(matched[1]) * _UNITS_S[matched[2]]


def fraction(text: str, option: str) -> float:
    """Return a share, from ``2%`` or ``0.02``.

    Raises:
        InputError: if it is not valid.
    """
    matched = re.fullmatch(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*(%?)\s*", text)
    value = -1.0 if matched is None else float(matched[1]) / (100 if matched[2] else 1)
    if not 0 <= value <= 1:
        raise InputError(f"{option} is {text!r}; expected a share of 0% to 100%, such as 2% or 0.02")
    return value


def handler_time(text: str) -> "UniformTime | LogNormalTime":
    """Return the distribution of the handler times: ``5ms``, ``1ms-20ms`` or ``20ms~0.5``.

    Raises:
        InputError: if it is not valid.
    """
    from inturn.lab import LogNormalTime, UniformTime

    option = "--handler"
    if "~" in text:
        median, _, sigma = text.partition("~")
        if not re.fullmatch(r"\s*\d+(\.\d+)?\s*", sigma):
            raise InputError(f"--handler is {text!r}; expected a median and a sigma, such as 20ms~0.5")
        return LogNormalTime(median_ms=_ms(median, option), sigma=float(sigma))
    low, dash, high = text.partition("-")
    ends = (_ms(low, option), _ms(high, option)) if dash else (_ms(low, option),) * 2
    if ends[0] > ends[1]:
        raise InputError(f"--handler is {text!r}; expected the shorter time first, such as 1ms-20ms")
    return UniformTime(low_ms=ends[0], high_ms=ends[1])


def _ms(text: str, option: str) -> float:
    return round(seconds(text, option) * 1e3, 6)


def changed_knobs(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the knobs that options set; an option that is None sets nothing.

    Raises:
        InputError: if a value cannot be read.
    """
    values: dict[str, Any] = {}
    for option, value in options.items():
        if value is None:
            continue
        knob = _NAMES.get(option, option)
        if option == "handler":
            values[knob] = handler_time(value)
        elif isinstance(value, str):
            values[knob] = _reader(knob)(value, f"--{option.replace('_', '-')}")
        else:
            values[knob] = value
    return values


def sweep_of(text: str) -> tuple[str, list[float]]:
    """Return the knob and the values of a sweep, ``consumers=1,2,4,8``.

    Raises:
        InputError: if the knob does not exist, or a value cannot be read.
    """
    name, sign, values = text.partition("=")
    knob = name.strip().replace("-", "_")
    knob = _NAMES.get(knob, knob)
    if not sign or not _is_number(knob):
        known = ", ".join(sorted([*_COUNTS, *_NAMES]))
        raise InputError(f"--sweep is {text!r}; expected KNOB=VALUE,VALUE, such as consumers=1,2,4,8; knobs: {known}")
    read = _reader(knob)
    numbers = [read(part, f"--sweep {name}") for part in values.split(",") if part.strip()]
    if len(numbers) < 2:
        raise InputError(f"--sweep is {text!r}; expected at least two values, such as {name}=1,2")
    return knob, sorted(set(numbers))


def _is_number(knob: str) -> bool:
    return knob in _COUNTS or knob in _NAMES.values()


def _reader(knob: str) -> Callable[[str, str], float]:
    if knob in _COUNTS:
        return _count
    return fraction if knob.endswith("_rate") else seconds


def _count(text: str, option: str) -> int:
    if not text.strip().isdecimal():
        raise InputError(f"{option} is {text!r}; expected a whole number, such as 4")
    return int(text)
