"""The lab's input from the user's own log, and synthetic input of the same kind."""

import datetime as dt
import random
from bisect import bisect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from inturn.core.errors import InputError
from inturn.core.identity import group_text
from inturn.core.values import path
from inturn.core.values.instant import Unit, read_us
from inturn.lab.workload import LabMessage

_GAP_US = 1_000


def messages_of(
    rows: Iterable[Mapping[str, Any]],
    *,
    group: str,
    order: str,
    arrival: str | None = None,
    duration_ms: str | None = None,
    unit: Unit = "us",
) -> list[LabMessage]:
    """Return the messages of a log.

    Args:
        rows: the rows of the log, as dicts; without ``arrival``, in order of arrival.
        group: field with the group.
        order: field with the revision: an integer, or a time.
        arrival: field with the time of arrival: a datetime, text (ISO 8601), or a number since 1970; None if the log
            has none: then messages arrive one millisecond apart.
        duration_ms: field with the handler time in milliseconds; None if the log has none.
        unit: unit of times that are numbers: ``s``, ``ms``, ``us`` or ``ns``.

    Raises:
        InputError: if a row lacks a field, or a value cannot be read; the error names the row.
    """
    read = path.reader([group, order, arrival, duration_ms], None)
    messages = []
    for number, row in enumerate(rows):
        whose, place, arrived, lasted = read(row)
        if whose is None:
            field_texts = ", ".join(map(str, row))
            raise InputError(f"row {number}: {group} is {whose!r}; expected a group; existing fields: {field_texts}")
        at_us = number * _GAP_US if arrival is None else _instant(arrived, arrival, unit, number)
        is_number = isinstance(place, int) and not isinstance(place, bool)
        messages.append(
            LabMessage(
                at_us=at_us,
                group=group_text(whose),
                revision=place if is_number else _instant(place, order, unit, number),
                duration_us=None if duration_ms is None else _duration_us(lasted, duration_ms, number),
                body=dict(row),
            )
        )
    return messages


def _instant(value: Any, name: str, unit: Unit, number: int) -> int:
    time_us = read_us(value, unit) if isinstance(value, str | int | float | dt.datetime) else None
    if time_us is None:
        raise InputError(f"row {number}: {name} is {value!r}; expected a number or a time")
    return time_us


def _duration_us(value: Any, name: str, number: int) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < float("inf"):
        raise InputError(f"row {number}: {name} is {value!r}; expected milliseconds, 0 or more")
    return int(value * 1000)


class LogProfile(msgspec.Struct, frozen=True, kw_only=True):
    """The distributions of a log, from which synthetic messages are drawn independently of each other.

    Attributes:
        gaps_us: times between two arrivals, except copies and late messages.
        shares: number of messages of each group, greatest first.
        durations_us: handler times, if the log has them.
        lateness_us: for each late message (one that arrived after a later one of its group): the time since the first
            such later message.
        late_share: share of late messages, from 0 to 1.
        copies_us: for each copy: the time since the message that it repeats.
        copy_share: share of copies, from 0 to 1.
    """

    gaps_us: tuple[int, ...]
    shares: tuple[int, ...]
    durations_us: tuple[int, ...]
    lateness_us: tuple[int, ...]
    late_share: float
    copies_us: tuple[int, ...]
    copy_share: float

    def draw(self, count: int, seed: int = 0) -> list[LabMessage]:
        """Return ``count`` synthetic messages without bodies, plus their copies."""
        chance = random.Random(f"{seed}: messages")  # noqa: S311 - a simulation, not a secret
        groups = range(len(self.shares))
        dealt = chance.choices(groups, weights=self.shares, k=count)
        revisions = [0] * len(self.shares)
        at_us, times = 0, [0] * count
        waiting: dict[int, list[int]] = {}
        for number, group in enumerate(dealt):
            at_us += _chosen(chance, self.gaps_us)
            times[number] = at_us
            if chance.random() < self.late_share:
                waiting.setdefault(group, []).append(number)
            else:  # earlier messages of its group that are to be late arrive after this one
                for late in waiting.pop(group, ()):
                    times[late] = at_us + _chosen(chance, self.lateness_us)
        messages = []
        for at_us, group in zip(times, dealt, strict=True):
            revisions[group] += 1
            message = LabMessage(
                at_us=at_us,
                group=f"group-{group + 1}",
                revision=revisions[group],
                duration_us=_chosen(chance, self.durations_us) if self.durations_us else None,
            )
            messages.append(message)
            if chance.random() < self.copy_share:
                after_us = message.at_us + _chosen(chance, self.copies_us)
                messages.append(msgspec.structs.replace(message, at_us=after_us))
        return sorted(messages, key=lambda message: message.at_us)


def _chosen(chance: random.Random, values: Sequence[int]) -> int:
    return values[int(chance.random() * len(values))] if values else 0


def profile_of(messages: Iterable[LabMessage]) -> LogProfile:
    """Return the distributions of a log.

    Raises:
        InputError: if there are no messages.
    """
    ordered = sorted(messages, key=lambda message: message.at_us)
    if not ordered:
        raise InputError("the log has no messages; expected at least one")
    counts: dict[str, int] = {}
    first_us: dict[tuple[str, int], int] = {}
    rises: dict[str, list[tuple[int, int]]] = {}  # per group: revisions that were the highest so far, with their times
    gaps, lateness, copies, before_us = [], [], [], None
    for message in ordered:
        identity = (message.group, message.revision)
        if identity in first_us:
            copies.append(message.at_us - first_us[identity])
            continue
        first_us[identity] = message.at_us
        counts[message.group] = counts.get(message.group, 0) + 1
        risen = rises.setdefault(message.group, [])
        after = bisect(risen, (message.revision, message.at_us))
        if after < len(risen):
            lateness.append(message.at_us - risen[after][1])
            continue
        risen.append((message.revision, message.at_us))
        if before_us is not None:
            gaps.append(message.at_us - before_us)
        before_us = message.at_us
    return LogProfile(
        gaps_us=tuple(gaps),
        shares=tuple(sorted(counts.values(), reverse=True)),
        durations_us=tuple(message.duration_us for message in ordered if message.duration_us is not None),
        lateness_us=tuple(lateness),
        late_share=len(lateness) / len(first_us),
        copies_us=tuple(copies),
        copy_share=len(copies) / len(first_us),
    )


def fitted(messages: Iterable[LabMessage], count: int | None = None, seed: int = 0) -> list[LabMessage]:
    """Return synthetic messages with the same arrivals, handler times, skew, lateness and copies as a log.

    Args:
        messages: the log.
        count: number of messages without copies; None for the number in the log.
        seed: seed of all choices.

    Raises:
        InputError: if there are no messages.
    """
    profile = profile_of(messages)
    return profile.draw(sum(profile.shares) if count is None else count, seed)
