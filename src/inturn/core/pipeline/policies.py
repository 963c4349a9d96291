"""The policies for gaps and failures: plain values for the definition of a pipeline."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from inturn.core.errors import PipelineError
from inturn.core.values.duration import Duration, duration_us

_DOUBLINGS = 32
"""Number of doublings after which even a microsecond exceeds the longest pause."""


@dataclass(frozen=True)
class Wait:
    """The policy for a gap: wait, forever or for a time.

    Attributes:
        timeout: length of the wait, such as ``"10 minutes"``; None waits forever.
        then: ``park`` the group, ``skip`` the missing revisions, or ``fail`` the run with nothing committed.
    """

    timeout: Duration | None = None
    then: Literal["park", "skip", "fail"] = "park"

    def __post_init__(self) -> None:
        if self.then not in ("park", "skip", "fail"):
            raise PipelineError(f"Wait(then={self.then!r}); expected 'park', 'skip' or 'fail'")
        if self.timeout is None and self.then != "park":
            raise PipelineError(
                f"Wait(then={self.then!r}) has no timeout; set one, such as Wait('10 minutes', then={self.then!r})"
            )
        if self.timeout is not None:
            duration_us(self.timeout, label="Wait(timeout)")

    @cached_property
    def timeout_us(self) -> int | None:
        """The timeout in microseconds; None waits forever."""
        return None if self.timeout is None else duration_us(self.timeout, label="Wait(timeout)")


@dataclass(frozen=True)
class Retry:
    """The policy for a handler that raises ``Retryable``: further attempts before its group is parked.

    Attributes:
        times: number of further attempts.
        backoff: pause before the first of them, doubled for each one after it, at most a minute.
    """

    times: int = 0
    backoff: Duration = "100 milliseconds"

    def __post_init__(self) -> None:
        if not isinstance(self.times, int) or self.times < 0:
            raise PipelineError(f"Retry(times={self.times!r}); expected a whole number of further attempts, 0 or more")
        duration_us(self.backoff, label="Retry(backoff)")

    def pauses_s(self) -> list[float]:
        """Return the pause before each further attempt, in seconds."""
        first = duration_us(self.backoff, label="Retry(backoff)") / 1e6
        return [min(first * 2.0 ** min(n, _DOUBLINGS), 60.0) for n in range(self.times)]
