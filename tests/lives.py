"""Lives that end at every named point: each point once, by its name; what is left is drawn by chance.

A kill test runs a program (:func:`history_of`) that forks its lives (:func:`die_together`), or starts each life as a
process of its own with ``INTURN_KILL_AT``. `make soak` asks for SOAK_TIMES as many.
"""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from inturn import faults
from waiting import until

TESTS: Final = Path(__file__).parent
LIMIT_S: Final = 300
"""How long all lives of a program may take together, and each life that is a process of its own."""


class Death(NamedTuple):
    """How a life ends.

    Attributes:
        at: the point, and which time that it is reached, as ``INTURN_KILL_AT`` has it; empty: at none.
        after_s: seconds until it ends wherever it is; None: never, so that it ends at its point or not at all.
    """

    at: str
    after_s: float | None = None

    def arm(self) -> None:
        """From now on this process ends so."""
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # it ends the process as it is
        if self.after_s is not None:
            signal.setitimer(signal.ITIMER_REAL, self.after_s)
        if self.at:
            faults.kill_at(self.at)


def deaths(
    points: Sequence[str],
    lives: int,
    chance: random.Random,
    *,
    reached: tuple[int, int] = (1, 12),
    after_s: tuple[float, float] | None = (0.01, 0.2),
) -> list[Death]:
    """Return how each of so many lives ends: at each point once, and then as chance has it.

    Args:
        points: names of points that each life reaches.
        lives: how many; not fewer than points.
        chance: what draws.
        reached: between which times that a point is reached the life ends.
        after_s: between which moments a life of the rest ends, if it has not come to its point; None: never.
    """
    assert lives >= len(points), f"{lives} lives cannot end at {len(points)} points"
    named = [Death(f"{point}@{chance.randint(*reached)}") for point in chance.sample(points, len(points))]
    random_deaths = [Death(f"{chance.choice(points)}@{chance.randint(*reached)}") for _ in range(lives - len(points))]
    if after_s is not None:
        random_deaths = [
            Death(point if chance.random() < 0.8 else "", chance.uniform(*after_s)) for point, _ in random_deaths
        ]
    return [*named, *random_deaths]


def die_together(live: Callable[[int, Death], None], numbered: Sequence[tuple[int, Death]]) -> int:
    """Fork some lives that run at the same time; return how many were killed as they should be.

    Args:
        live: a life, which is given its number and its death, arms it, and goes on until it is killed.
        numbered: the number of each and its death.
    """
    children = []
    for number, death in numbered:
        if (child := os.fork()) == 0:
            live(number, death)
            os._exit(1)  # it should have been killed
        children.append(child)
    ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return sum(end in {-signal.SIGKILL, -signal.SIGALRM} for end in ends)


def history_of(module: str, folder: Path, lives: int, seed: int, *more: str) -> Any:
    """Run a program whose lives are killed; return what it printed, after a check that all of them were.

    Args:
        module: the program, from the folder ``tests``.
        folder: where its files are.
        lives: how many are killed.
        seed: of what it draws.
        more: arguments; the address of a database, or nothing.
    """
    command = [sys.executable, "-m", module, str(folder), str(lives), str(seed), *more]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    history = json.loads(done.stdout)
    assert history["killed"] == lives, f"lives that ended otherwise: {done.stderr}"
    return history


def killed_at_every_point(
    command: Sequence[str], points: Sequence[str], lives: int, chance: random.Random, *, most: int
) -> None:
    """Run a host of a source again and again, and kill it at every point; at last it comes to its end.

    Args:
        command: the host, which ends by itself when nothing is left.
        points: names of points.
        lives: how many, not fewer than points; each is killed.
        chance: what draws.
        most: the last time that a point is reached at which it is killed; there must be so much to do for each life.
    """

    def is_killed(point: str) -> bool:
        life = subprocess.run(command, env=os.environ | {"INTURN_KILL_AT": point}, check=False, timeout=LIMIT_S)
        assert life.returncode in {0, -signal.SIGKILL}
        return life.returncode != 0

    for point, _ in deaths(points, lives, chance, reached=(1, most), after_s=None):
        # What the last life held may have to come free first.
        until(lambda point=point: is_killed(point), f"a life that ends {point}")  # type: ignore[misc]
    assert not is_killed("")
