"""The demo's pipeline, as a user would write it: what a group is, what its order is, what a message does.

It is imported by Spark's Python workers, so it needs nothing that only the demo's picture needs.
"""

import msgspec
from msgspec.structs import replace

from inturn import Gapless, Pipeline
from inturn.demo.flights import FlightEvent


class Aircraft(msgspec.Struct, frozen=True):
    """What is known of one aircraft.

    Attributes:
        location: an airport, or ``JFK → LAX`` while it is under way; None before its first departure.
        legs: how many flights it has landed.
        minutes: in the air, as far as they are known.
        cancelled: how many of its flights were cancelled.
        phantoms: landings of a flight that it had not departed on; 0 if messages come in their turn.
        flying: the flight it is under way on.
    """

    location: str | None = None
    legs: int = 0
    minutes: int = 0
    cancelled: int = 0
    phantoms: int = 0
    flying: str | None = None


class LegFlown(msgspec.Struct, frozen=True):
    """An output: one flight has landed."""

    tail: str
    flight: str
    origin: str
    dest: str
    minutes: int | None


def follow(state: Aircraft, message: FlightEvent) -> tuple[Aircraft, list[LegFlown]]:
    """Take one message into account."""
    leg = f"{message.flight} {message.scheduled:%Y-%m-%d %H:%M}"
    match message.type:
        case "departed":
            return replace(state, location=f"{message.origin} → {message.dest}", flying=leg), []
        case "landed":
            after = replace(
                state,
                location=message.dest,
                legs=state.legs + 1,
                minutes=state.minutes + (message.minutes or 0),
                phantoms=state.phantoms + (state.flying != leg),
                flying=None,
            )
            flown = LegFlown(message.tail, message.flight, message.origin, message.dest, message.minutes)
            return after, [flown]
        case "cancelled":
            return replace(state, cancelled=state.cancelled + 1), []
    msg = f"a flight is departed, landed or cancelled, not {message.type!r}"
    raise ValueError(msg)


aircraft = Pipeline(
    name="aircraft",
    group="tail",
    order=Gapless("revision"),
    message=FlightEvent,
    state=Aircraft,
    handler=follow,
    arrival="offset",
)
