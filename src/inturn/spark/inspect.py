"""Looks into a store without Spark and without the user's code: which groups are parked, what one group waits for.

For the command line and for people; pipelines read whole tables with :func:`inturn.spark.read`.
"""

import datetime as dt
import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from inturn.core.decision import Action, Decision
from inturn.core.errors import InputError, StoreError
from inturn.core.message import canonical
from inturn.core.replay import instant_us
from inturn.core.timeline import Status
from inturn.spark.decisions import group_hash
from inturn.spark.tables.levels import ranges_of
from inturn.spark.tables.manifest import Manifest, Store
from inturn.spark.tables.sorted import Batches, Cursor, Hashes

_THEN = {
    "park": "then the group is parked",
    "skip": "then the gap is skipped",
    "fail": "then the run ends with an error",
}
_ALL = (-(2**63), 2**63 - 1)


@dataclass(frozen=True)
class Waiting:
    """A message that a group holds.

    Attributes:
        epoch: 0 where the order has none.
        turn: its place: a revision, a time in microseconds, or a count of arrivals.
        id: its deduplication id, where the pipeline names one.
        since: since when it is held.
        digest: of its content as it came, in hexadecimal digits.
        content: the message.
    """

    epoch: int
    turn: int
    id: str | None
    since: dt.datetime
    digest: str
    content: dict[str, Any]


@dataclass(frozen=True)
class Standing:
    """Where a group stands.

    Attributes:
        group: its text form.
        status: ``open``, ``waiting``, ``gap``, ``failed`` or ``given up``.
        epoch: the current epoch.
        reached: how far it is; see ``core/grades.py``.
        error: why it is parked, in words, with the handler's traceback.
        skipped: the skipped ranges of revisions.
        held: how many messages it holds.
        oldest: since when the one that waits longest waits.
        deadline: when its wait ends by itself; None if it does not.
        step: the last step that changed it.
        state: its state, as JSON values.
    """

    group: str
    status: str
    epoch: int | None
    reached: int | None
    error: str | None
    skipped: list[tuple[int, int]]
    held: int
    oldest: dt.datetime | None
    deadline: dt.datetime | None
    step: int
    state: Any


class Inspector:
    """A look into a store as its last step left it.

    Args:
        store: where it is.

    Raises:
        StoreError: if there is no store, or it has no step yet.
    """

    def __init__(self, store: str | os.PathLike[str]) -> None:
        self.store = Store(store)
        self.about = self.store.known()
        last = self.store.latest()
        if last is None:
            msg = f"{self.store.location} has no step yet"
            raise StoreError(msg)
        self.last: Manifest = last

    def parked(self) -> Iterator[Standing]:
        """The groups that are parked, given up or waiting."""
        for number, level in reversed(list(enumerate(self.last.levels))):
            for batch in Batches(self.store.files, level.groups, *_ALL).upto(_ALL[1]):
                standing = batch.column("status").to_numpy(zero_copy_only=False) != Status.OPEN
                rows = batch.filter(pa.array(standing))
                if len(rows):
                    alive = self._alive(rows, number)
                    standings = (_standing(row, self.last.wait_us) for row in rows.to_pylist())
                    yield from (each for each in standings if each.group in alive)

    def _alive(self, rows: pa.RecordBatch, number: int) -> set[str]:
        """Those of the groups of which no newer level says anything."""
        names = set(rows.column("group").to_pylist())
        hashes: Hashes = np.unique(rows.column("hash").to_numpy())
        for newer in self.last.levels[number + 1 :]:
            for part in Cursor(self.store.files, newer.groups, *_ALL).take(hashes, _ALL[1]):
                names -= set(part.column("group").to_pylist())
        return names

    def group(self, name: str) -> Standing:
        """Where one group stands.

        Raises:
            InputError: if the store does not know it.
        """
        row = self._row(name)
        if row is None:
            msg = f"{self.store.location} has no group {name!r}"
            raise InputError(msg)
        return _standing(row, self.last.wait_us)

    def held(self, name: str) -> list[Waiting]:
        """The messages that a group holds, in the order in which they would be applied."""
        row = self._row(name)
        if row is None or not row["held"]:
            return []
        wanted = np.array([group_hash(name)], dtype=np.int64)
        found = [
            Waiting(
                each["epoch"], each["turn"], each["id"], _time(each["since_us"]), each["digest"].hex(), each["message"]
            )
            for level in self.last.levels
            for file in level.held
            for part in Cursor(self.store.files, [file], *_ALL).take(wanted, _ALL[1])
            for each in part.to_pylist(maps_as_pydicts="strict")
            if each["group"] == name and each["step"] >= row["held_step"]
        ]
        return sorted(found, key=lambda each: (each.epoch, each.turn, each.id or ""))

    def _row(self, name: str) -> dict[str, Any] | None:
        wanted = np.array([group_hash(name)], dtype=np.int64)
        for level in reversed(self.last.levels):
            for part in Cursor(self.store.files, level.groups, *_ALL).take(wanted, _ALL[1]):
                for row in part.to_pylist():
                    if row["group"] == name:
                        return dict(row)
        return None

    def explain(self, name: str) -> str:
        """In plain words where a group stands, what it waits for and since when."""
        group, held = self.group(name), self.held(name)
        now = dt.datetime.now(dt.UTC)
        said = [_stands(self, group, held, now)]
        if group.error and group.status == Status.FAILED:
            said.append("Its error:\n" + _indented(group.error))
        if group.skipped:
            said.append("Skipped: " + ", ".join(_range(first, last) for first, last in group.skipped) + ".")
        if held:
            places = ", ".join(self.place(each) for each in held[:5]) + (" …" if len(held) > 5 else "")
            said.append(f"It holds {_count(len(held), 'message')}: {places}.")
        pending = [each for each in self.store.decisions(self.last).values() if each.group == name]
        said += [f"Decided by {each.by}, and not taken yet: {each.action}." for each in pending]
        said.append(f"Its state after step {group.step}: {json.dumps(group.state, default=str, ensure_ascii=False)}")
        return "\n".join(said)

    def place(self, message: Waiting) -> str:
        """A message's place in words."""
        epoch = f" of epoch {message.epoch}" if message.epoch else ""
        if self.about.order.startswith(("Gapless", "Monotone")):
            return f"revision {message.turn}{epoch}"
        return f"id {message.id}"

    def decision(
        self,
        action: Action,
        name: str,
        *,
        by: str,
        why: str = "",
        revision: int | None = None,
        message_id: str | None = None,
        new: dict[str, Any] | None = None,
    ) -> Decision:
        """A decision about a group as it stands now; it is void if events overtake it.

        Args:
            action: what is to be done.
            name: the group's text form.
            by: who decides.
            why: in words.
            revision: of the message that is meant; default is the first that the group holds.
            message_id: the same, where the order has no revisions.
            new: for ``replace``, the new content; fields left out stay as they are.

        Raises:
            InputError: if the group is not known, or holds no such message.
        """
        group, held = self.group(name), self.held(name)
        seen: dict[str, Any] = {}
        if action in (Action.REPLACE, Action.DROP, Action.RESUME):
            meant = [
                each
                for each in held
                if (revision is None or each.turn == revision) and (message_id is None or each.id == message_id)
            ]
            if not meant:
                msg = f"group {name!r} holds no such message; it holds "
                raise InputError(msg + (", ".join(self.place(each) for each in held) or "none"))
            each = meant[0]
            seen = {"epoch": each.epoch, "turn": each.turn, "message_id": each.id, "digest": each.digest}
            if action is not Action.RESUME:
                seen["old"] = json.loads(canonical(each.content))
            if new is not None:
                new = {**seen["old"], **new}
        elif action is Action.SKIP:
            gap = self._gap(group, held)
            if gap is None:
                msg = f"group {name!r} has no gap; it is {group.status}"
                raise InputError(msg)
            seen = {"epoch": group.epoch or 0, "turn": gap[0], "last": gap[1]}
        at_us = instant_us(dt.datetime.now(dt.UTC))
        return Decision(id=uuid.uuid4().hex, action=action, group=name, by=by, at_us=at_us, why=why, new=new, **seen)

    def _gap(self, group: Standing, held: list[Waiting]) -> tuple[int, int] | None:
        """The first and the last missing revision in front of what a group holds."""
        if not self.about.order.startswith("Gapless"):
            return None
        mine = [each.turn for each in held if each.epoch == (group.epoch or 0)]
        due = self.due(group)
        return (due, min(mine) - 1) if mine and min(mine) > due else None

    def due(self, group: Standing) -> int:
        """The revision whose turn it is."""
        start = int(self.about.order.partition("start=")[2].rstrip(")").partition(",")[0] or 1)
        return start if group.reached is None else group.reached + 1


def _stands(store: Inspector, group: Standing, held: list[Waiting], now: dt.datetime) -> str:
    """The first sentence of an explanation."""
    name, since = f"Group {group.group}", f" since {_when(group.oldest, now)}" if group.oldest else ""
    reached = f"; it has come to revision {group.reached}" if group.reached is not None else ""
    gap = store._gap(group, held)
    missing = f"revision{'s' if gap and gap[0] != gap[1] else ''} {_range(*gap)}" if gap else "its predecessor"
    match group.status:
        case Status.OPEN:
            return f"{name} is open: nothing is held{reached if store.about.order.startswith('Gapless') else ''}."
        case Status.WAITING if gap:
            then = _THEN.get(store.last.policy, "")
            ends = "for ever, or until it is skipped"
            if group.deadline:
                ends = f"until {_when(group.deadline, now)}; {then}"
            return f"{name} waits for {missing}{since}{reached}. It waits {ends}."
        case Status.WAITING:
            return f"{name} waits for a later message{since}: what it holds lies within the lateness."
        case Status.GAP:
            return (
                f"{name} is parked: {missing} did not come{since}, and the wait is over{reached}. "
                "It goes on by itself if the message comes after all; or skip the gap, or resume to wait again."
            )
        case Status.FAILED:
            head = f" {store.place(held[0])}" if held else ""
            return (
                f"{name} is parked: the handler raised on{head}{since}. It goes on only by a decision: resume it when "
                "the handler is mended, replace or drop the message, or give the group up."
            )
    return f"{name} is given up: what comes for it is rejected. {group.error or ''}".rstrip()


def _standing(row: dict[str, Any], wait_us: int | None) -> Standing:
    return Standing(
        group=row["group"],
        status=row["status"],
        epoch=row["epoch"],
        reached=row["reached"],
        error=row["error"],
        skipped=ranges_of(row["skipped"]),
        held=row["held"],
        oldest=_time(row["oldest_us"]) if row["oldest_us"] is not None else None,
        deadline=_time(row["waiting_us"] + wait_us) if wait_us is not None and row["waiting_us"] is not None else None,
        step=row["step"],
        state=row["state"],
    )


def as_json(value: Standing | Waiting) -> dict[str, Any]:
    """Either as JSON values."""
    return {name: each.isoformat() if isinstance(each, dt.datetime) else each for name, each in asdict(value).items()}


def _time(microseconds: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=microseconds)


def _when(moment: dt.datetime | None, now: dt.datetime) -> str:
    if moment is None:
        return "an unknown time"
    gone = now - moment
    ago = f"{_span(gone)} ago" if gone >= dt.timedelta(0) else f"in {_span(-gone)}"
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC ({ago})"


def _span(length: dt.timedelta) -> str:
    seconds = int(length.total_seconds())
    for unit, name in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= unit:
            return _count(seconds // unit, name)
    return _count(seconds, "second")


def _count(number: int, name: str) -> str:
    return f"{number:,} {name}{'' if number == 1 else 's'}"


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.rstrip().splitlines())
