"""What a network does to messages on their way: the same flights, out of order, twice, late and one with other content.

Everything is drawn from one seed, so a demo that is run again shows the same.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from inturn.demo.flights import FlightEvent

Row = dict[str, Any]

SEED = 2013
JITTER_MINUTES = 90  # every message is under way for up to so long, so neighbours change places
LATE_SHARE, LATE_HOURS = 0.05, (1, 24)
TWICE_SHARE, TWICE_HOURS = 0.05, 36
FIRST_SHARE = 0.8  # of the messages that get through come with the first delivery
MISSING = 40  # messages that were sent before the first delivery was cut and came after it
ELSEWHERE = "BOS"  # where the contradicting copy says that its flight landed


@dataclass(frozen=True)
class Delivery:
    """The messages as they come in, in two batches; ``offset`` is the place of each in the delivery.

    Attributes:
        first: rows up to the cut.
        second: rows after it, the missing ones among them.
        late: how many messages were held up for hours.
        twice: how many were delivered twice.
        missing: how many should have been in the first batch and came in the second.
        contradicted: the tail number of which one revision came twice with different content.
    """

    first: list[Row]
    second: list[Row]
    late: int
    twice: int
    missing: int
    contradicted: str

    @property
    def rows(self) -> list[Row]:
        """Every message in the order of arrival."""
        return self.first + self.second


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
    sent = []
    for row in rows:
        minutes = chance.uniform(0, JITTER_MINUTES)
        if chance.random() < LATE_SHARE:
            late += 1
            minutes += chance.uniform(*LATE_HOURS) * 60
        sent.append((row["at"] + timedelta(minutes=minutes), row))
        if chance.random() < TWICE_SHARE:
            twice += 1
            again = minutes + chance.uniform(0, TWICE_HOURS * 60)
            sent.append((row["at"] + timedelta(minutes=again), row))
    arrived = [row for _, row in sorted(sent, key=lambda each: each[0])]
    cut = int(len(arrived) * FIRST_SHARE)
    first, second, missing = _lose(arrived[:cut], arrived[cut:], chance)
    contradicted = _contradict(first, second, chance)
    everything = [row | {"offset": offset} for offset, row in enumerate(first + second)]
    return Delivery(everything[: len(first)], everything[len(first) :], late, twice, missing, contradicted)


def _lose(first: list[Row], second: list[Row], chance: random.Random) -> tuple[list[Row], list[Row], int]:
    """Move some messages, every copy of them, from the first batch to places in the second."""
    lost = chance.sample([row for row in first if row["tail"] is not None], min(MISSING, len(first) // 10))
    names = {_place(row) for row in lost}
    moved = [row for row in first if _place(row) in names]
    kept = [row for row in first if _place(row) not in names]
    joined = list(second)
    for row in moved:
        joined.insert(chance.randint(0, len(joined)), row)
    return kept, joined, len(names)


def _contradict(first: list[Row], second: list[Row], chance: random.Random) -> str:
    """Put one landing of the first batch into the second again, with another airport: a conflict."""
    landings = [row for row in first if row["type"] == "landed" and row["dest"] != ELSEWHERE]
    copied = {_place(row) for row in second}
    original = chance.choice([row for row in landings if _place(row) not in copied])
    second.insert(chance.randint(0, len(second)), original | {"dest": ELSEWHERE, "minutes": 45})
    return str(original["tail"])


def _place(row: Row) -> tuple[Any, Any]:
    return row["tail"], row["revision"]


def write(rows: Sequence[Row], path: Path) -> None:
    """Write messages as a Parquet file, with their types as columns."""
    import pyarrow as pa
    from pyarrow import parquet

    instant = pa.timestamp("us", tz="UTC")
    schema = pa.schema(
        {
            "offset": pa.int64(),
            "tail": pa.string(),
            "revision": pa.int64(),
            "type": pa.string(),
            "flight": pa.string(),
            "origin": pa.string(),
            "dest": pa.string(),
            "scheduled": instant,
            "at": instant,
            "minutes": pa.int64(),
        }
    )
    parquet.write_table(pa.Table.from_pylist(list(rows), schema=schema), path)
