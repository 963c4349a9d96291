"""The knobs of the lab: consumers, handler times, failures, and configured limits of brokers."""

import random
from typing import Any, TypeAlias

import msgspec

from inturn.core.errors import InputError

SECOND_US = 1_000_000


class UniformTime(msgspec.Struct, frozen=True, kw_only=True, tag="uniform"):
    """Handler times distributed uniformly between two bounds."""

    low_ms: float = 0.0
    high_ms: float = 2.0

    def draw_us(self, chance: random.Random) -> int:
        """Return one handler time."""
        return int(chance.uniform(self.low_ms, self.high_ms) * 1000)


class LogNormalTime(msgspec.Struct, frozen=True, kw_only=True, tag="log-normal"):
    """Handler times with a long tail: the logarithm is normally distributed with standard deviation ``sigma``."""

    median_ms: float
    sigma: float = 0.5

    def draw_us(self, chance: random.Random) -> int:
        """Return one handler time."""
        return int(self.median_ms * chance.lognormvariate(0.0, self.sigma) * 1000)


class MeasuredTime(msgspec.Struct, frozen=True, kw_only=True, tag="measured"):
    """Handler times drawn from measured ones, each equally likely."""

    values_us: tuple[int, ...]

    def draw_us(self, chance: random.Random) -> int:
        """Return one handler time."""
        return self.values_us[int(chance.random() * len(self.values_us))]


HandlerTime: TypeAlias = UniformTime | LogNormalTime | MeasuredTime


class Knobs(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a run.

    Attributes:
        consumers: number of processes, each of which handles one message at a time.
        prefetch: maximum number of unacknowledged messages that a broker sends to a consumer.
        batch: maximum number of messages that a polling consumer receives at once.
        partitions: number of partitions of a topic, or of queues of a consistent hash.
        handler: handler times of messages without one of their own.
        failure_rate: share of handlings that fail but succeed when retried, from 0 to 1.
        poison_rate: share of messages that always fail, from 0 to 1.
        crash_rate: share of handlings in which the consumer's process dies, from 0 to 1.
        crash_after_effect: share of crashes that occur after the effect and before the acknowledgement.
        restart_s: time until a consumer that died has restarted.
        visibility_s: time until a received message that is not acknowledged is delivered to another consumer.
        max_attempts: attempts after which a message is dead-lettered, skipped or parked, depending on the design.
        backoff_s: pause before another attempt, if the design has one.
        reorder_s: longest wait of a resequencer for a missing message.
        dedup_s: window in which a broker recognises a repeated message.
        seed: seed of all random choices.
    """

    consumers: int = 4
    prefetch: int = 10
    batch: int = 10
    partitions: int = 8
    handler: HandlerTime = UniformTime()
    failure_rate: float = 0.0
    poison_rate: float = 0.0
    crash_rate: float = 0.0
    crash_after_effect: float = 0.5
    restart_s: float = 1.0
    visibility_s: float = 30.0
    max_attempts: int = 10
    backoff_s: float = 0.1
    reorder_s: float = 10.0
    dedup_s: float = 300.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("consumers", "prefetch", "batch", "partitions", "max_attempts"):
            _check(name, getattr(self, name), least=1)
        for name in ("failure_rate", "poison_rate", "crash_rate", "crash_after_effect"):
            _check(name, getattr(self, name), most=1)
        for name in ("restart_s", "visibility_s", "backoff_s", "reorder_s", "dedup_s"):
            _check(name, getattr(self, name))
        if self.failure_rate + self.crash_rate >= 1:
            rates = f"failure_rate {self.failure_rate} and crash_rate {self.crash_rate}"
            raise InputError(f"{rates} add up to 1 or more, so that no handling succeeds; expected a sum below 1")


def _check(name: str, value: Any, *, least: float = 0, most: float | None = None) -> None:
    if value < least or (most is not None and value > most):
        bound = f"from {least} to {most}" if most is not None else f"{least} or more"
        raise InputError(f"{name} is {value!r}; expected {bound}")
