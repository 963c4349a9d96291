"""Ticks of axes: round numbers, durations and times, on linear and on logarithmic scales."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from inturn.core.words import time_of
from inturn.pages.svg import Tick

STEPS: Final = tuple(unit * 10**power for power in range(20) for unit in (1, 2, 5))
"""Distances between round numbers."""
STEPS_US: Final = (
    *STEPS[:18],
    *(unit * 1_000_000 for unit in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800)),
    *(unit * 3_600_000_000 for unit in (1, 2, 3, 6, 12, 24, 48, 96, 168, 336, 720, 2_160, 8_760, 17_520, 87_600)),
)
"""Distances between round times, in microseconds."""
COUNTS: Final = tuple((unit * 10**power, f"{unit * 10**power:,}") for unit in (1, 2, 5) for power in range(19))
"""Numbers for a logarithmic scale, the most useful first."""
SECONDS: Final = (
    *((1, "1 s"), (60, "1 min"), (3_600, "1 h"), (86_400, "1 day"), (604_800, "1 week"), (31_536_000, "1 year")),
    *((10, "10 s"), (600, "10 min"), (2_592_000, "30 days"), (315_360_000, "10 years"), (3_153_600_000, "100 years")),
    *((1e-3, "1 ms"), (1e-2, "10 ms"), (1e-1, "100 ms"), (1e-6, "1 µs"), (1e-5, "10 µs"), (1e-4, "100 µs")),
    *((30, "30 s"), (300, "5 min"), (1_800, "30 min"), (10_800, "3 h"), (36_000, "10 h"), (259_200, "3 days")),
)
"""Durations for a logarithmic scale, the most useful first."""
_CLOCKS: Final = {"minutes": 60_000_000, "seconds": 1_000_000, "milliseconds": 1_000, "microseconds": 1}
"""The unit in which a clock ends, in microseconds."""


def round_step(length: float, most: float, steps: Sequence[int] = STEPS) -> int:
    """Return the first step, or multiple of the last one, that a length has at most ``most`` times."""
    step = next((candidate for candidate in steps if length / candidate <= most), steps[-1])
    return step * max(1, math.ceil(length / step / most))


def rounds(low: int, high: int, most: float, steps: Sequence[int] = STEPS) -> list[int]:
    """Return about ``most`` round numbers from low to high."""
    step = round_step(high - low, most, steps)
    return list(range(-(-low // step) * step, high + 1, step))


def times(low_us: int, high_us: int, most: int) -> tuple[list[int], list[str], str]:
    """Return round times from low to high (microseconds since 1970), their names, and the text that all share."""
    ticks = rounds(low_us, high_us, most, STEPS_US) if low_us < high_us else []
    if not ticks:
        return [low_us], [_clock(low_us)], ""
    if not any(tick % 86_400_000_000 for tick in ticks):
        return ticks, [_clock(tick)[:10] for tick in ticks], ""
    unit = next(unit for unit, size_us in _CLOCKS.items() if not any(tick % size_us for tick in ticks))
    shared = 10 if _clock(low_us)[:10] == _clock(high_us)[:10] else 4  # the day, or the year
    return ticks, [_clock(tick, unit)[shared + 1 :] for tick in ticks], _clock(low_us)[:shared]


def _clock(value_us: int, unit: str = "minutes") -> str:
    return time_of(value_us).replace(tzinfo=None).isoformat(" ", unit)


def spaced(
    values: Iterable[Tick], position_of: Callable[[float], float], low: float, high: float, most: float
) -> list[Tick]:
    """Return ticks from low to high at their place on a scale, at least a part of 1 / ``most`` apart.

    Args:
        values: numbers with their names; a number that is too near to an earlier one is left out.
        position_of: the place of a number.
        low: the least number.
        high: the greatest number.
        most: about the number of ticks.
    """
    placed: list[Tick] = []
    for value, name in values:
        if low <= value <= high and all(
            abs(position_of(value) - other) * most >= position_of(high) - position_of(low) for other, _ in placed
        ):
            placed.append((position_of(value), name))
    return placed
