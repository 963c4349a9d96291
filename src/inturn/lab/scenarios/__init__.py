"""The scenarios by name: examples from the literature, and the flights of the demo."""

from collections.abc import Callable

from inturn.core.errors import InputError
from inturn.lab.scenario import Scenario
from inturn.lab.scenarios.auctions import auctions
from inturn.lab.scenarios.flights import flights
from inturn.lab.scenarios.hot_group import hot_group
from inturn.lab.scenarios.hotel import hotel
from inturn.lab.scenarios.transfers import transfers
from inturn.lab.scenarios.webhooks import webhooks

SCENARIOS: dict[str, Callable[[], Scenario]] = {
    "transfers": transfers,
    "auctions": auctions,
    "hotel": hotel,
    "flights": flights,
    "webhooks": webhooks,
    "hot-group": hot_group,
}
"""The function that creates each scenario, by name."""


def scenario(name: str) -> Scenario:
    """Return the scenario of this name.

    Raises:
        InputError: if no scenario has this name.
        SetupError: if its data are not installed.
    """
    if name not in SCENARIOS:
        raise InputError(f"no scenario {name!r}; expected one of {', '.join(SCENARIOS)}")
    return SCENARIOS[name]()
