"""A bad network for the flights: messages out of order, repeated, late, one with other content, one misspelt.

An aircraft numbers its messages, and its airline passes them on. One seed decides what each airline sends and when, so
every run has the same messages of an aircraft in the same order. How the airlines mix is random.
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
JITTER_MINUTES = 90  # every message takes up to this long, so neighbours change places
LATE_SHARE, LATE_HOURS = 0.05, (1, 24)
TWICE_SHARE, TWICE_HOURS = 0.05, 36
AIRLINES, OTHERS = ("UA", "B6", "EV", "DL"), "others"  # half of the flights are of four airlines
ELSEWHERE = "BOS"  # the landing airport in the contradicting copy
MISSPELT = "canceled"  # what one airline writes for "cancelled"
SENDING_S = 30  # the two weeks are sent in this many seconds

_Due = tuple[datetime, Row]


@dataclass(frozen=True)
class ProducerLog:
    """The messages that the producers have to send.

    Attributes:
        contradicted: tail number with a revision that is sent twice with different content.
        misspelt: tail number whose last message the handler does not know.
    """

    producers: dict[str, list[Post]]
    late: int
    twice: int
    contradicted: str
    misspelt: str


def deliver(events: Sequence[FlightEvent], strays: Sequence[Row] = (), *, seed: int = SEED) -> ProducerLog:
    """Send the messages through a bad network.

    Args:
        events: the messages in any order; at least one of them is a landing, and the last one of an aircraft a
            cancellation.
        strays: rows without an aircraft.
        seed: seed of all choices.
    """
    chance = random.Random(seed)  # noqa: S311 - a play, not a secret
    misspelt = _last_cancelled(events)
    rows = [msgspec.structs.asdict(event) | ({"type": MISSPELT} if event is misspelt else {}) for event in events] + [
        *strays
    ]
    rows.sort(key=lambda row: (row["at"], row["flight"], row["type"]))
    late = duplicates = 0
    due: list[_Due] = []
    for row in rows:
        minutes = chance.uniform(0, JITTER_MINUTES)
        if chance.random() < LATE_SHARE:
            late += 1
            minutes += chance.uniform(*LATE_HOURS) * 60
        due.append((row["at"] + timedelta(minutes=minutes), row))
        if chance.random() < TWICE_SHARE:
            duplicates += 1
            copy_minutes = minutes + chance.uniform(0, TWICE_HOURS * 60)
            due.append((row["at"] + timedelta(minutes=copy_minutes), row))
    contradicted = _contradict(due, chance)
    due.sort(key=lambda item: item[0])
    return ProducerLog(_by_airline(due), late, duplicates, contradicted, misspelt.tail)


def _last_cancelled(events: Sequence[FlightEvent]) -> FlightEvent:
    """Return the cancellation that is the last message of the aircraft with the most messages.

    No message follows it, and a cancelled flight moves no aircraft: all answers are right while it is parked.
    """
    last: dict[str, FlightEvent] = {}
    for event in events:
        if event.tail not in last or last[event.tail].revision < event.revision:
            last[event.tail] = event
    return max(
        (event for event in last.values() if event.type == "cancelled"), key=lambda event: (event.revision, event.tail)
    )


def _contradict(due: list[_Due], chance: random.Random) -> str:
    """Repeat one landing a day later with another airport: a conflict, of which the first message is applied."""
    first, row = chance.choice([item for item in due if item[1]["type"] == "landed" and item[1]["dest"] != ELSEWHERE])
    due.append((first + timedelta(days=1), row | {"dest": ELSEWHERE, "minutes": 45}))
    return str(row["tail"])


def _by_airline(due: Sequence[_Due]) -> dict[str, list[Post]]:
    """Return each airline's messages; an aircraft that flew for two belongs to the first."""
    first, last = due[0][0], due[-1][0]
    airlines: dict[str, str] = {}
    producers: dict[str, list[Post]] = {name: [] for name in (*AIRLINES, OTHERS)}
    for due_at, row in due:
        flies_for = row["flight"][:2] if row["flight"][:2] in AIRLINES else OTHERS
        airline = flies_for if row["tail"] is None else airlines.setdefault(row["tail"], flies_for)
        producers[airline].append(Post((due_at - first) / (last - first) * SENDING_S, row))
    return producers


def write(posts: Sequence[Post], path: Path) -> None:
    """Write the messages of a producer to a file, one line of JSON each."""
    path.write_bytes(msgspec.json.Encoder().encode_lines(posts))
