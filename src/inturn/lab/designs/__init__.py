"""The designs: ways to process messages with several consumers."""

from inturn.core.errors import InputError
from inturn.lab.design import Design
from inturn.lab.designs.competing import CompetingConsumers
from inturn.lab.designs.kafka import KafkaBlocking, KafkaSkipping
from inturn.lab.designs.pull import KeyParallel, Sessions
from inturn.lab.designs.rabbitmq import (
    ConsistentHash,
    LimitedQuorumConsumers,
    PhantomRecord,
    QueuePerGroup,
    QuorumConsumers,
    QuorumSingleActiveConsumer,
    SingleActiveConsumer,
)
from inturn.lab.designs.roulette import RequeueRoulette
from inturn.lab.designs.sqs import SqsFifo
from inturn.lab.designs.timeline import Inturn, OrderGrade, Resequencer

DESIGNS: tuple[type[Design], ...] = (
    CompetingConsumers,
    QuorumConsumers,
    LimitedQuorumConsumers,
    RequeueRoulette,
    SingleActiveConsumer,
    QuorumSingleActiveConsumer,
    ConsistentHash,
    QueuePerGroup,
    KafkaBlocking,
    KafkaSkipping,
    KeyParallel,
    SqsFifo,
    Sessions,
    Resequencer,
    PhantomRecord,
    Inturn,
)
"""All designs, in the order in which they are shown."""


def default_designs(grade: OrderGrade = "gapless") -> list[Design]:
    """Return each design with its default constants, except designs that need a special handler.

    Args:
        grade: the grade of the messages' order; see :class:`~inturn.lab.designs.timeline.TimelineBroker`.
    """
    without = (PhantomRecord, Inturn)
    return [*(design() for design in DESIGNS if design not in without), Inturn(grade=grade)]


def design_named(name: str) -> Design:
    """Return the design of this name, with its default constants.

    Raises:
        InputError: if no design has this name.
    """
    designs = {design.name: design for design in DESIGNS}
    if name not in designs:
        raise InputError(f"no design {name!r}; expected one of {', '.join(designs)}")
    return designs[name]()
