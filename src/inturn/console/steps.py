"""Steps of stores on Spark: the number of messages of each step by outcome."""

from typing import Any, Final

from inturn.console.databases import databases
from inturn.console.fields import RequestFields
from inturn.console.places import StorePlace, UnreadStore, found
from inturn.core.errors import InturnError

SHOWN: Final = 50


def steps(fields: RequestFields) -> dict[str, Any]:
    """Return the latest steps of the stores on Spark, newest first."""
    places, unread = found(fields.stores)
    inside = tuple(f"{each.at}#" for each in databases(fields.stores))
    stores: list[dict[str, Any]] = []
    for place in places:
        if place.at.startswith(inside) or "#" in place.at:
            continue
        try:
            stores.append({"title": place.title, "steps": _steps(place)})
        except (InturnError, OSError) as error:
            unread.append(UnreadStore(place.title, str(error)))
    return {"stores": stores, "unread": unread}


def _steps(place: StorePlace) -> list[dict[str, Any]]:
    from inturn.spark.tables.manifest import SparkStore

    store = SparkStore(place.at)
    store.require_identity()
    found = [store.manifest(number) for number in reversed(store.found_steps()[-SHOWN:])]
    return [
        {
            "step": each.step,
            "committed": each.committed,
            "seconds": each.seconds,
            "counts": each.counts,
            "held": each.held,
            "parked": each.parked,
            "decisions": len(each.decisions),
        }
        for each in found
    ]
