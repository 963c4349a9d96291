"""What a network does to messages on their way: the same flights, out of order, twice, late and one with other content.

An aircraft numbers its messages, and its airline passes them on. What each airline sends, and when, is drawn from one
seed, so that every run has the same messages of an aircraft in the same order; how the airlines mix is left to chance.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from inturn.demo.flights import FlightEvent
from inturn.demo.producer import Post

Row = dict[str, Any]

SEED = 2013
JITTER_MINUTES = 90  # every message is under way for up to so long, so neighbours change places
LATE_SHARE, LATE_HOURS = 0.05, (1, 24)
TWICE_SHARE, TWICE_HOURS = 0.05, 36
AIRLINES, OTHERS = ("UA", "B6", "EV", "DL"), "others"  # half of the flights are of four airlines
ELSEWHERE = "BOS"  # where the contradicting copy says that its flight landed
SENDING_S = 30  # the two weeks pass in so many seconds

_Due = tuple[datetime, Row]


@dataclass(frozen=True)
class Delivery:
    """What the producers have to send.

    Attributes:
        producers: of each airline its messages, in the order in which they are due.
        late: how many messages are held up for hours.
        twice: how many are sent twice.
        contradicted: the tail number of which one revision is sent twice with different content.
    """

    producers: dict[str, list[Post]]
    late: int
    twice: int
    contradicted: str


def deliver(events: Sequence[FlightEvent], strays: Sequence[Row] = (), *, seed: int = SEED) -> Delivery:
    """Send the messages through a bad network.

    Args:
        events: the messages in any order; at least one of them is a landing.
        strays: rows that name no aircraft.
        seed: of every draw.
    """
    chance = random.Random(seed)  # noqa: S311 - a play, not a secret
    rows = [*map(msgspec.structs.asdict, events), *strays]
    rows.sort(key=lambda row: (row["at"], row["flight"], row["type"]))
    late = twice = 0
    due: list[_Due] = []
    for row in rows:
        minutes = chance.uniform(0, JITTER_MINUTES)
        if chance.random() < LATE_SHARE:
            late += 1
            minutes += chance.uniform(*LATE_HOURS) * 60
        due.append((row["at"] + timedelta(minutes=minutes), row))
        if chance.random() < TWICE_SHARE:
            twice += 1
            again = minutes + chance.uniform(0, TWICE_HOURS * 60)
            due.append((row["at"] + timedelta(minutes=again), row))
    contradicted = _contradict(due, chance)
    due.sort(key=lambda each: each[0])
    return Delivery(_by_airline(due), late, twice, contradicted)


def _contradict(due: list[_Due], chance: random.Random) -> str:
    """Let one landing be told again a day later, with another airport: a conflict, of which the first is taken."""
    first, row = chance.choice([each for each in due if each[1]["type"] == "landed" and each[1]["dest"] != ELSEWHERE])
    due.append((first + timedelta(days=1), row | {"dest": ELSEWHERE, "minutes": 45}))
    return str(row["tail"])


def _by_airline(due: Sequence[_Due]) -> dict[str, list[Post]]:
    """Each airline's own messages; an aircraft that has flown for two belongs to the first."""
    first, last = due[0][0], due[-1][0]
    airlines: dict[str, str] = {}
    producers: dict[str, list[Post]] = {name: [] for name in (*AIRLINES, OTHERS)}
    for at, row in due:
        flies_for = row["flight"][:2] if row["flight"][:2] in AIRLINES else OTHERS
        airline = flies_for if row["tail"] is None else airlines.setdefault(row["tail"], flies_for)
        producers[airline].append(Post((at - first) / (last - first) * SENDING_S, row))
    return producers


def write(posts: Sequence[Post], path: Path) -> None:
    """Write down what a producer has to send, a line of JSON for each message."""
    path.write_bytes(msgspec.json.Encoder().encode_lines(posts))
