"""A hotel's check-in desk: messages that are sent twice, some of them after the guest has left."""

import random
from typing import Any

import msgspec

from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.order import Gapless
from inturn.lab.knobs import Knobs, UniformTime
from inturn.lab.scenario import Scenario
from inturn.lab.workload import LabMessage

GUESTS = 60
MINUTE_US = 60_000_000


class Guest(msgspec.Struct, frozen=True):
    """The state of a guest: the room, the nights to be paid, and the number of refused clicks."""

    room: int | None = None
    nights: int = 0
    refused: int = 0


def serve(state: Guest, message: dict[str, Any]) -> tuple[Guest, list[Any]]:
    """Apply a check-in or a check-out; a guest with a room gets no second one."""
    if message["type"] == "check-out":
        return msgspec.structs.replace(state, room=None), []
    if state.room is not None:
        return msgspec.structs.replace(state, refused=state.refused + 1), []
    return msgspec.structs.replace(state, room=message["room"], nights=state.nights + message["nights"]), []


STAYS = Pipeline(name="stays", group="guest", order=Gapless("revision"), state=Guest, handler=serve)


def hotel() -> Scenario:
    """Return the scenario: check-in, a second click, check-out; and early or late copies of the check-in."""
    chance = random.Random(9)  # noqa: S311 - a simulation, not a secret
    messages = []
    for number in range(1, GUESTS + 1):
        guest, at_us = f"guest-{number}", int(chance.uniform(0, 10) * MINUTE_US)
        happened = [("check-in", 100 + number, 0), ("check-in", 200 + number, 2_000_000), ("check-out", 0, MINUTE_US)]
        copy_us = 0
        if number == 9 or chance.random() < 0.3:
            copy_us = at_us + int(chance.choice([0.5, 2, 6]) * MINUTE_US)  # the window of SQS is 5 minutes
        for revision, (kind, room, after_us) in enumerate(happened, start=1):
            body = {"guest": guest, "revision": revision, "type": kind, "room": room, "nights": 2}
            messages.append(LabMessage(at_us=at_us + after_us, group=guest, revision=revision, body=body))
            if revision == 1 and copy_us:
                again_us = at_us + 6 * MINUTE_US if number == 9 else copy_us
                messages.append(LabMessage(at_us=again_us, group=guest, revision=1, body=body))
    return Scenario(
        name="hotel",
        title="Hotel check-in",
        description=(
            "A guest checks in, clicks a second time (a new message, which the handler refuses), and checks out. For a "
            "third of the guests the first message is sent again, up to six minutes later. A design that applies this "
            "copy gives a room to a guest who has left, and charges the nights twice. A deduplication window of five "
            "minutes catches only the early copies."
        ),
        source="the hotel of the articles on idempotent consumers; the window of SQS is documented",
        messages=messages,
        pipeline=STAYS,
        knobs=Knobs(consumers=4, prefetch=10, handler=UniformTime(low_ms=5, high_ms=50)),
        follow=("guest-9", 1),
    )
