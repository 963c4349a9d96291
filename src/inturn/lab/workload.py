"""The input of the lab: messages with their arrival, group, revision and content, as columns."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from inturn.core.arguments import check_type
from inturn.core.errors import InputError


class LabMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message of the input.

    Attributes:
        at_us: arrival at the broker, in microseconds since any fixed time.
        group: text form of its group.
        revision: place in its group; messages with the same group and revision are copies.
        duration_us: handler time; None to draw it from the knobs' distribution.
        failures: attempts that fail before one succeeds, in addition to randomly drawn failures.
        body: message for the user's handler; None if there is none.
    """

    at_us: int
    group: str
    revision: int
    duration_us: int | None = None
    failures: int = 0
    body: Any = None


class Workload:
    """The messages in order of arrival, one column for each field; a message is its index.

    Attributes:
        names: names of the groups.
        arrival_us: time of arrival, from 0.
        group: index of the group.
        revision: revision as given.
        duration_us: handler time as given; None if it is to be drawn.
        failures: attempts that fail before one succeeds, for messages that have such attempts.
        body: message for the handler.
        first: index of the first message with this group and revision: the message itself, unless it is a copy.
        rank: place among the existing revisions of its group, from 0.
        key: index of the unit that a broker keeps in order: the group, unless commuting messages are split from it.
        place: place within the key, from 0; includes missing revisions if the order has no gaps.
        commutes: 1 for a message whose order in its group does not matter.
        keys: number of keys.
    """

    __slots__ = (
        "arrival_us",
        "body",
        "commutes",
        "duration_us",
        "failures",
        "first",
        "group",
        "key",
        "keys",
        "names",
        "place",
        "rank",
        "revision",
    )

    def __init__(
        self,
        messages: Iterable[LabMessage],
        *,
        start: int | None = None,
        commutes: Callable[[Any], bool] | None = None,
        split: bool = False,
    ) -> None:
        """Sort messages by arrival and find their places.

        Args:
            messages: the messages, in any order; messages with the same arrival time stay in the given order.
            start: first revision of each group if every revision exists; None if gaps cannot be detected.
            commutes: whether the order of a message within its group does not matter, given its body.
            split: whether commuting messages are handled outside of their group's order: each has a key of its own.

        Raises:
            InputError: if there are no messages, or one has a revision below ``start``.
        """
        check_type("messages", messages, Iterable, "a list of messages, such as messages_of(rows, …)")
        ordered = sorted(messages, key=lambda message: message.at_us)
        if not ordered:
            raise InputError("there are no messages; expected at least one")
        began = ordered[0].at_us
        self.arrival_us = [message.at_us - began for message in ordered]
        self.revision = [message.revision for message in ordered]
        self.duration_us = [message.duration_us for message in ordered]
        self.failures = {number: message.failures for number, message in enumerate(ordered) if message.failures}
        self.body = [message.body for message in ordered]
        numbers: dict[str, int] = {}
        self.group = [numbers.setdefault(message.group, len(numbers)) for message in ordered]
        self.names = list(numbers)
        seen: dict[tuple[int, int], int] = {}
        pairs = list(zip(self.group, self.revision, strict=True))
        self.first = [seen.setdefault(pair, message) for message, pair in enumerate(pairs)]
        self.commutes = bytearray(len(ordered))
        if commutes is not None:
            self.commutes = bytearray(1 if commutes(self.body[message]) else 0 for message in self.first)
        self.rank = self._ranks(self.group, None)
        self._split(start, split=split)

    def __len__(self) -> int:
        """Return the number of messages, including copies."""
        return len(self.arrival_us)

    def key_texts(self) -> list[str]:
        """Return a text for each key, for hashing: the group's name, or a name for a message split from its group."""
        texts = [*self.names, *[""] * (self.keys - len(self.names))]
        for message, key in enumerate(self.key):
            if key >= len(self.names) and not texts[key]:
                texts[key] = f"{self.names[self.group[message]]}/{self.revision[message]}"
        return texts

    def _split(self, start: int | None, *, split: bool) -> None:
        if not (split and any(self.commutes)):
            self.key, self.keys = self.group, len(self.names)
            self.place = self.rank if start is None else self._ranks(self.group, start)
            return
        own: dict[int, int] = {}
        groups = len(self.names)
        self.key = [
            own.setdefault(first, groups + len(own)) if self.commutes[first] else group
            for first, group in zip(self.first, self.group, strict=True)
        ]
        self.keys = groups + len(own)
        self.place = self._ranks(self.key, None)  # gaps in the rest of a group have no meaning

    def _ranks(self, keys: Sequence[int], start: int | None) -> list[int]:
        revisions: dict[int, set[int]] = {}
        for key, revision in zip(keys, self.revision, strict=True):
            revisions.setdefault(key, set()).add(revision)
        if start is not None:
            if (least := min(self.revision)) < start:
                raise InputError(f"a revision is {least}; expected at least {start}, the first revision of a group")
            return [revision - start for revision in self.revision]
        ranks = {key: {value: rank for rank, value in enumerate(sorted(values))} for key, values in revisions.items()}
        return [ranks[key][revision] for key, revision in zip(keys, self.revision, strict=True)]
