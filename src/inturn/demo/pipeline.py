"""The demo's pipeline, written as a user would write it: group, order, and handler.

Spark's Python workers import it, so it needs no package that only the demo's picture needs.
"""

import msgspec
from msgspec.structs import replace

from inturn import Gapless, Pipeline
from inturn.demo.flights import FlightEvent


class Aircraft(msgspec.Struct, frozen=True):
    """The state of one aircraft.

    Attributes:
        location: an airport, or ``JFK → LAX`` while under way; None before its first departure.
        legs: number of flights landed.
        minutes: minutes in the air, as far as they are known.
        cancelled: number of cancelled flights.
        phantoms: landings of a flight that it had not departed on; 0 if messages are applied in order.
        flying: current flight.
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
    """Apply one message."""
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
    raise ValueError(f"unknown type {message.type!r}; expected departed, landed or cancelled")


aircraft = Pipeline(
    name="aircraft",
    group="tail",
    order=Gapless("revision"),
    message=FlightEvent,
    state=Aircraft,
    handler=follow,
    arrival="offset",
)
