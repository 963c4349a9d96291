"""The random choices of one seed: each message has the same handler time and failures in every design."""

import random
from enum import IntEnum

from inturn.lab.knobs import Knobs
from inturn.lab.workload import Workload


class AttemptResult(IntEnum):
    """The end of one handling of a message."""

    APPLIED = 0
    FAILED = 1  # the handler raised; nothing was applied
    CRASHED = 2  # the consumer died before the effect
    APPLIED_UNACKED = 3  # the consumer died, or its lease expired, between the effect and the acknowledgement
    REJECTED = 4  # the consumer requeued it on purpose: it was not its turn
    DUPLICATE = 5  # recognised as a copy and acknowledged without an effect


class Draws:
    """The random choices, drawn once for a workload and its knobs.

    Attributes:
        duration_us: handler time of each message.
        planned_failures: for messages that fail: the results of their first attempts, in reverse order.
        poison: messages that always fail, including their copies.
        noise: a random number from 0 to 1 for each message, for variations of a design.
    """

    __slots__ = ("duration_us", "noise", "planned_failures", "poison")

    def __init__(self, load: Workload, knobs: Knobs) -> None:
        chance = random.Random(f"{knobs.seed}: handler times")  # noqa: S311 - a simulation, not a secret
        draw = knobs.handler.draw_us
        self.duration_us = [draw(chance) if known_us is None else known_us for known_us in load.duration_us]
        chance = random.Random(f"{knobs.seed}: noise")  # noqa: S311 - as above
        self.noise = [chance.random() for _ in self.duration_us]
        self.planned_failures: dict[int, list[AttemptResult]] = {}
        self.poison: frozenset[int] = frozenset()
        if knobs.poison_rate:
            chance = random.Random(f"{knobs.seed}: poison")  # noqa: S311 - as above
            bad = [chance.random() < knobs.poison_rate for _ in self.duration_us]
            self.poison = frozenset(message for message, first in enumerate(load.first) if bad[first])
        if knobs.failure_rate or knobs.crash_rate:
            self._fail(knobs)
        for message, count in load.failures.items():
            self.planned_failures[message] = self.planned_failures.get(message, []) + [AttemptResult.FAILED] * count

    def _fail(self, knobs: Knobs) -> None:
        chance = random.Random(f"{knobs.seed}: failures")  # noqa: S311 - as above
        fails, bad = knobs.failure_rate, knobs.failure_rate + knobs.crash_rate
        for message in range(len(self.duration_us)):
            results = []
            while (number := chance.random()) < bad:
                results.append(AttemptResult.FAILED if number < fails else self._crash(message, chance, knobs))
            if results:
                self.planned_failures[message] = results[::-1]

    def _crash(self, message: int, chance: random.Random, knobs: Knobs) -> AttemptResult:
        is_after = chance.random() < knobs.crash_after_effect
        has_effect = message not in self.poison  # a message that always fails has no effect, even if the process dies
        return AttemptResult.APPLIED_UNACKED if is_after and has_effect else AttemptResult.CRASHED

    def pending_failures(self) -> "PendingFailures":
        """Return the pending failures for one run of one design."""
        return PendingFailures(self)


class PendingFailures:
    """The failures that are still pending in a run.

    Attributes:
        messages: messages whose next attempt fails; check this first, since most messages never fail.
    """

    __slots__ = ("_left", "_poison", "messages")

    def __init__(self, draws: Draws) -> None:
        self._left = {message: list(results) for message, results in draws.planned_failures.items()}
        self._poison = draws.poison
        self.messages = set(self._left) | draws.poison

    def next(self, message: int) -> AttemptResult:
        """Return the result of this attempt."""
        results = self._left.get(message)
        if results:
            result = results.pop()
            if not results and message not in self._poison:
                self.messages.discard(message)
            return result
        return AttemptResult.FAILED if message in self._poison else AttemptResult.APPLIED
