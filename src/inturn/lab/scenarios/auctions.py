"""Two auctions and two consumers: the batches of an SQS FIFO queue."""

from typing import Any

import msgspec

from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.order import Gapless
from inturn.lab.knobs import Knobs
from inturn.lab.scenario import Scenario
from inturn.lab.workload import LabMessage

BIDS = 11
HANDLER_US = {"A": 1_000, "B": 2_000}


class Auction(msgspec.Struct, frozen=True):
    """The state of an auction: the highest bid and its bidder; of equal bids the first one wins."""

    price: int = 0
    bidder: str | None = None
    refused: int = 0


def bid(state: Auction, message: dict[str, Any]) -> tuple[Auction, list[Any]]:
    """Apply a bid."""
    if message["price"] <= state.price:
        return msgspec.structs.replace(state, refused=state.refused + 1), []
    return msgspec.structs.replace(state, price=message["price"], bidder=message["bidder"]), []


AUCTIONS = Pipeline(name="auctions", group="auction", order=Gapless("revision"), state=Auction, handler=bid)


def auctions() -> Scenario:
    """Return the scenario: A1 B1 A2 B2 … A11 B11, all sent before the first consumer receives."""
    messages = [
        LabMessage(
            at_us=0,
            group=auction,
            revision=number,
            duration_us=HANDLER_US[auction],
            body={
                "auction": auction,
                "revision": number,
                "price": 100 + 10 * (number // 2),  # each price is bid twice: the first bidder wins
                "bidder": f"{auction.lower()}-{number}",
            },
        )
        for number in range(1, BIDS + 1)
        for auction in ("A", "B")
    ]
    return Scenario(
        name="auctions",
        title="Auctions",
        description=(
            "Two auctions, A and B, have eleven bids each; two consumers receive batches of ten. The first consumer "
            "gets A1 to A10, the second B1 to B10. The first finishes and receives again while B is in flight: it gets "
            "only A11. B11 is delivered once the batch of B is deleted. Of two equal bids the first one wins."
        ),
        source="AWS's article on auctions and the FIFO queue's delivery logic",
        messages=messages,
        pipeline=AUCTIONS,
        knobs=Knobs(consumers=2, batch=10, prefetch=10),
        follow=("A", 11),
    )
