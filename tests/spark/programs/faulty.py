"""Logs with faults whose truth is known: a clean log, and one way to spoil a group for each kind of fault.

Each group is spoiled in at most one way. A fault is told as (kind, group, place): the message that is wrong, or the
revision that is missing.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Message = dict[str, Any]
Fault = tuple[str, str | None, int | None]

DDL = "account string, revision bigint, id string, amount bigint, minute bigint"


@dataclass
class Spoiled:
    """The messages of one group in the order of arrival, and what is wrong with them."""

    messages: list[Message]
    faults: list[Fault] = field(default_factory=list)


def clean(group: str, count: int, chance: random.Random) -> list[Message]:
    """Revisions 1, 2, 3 … with content of their own."""
    return [
        {"account": group, "revision": n, "id": f"{group}-{n}", "amount": chance.randrange(10**9), "minute": n}
        for n in range(1, count + 1)
    ]


def _duplicate(own: list[Message], chance: random.Random) -> Spoiled:
    index = chance.randrange(len(own))
    own.insert(chance.randint(index + 1, len(own)), dict(own[index]))
    return Spoiled(own, [("duplicate", own[index]["account"], own[index]["revision"])])


def _conflict(own: list[Message], chance: random.Random) -> Spoiled:
    index = chance.randrange(1, len(own))
    rival = own[index] | {"amount": -1, "id": f"{own[index]['id']}-again"}
    own.insert(chance.randint(index + 1, len(own)), rival)
    return Spoiled(own, [("conflict", rival["account"], rival["revision"])])


def _id_conflict(own: list[Message], chance: random.Random) -> Spoiled:
    index = chance.randrange(1, len(own))
    own[index] |= {"id": own[chance.randrange(index)]["id"]}
    return Spoiled(own, [("id-conflict", own[index]["account"], own[index]["revision"])])


def _gap(own: list[Message], chance: random.Random) -> Spoiled:
    first = chance.randrange(len(own) - 6)  # so many come behind it that nobody waits any longer
    lost = own[first : first + chance.randint(1, 2)]
    remaining = [message for message in own if message not in lost]
    return Spoiled(remaining, [("gap", message["account"], message["revision"]) for message in lost])


def _open_gap(own: list[Message], chance: random.Random) -> Spoiled:
    del own[-2]
    return Spoiled(own)


def _late(own: list[Message], chance: random.Random) -> Spoiled:
    index = chance.randrange(len(own) - 3)
    message = own.pop(index)
    own.insert(index + chance.randint(1, 3), message)
    return Spoiled(own, [("late", message["account"], message["revision"])])


def _reset(own: list[Message], chance: random.Random) -> Spoiled:
    restarted = clean(own[0]["account"], chance.randint(3, len(own) + 5), chance)
    for message in restarted:
        message["id"] += "-new"
    return Spoiled(own + restarted, [("reset", own[0]["account"], 1)])


def _two_writers(own: list[Message], chance: random.Random) -> Spoiled:
    fork = chance.randrange(2, len(own) - 3)
    other = [message | {"amount": -7, "id": f"{message['id']}-other"} for message in own[fork:]]
    woven = [message for pair in zip(own[fork:], other, strict=True) for message in pair]
    return Spoiled(own[:fork] + woven, [("two-writers", message["account"], message["revision"]) for message in other])


def _no_group(own: list[Message], chance: random.Random) -> Spoiled:
    extra = own[-1] | {"account": None, "revision": 10**6 + own[-1]["amount"]}
    return Spoiled([*own, extra], [("no-group", None, extra["revision"])])


def _no_order(own: list[Message], chance: random.Random) -> Spoiled:
    extra = own[-1] | {"revision": None, "id": f"{own[-1]['id']}-placeless"}
    return Spoiled([*own, extra], [("no-order", own[-1]["account"], None)])


def _no_id(own: list[Message], chance: random.Random) -> Spoiled:
    index = chance.randrange(len(own))
    own[index] |= {"id": None}
    return Spoiled(own, [("no-id", own[index]["account"], own[index]["revision"])])


SPOILERS: dict[str, Callable[[list[Message], random.Random], Spoiled]] = {
    "none": lambda own, chance: Spoiled(own),
    "duplicate": _duplicate,
    "conflict": _conflict,
    "id-conflict": _id_conflict,
    "gap": _gap,
    "open gap": _open_gap,
    "late": _late,
    "reset": _reset,
    "two-writers": _two_writers,
    "no-group": _no_group,
    "no-order": _no_order,
    "no-id": _no_id,
}


def spoiled(seed: int, groups_of_each: int = 4) -> tuple[list[Message], dict[str, list[Fault]]]:
    """A log in which all groups advance side by side, and its faults by what was done to a group."""
    chance = random.Random(seed)
    faults: dict[str, list[Fault]] = {}
    queues: list[list[Message]] = []
    for kind, spoil in SPOILERS.items():
        faults[kind] = []
        for number in range(groups_of_each):
            result = spoil(clean(f"{kind} {number}", chance.randint(12, 24), chance), chance)
            faults[kind] += result.faults
            queues.append(result.messages[::-1])
    log = []
    while queues := [queue for queue in queues if queue]:
        log.append(chance.choice(queues).pop())
    return log, faults
