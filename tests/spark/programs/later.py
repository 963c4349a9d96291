"""A pipeline in a module whose type hints are texts until somebody asks for them."""

from __future__ import annotations

import datetime as dt  # noqa: TC003 - the hint of a field, which is looked up at run time
from dataclasses import dataclass

from inturn import Gapless, Pipeline


@dataclass
class Visit:
    """One message."""

    group: str
    revision: int
    at: dt.datetime | None = None


@dataclass
class Visits:
    """What is kept of a group."""

    last: Place | None = None


@dataclass
class Place:
    """A type that is defined below the one that names it."""

    name: str = ""


def visit(visits: Visits, message: Visit) -> tuple[Visits, list[object]]:
    """Keep the place."""
    return Visits(Place(message.group)), [message.at]


visited = Pipeline(name="visits", group="group", order=Gapless("revision"), message=Visit, state=Visits, handler=visit)
