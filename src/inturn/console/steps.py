"""Steps of stores on Spark: the number of messages of each step by outcome."""

from typing import Any, Final

from inturn.console.databases import databases
from inturn.console.fields import RequestFields
from inturn.console.store_addresses import StoreAddress, UnreadStore, store_addresses
from inturn.core.errors import InturnError

SHOWN: Final = 50


def steps(fields: RequestFields) -> dict[str, Any]:
    """Return the latest steps of the stores on Spark, newest first."""
    addresses, unread = store_addresses(fields.stores)
    inside = tuple(f"{database.address}#" for database in databases(fields.stores))
    stores: list[dict[str, Any]] = []
    for address in addresses:
        if address.address.startswith(inside) or "#" in address.address:
            continue
        try:
            stores.append({"title": address.title, "steps": _steps(address)})
        except (InturnError, OSError) as error:
            unread.append(UnreadStore(address.title, str(error)))
    return {"stores": stores, "unread": unread}


def _steps(address: StoreAddress) -> list[dict[str, Any]]:
    from inturn.spark.tables.manifest import SparkStore

    store = SparkStore(address.address)
    store.require_identity()
    manifests = [store.manifest(number) for number in reversed(store.found_steps()[-SHOWN:])]
    return [
        {
            "step": manifest.step,
            "committed": manifest.committed,
            "seconds": manifest.seconds,
            "counts": manifest.counts,
            "held": manifest.held,
            "parked": manifest.parked,
            "decisions": len(manifest.decisions),
        }
        for manifest in manifests
    ]
