"""A check of a user's own source: its records after reopening, handovers and crashes, over a random schedule.

A model of the host commits records, and remembers for each partition where the next read continues. The sources under
test are dropped without closing, closed, opened at these positions by another instance, and confirmed late or never.
"""

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from inturn.core.errors import SourceError
from inturn.ingest.source import Source, SourceRecord


class SourceFault(AssertionError):
    """A source that breaks the rules of :class:`inturn.ingest.Source`; the text has the schedule up to the fault."""


def number_in(record: SourceRecord) -> int:
    """Return the field ``n`` of a record's JSON."""
    return int(msgspec.json.decode(record.body or b"")["n"])


def source(
    make: Callable[[], Source],
    produce: Callable[[Sequence[int]], object],
    *,
    number: Callable[[SourceRecord], int] = number_in,
    seed: int = 1,
    steps: int = 100,
    redelivers: bool = False,
    patience_s: float = 30.0,
) -> None:
    """Check that a source loses, repeats or reorders no record, whatever happens to its readers.

    Args:
        make: returns a new source over the data that ``produce`` writes, as another process would.
        produce: writes a record for each of the numbers, in this order, such as ``{"n": 7}``. The records of one
            partition keep their order there.
        number: returns the number of a record.
        seed: random seed of the schedule.
        steps: the length of the schedule.
        redelivers: whether unconfirmed records are delivered again, and positions mean nothing, as with a broker that
            has acknowledgements; ids then prevent duplicate messages.
        patience_s: how long the source may return nothing, or raise SourceError, before a record counts as lost.

    Raises:
        SourceFault: if the source breaks a rule.
    """
    _Check(make, produce, number, seed, redelivers=redelivers, patience_s=patience_s).run(steps)


class _Check:
    def __init__(
        self,
        make: Callable[[], Source],
        produce: Callable[[Sequence[int]], object],
        number: Callable[[SourceRecord], int],
        seed: int,
        *,
        redelivers: bool,
        patience_s: float,
    ) -> None:
        self._make, self._produce, self._number, self._seed = make, produce, number, seed
        self._redelivers, self._patience_s = redelivers, patience_s
        self._chance = random.Random(seed)  # noqa: S311 - a schedule, not a secret
        self._schedule: list[str] = []
        self._produced = 0
        self._bytes = random.Random(seed)  # noqa: S311 - the same
        self._sources = [self._new_source(), self._new_source()]
        self._owners: dict[str, int] = {}
        self._positions: dict[str, Any] = {}
        self._committed: dict[str, list[int]] = {}
        self._confirmed: set[int] = set()
        self._incarnations: dict[str, str] = {}

    def run(self, steps: int) -> None:
        """Run the schedule, then read the remaining records."""
        self._produce_more()
        if not self._redelivers:
            self._reopen_everywhere()
        actions = (self._produce_more, self._read, self._read, self._read, self._hand_over, self._crash)
        for _ in range(steps):
            self._chance.choice(actions)()
        self._log("read the remaining records")
        last = time.monotonic()
        while self._count() < self._produced:
            before = self._count()
            self._read(timeout_s=0.1, is_lossless=True)
            last = time.monotonic() if self._count() > before else last
            if time.monotonic() > last + self._patience_s:
                missing = set(range(self._produced)) - {n for numbers in self._committed.values() for n in numbers}
                self._fail(f"{len(missing)} of {self._produced} records are lost; the first is {min(missing)}")
        for instance in self._sources:
            instance.shutdown()

    def _new_source(self) -> Source:
        instance = self._make()
        instance.batch_bytes = self._bytes.choice((1, 50, instance.batch_bytes))
        return instance

    def _produce_more(self) -> None:
        count = self._chance.randint(1, 10)
        self._log(f"produce {self._produced} to {self._produced + count - 1}")
        self._produce(range(self._produced, self._produced + count))
        self._produced += count

    def _read(self, *, timeout_s: float = 0.0, is_lossless: bool = False) -> None:
        """Poll one instance; then commit the records, or lose all of them as in a crash."""
        self._open_new()
        index, limit = self._chance.randrange(len(self._sources)), self._chance.randint(1, 8)
        records = self._poll(self._sources[index], index, limit, timeout_s)
        if records or not is_lossless:
            self._log(f"instance {index} polls {limit}: {[self._number(record) for record in records]}")
        if len(records) > limit:
            self._fail(f"poll({limit}) returned {len(records)} records")
        for record in records:
            if self._owners.get(record.partition) != index:
                self._fail(f"instance {index} returned a record of {record.partition!r}, which it has not opened")
        if not is_lossless and self._chance.random() < 0.2:
            self._drop(index, "before the commit")
            return
        for record in records:
            self._commit(record)
        if not is_lossless and self._chance.random() < 0.2:
            self._drop(index, "after the commit, before confirm")
            return
        for partition in dict.fromkeys(record.partition for record in records):
            self._sources[index].confirm(partition, self._positions[partition])
        self._confirmed.update(map(self._number, records))

    def _poll(self, instance: Source, index: int, limit: int, timeout_s: float) -> Sequence[SourceRecord]:
        """Poll, if a partition is open: the host polls no other source, and reopens partitions after an error."""
        owned = [partition for partition, owner in self._owners.items() if owner == index]
        try:
            return instance.poll(limit, timeout_s) if owned else []
        except SourceError as error:
            self._log(f"instance {index} fails: {error}")
        for partition in owned:
            instance.close(partition)
            self._open(partition, index)
        return []

    def _commit(self, record: SourceRecord) -> None:
        done, number = self._committed.setdefault(record.partition, []), self._number(record)
        if number in done:
            if not self._redelivers or number in self._confirmed:
                self._fail(f"record {number} of {record.partition!r} was returned again after its commit")
        elif done and number < done[-1]:
            self._fail(f"record {number} of {record.partition!r} was returned after record {done[-1]}")
        else:
            done.append(number)
        self._positions[record.partition] = _stored(record.position)

    def _hand_over(self) -> None:
        if self._owners:
            partition = self._chance.choice(sorted(self._owners))
            before, after = self._owners[partition], self._chance.randrange(len(self._sources))
            self._log(f"partition {partition!r} moves from instance {before} to {after}")
            self._sources[before].close(partition)
            self._open(partition, after)

    def _crash(self) -> None:
        self._drop(self._chance.randrange(len(self._sources)), "between two polls")

    def _drop(self, index: int, when: str) -> None:
        """Drop an instance as if its process had died, and open its partitions in other instances."""
        self._log(f"instance {index} dies {when}")
        if self._redelivers:
            self._sources[index].shutdown()  # a broker sees the end of the connection
        self._sources[index] = self._new_source()
        for partition in [name for name, owner in self._owners.items() if owner == index]:
            self._open(partition, self._chance.randrange(len(self._sources)))

    def _open_new(self) -> None:
        for partition in self._sources[0].partitions():
            if partition not in self._owners:
                self._open(partition, self._chance.randrange(len(self._sources)))

    def _open(self, partition: str, index: int) -> None:
        position = self._positions.get(partition)
        self._log(f"instance {index} opens {partition!r} at {position!r}")
        instance = self._sources[index]
        instance.partitions()  # as the host does before it opens a partition
        incarnation = instance.incarnation(partition)
        if self._incarnations.setdefault(partition, incarnation) != incarnation:
            self._fail(
                f"the incarnation of {partition!r} changed from {self._incarnations[partition]!r} to {incarnation!r}"
            )
        instance.open(partition, position)
        self._owners[partition] = index

    def _reopen_everywhere(self) -> None:
        """Read all records from the start, then from each position: the remaining records must be the same."""
        every = self._first(dict.fromkeys(self._make().partitions()), self._produced)
        for partition in dict.fromkeys(record.partition for record in every):
            records = [record for record in every if record.partition == partition]
            for count, current in enumerate(records, 1):
                rest = self._first({partition: current.position}, len(records) - count)
                if rest != records[count:]:
                    expected, returned = ([self._number(record) for record in part] for part in (records[count:], rest))
                    where = f"after {current.position!r}, but {returned} when opened at this position"
                    self._fail(f"{partition!r} returns {expected} {where}")

    def _first(self, positions: dict[str, Any], count: int) -> list[SourceRecord]:
        """Read a number of records from these positions on, or fewer if no more are returned."""
        instance, records = self._make(), list[SourceRecord]()
        for partition, position in positions.items():
            instance.open(partition, position)
        until = time.monotonic() + self._patience_s
        while len(records) < count and time.monotonic() < until:
            records += instance.poll(count - len(records), 0.1)
        instance.shutdown()
        return [record._replace(position=_stored(record.position)) for record in records]

    def _count(self) -> int:
        return sum(map(len, self._committed.values()))

    def _log(self, text: str) -> None:
        self._schedule.append(text)

    def _fail(self, reason: str) -> None:
        steps = "\n".join(f"  {number:>3} {step}" for number, step in enumerate(self._schedule, 1))
        raise SourceFault(f"{reason}\nseed {self._seed}, the schedule:\n{steps}")


def _stored(position: Any) -> Any:
    """Return a position as a database returns it: JSON."""
    return msgspec.json.decode(msgspec.json.encode(position))
