"""Rates: how many messages may begin in a time, decided from one stored point in time per key.

The rule is GCRA, the generic cell rate algorithm of ATM (ITU-T I.371): the stored point is the time of the next message
if messages are evenly spaced. A message may be earlier by the burst. So a rate needs no history, and any number of
processes share it if each reads and writes the point in one transaction.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from inturn.core import limits
from inturn.core.errors import InputError, PipelineError
from inturn.core.values.duration import Duration, duration_us


@dataclass(frozen=True)
class Rate:
    """A maximum rate: in no window of the length ``per`` do more than ``times + burst - 1`` messages begin.

    Attributes:
        times: number of messages.
        per: length of time, such as ``"1 minute"``.
        burst: number of messages that may begin at once after a rest; with 1 they are evenly spaced.
    """

    times: int
    per: Duration
    burst: int = 1
    spacing_us: int = field(init=False, repr=False, compare=False)  # rounded up, so that the rate is never exceeded

    def __post_init__(self) -> None:
        """Check each value."""
        for name in ("times", "burst"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= limits.RATE_TIMES:
                raise InputError(f"Rate({name}={value!r}); expected a whole number from 1 to {limits.RATE_TIMES:,}")
        try:
            per_us = duration_us(self.per, label="Rate(per)")
        except PipelineError as error:
            raise InputError(str(error)) from None
        if per_us < self.times:
            raise InputError(f"Rate({self.times}, {self.per!r}) exceeds one message per microsecond; pass a longer per")
        object.__setattr__(self, "spacing_us", -(-per_us // self.times))

    def free(self, next_us: int, now_us: int) -> int:
        """Return how many messages may begin now; ``next_us`` is the stored point, 0 if there is none."""
        return self.burst - -(-(self._in_force(next_us, now_us) - now_us) // self.spacing_us)

    def free_us(self, next_us: int, now_us: int) -> int:
        """Return when the next message may begin, which is not later than now if one may begin now."""
        return self._in_force(next_us, now_us) - (self.burst - 1) * self.spacing_us

    def after(self, next_us: int, now_us: int, begun: int) -> int:
        """Return the point to store after so many messages have begun now."""
        return self._in_force(next_us, now_us) + begun * self.spacing_us

    def is_astray(self, next_us: int, now_us: int) -> bool:
        """Return whether a point was stored by a clock that was ahead of this one.

        :meth:`after` then gives the point to store in its place, also where nothing has begun: as long as it is stored,
        no message may begin, at any time.
        """
        return self._in_force(next_us, now_us) < next_us

    def _in_force(self, next_us: int, now_us: int) -> int:
        """Return the point, neither in the past nor so far ahead as only a clock that was set back makes it."""
        return min(max(next_us, now_us), now_us + self.burst * self.spacing_us)


class RateLimits(NamedTuple):
    """The rates of a receive.

    Attributes:
        overall: rate of all messages of the queue; None: no limit.
        group: rate of the messages of each group; None: no limit.
    """

    overall: Rate | None = None
    group: Rate | None = None
