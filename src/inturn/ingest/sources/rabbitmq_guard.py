"""The guard of a queue: RabbitMQ keeps a second consumer from classic queues, and from quorum queues only if told so.

AMQP has no question for the arguments of a queue. But a declaration with others than it has is refused, with a text
that names the first argument that differs and its value. The values that are asked with are invalid, so that the
declaration makes no queue where there is none.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aio_pika.abc import AbstractConnection

_log: Final = logging.getLogger("inturn.ingest")

_SINGLE: Final = "x-single-active-consumer"
_TYPE: Final = "x-queue-type"
_DIFFERS: Final = re.compile(r"inequivalent arg '([^']+)' for .* but current is (.*)", re.DOTALL)

_WEAK: Final = (
    "the broker admits a second consumer, and two consumers break the order. Sources exclude each other by a lock; "
    f"other consumers are detected only when the source starts. Declare the queue again with {_SINGLE}, or make sure "
    "that nothing else reads it"
)


async def tell_guard(connection: AbstractConnection, queue: str) -> None:
    """Write to the log if the broker does not keep a second consumer away, or does not tell."""
    is_guarded = await _is_guarded(connection, queue)
    if is_guarded is None:
        _log.info("queue %r: if it is a quorum queue without %s, which cannot be determined, %s", queue, _SINGLE, _WEAK)
    elif not is_guarded:
        _log.warning("queue %r is a quorum queue without %s: %s", queue, _SINGLE, _WEAK)


async def _is_guarded(connection: AbstractConnection, queue: str) -> bool | None:
    """Return whether the broker keeps a second consumer away; None: it cannot be told."""
    name, value = await _difference(connection, queue, _TYPE)
    if name == _TYPE and "quorum" in value:
        name, value = await _difference(connection, queue, _SINGLE)
        return None if name != _SINGLE else "true" in value
    return True if name == _TYPE or (name == _SINGLE and "true" in value) else None


async def _difference(connection: AbstractConnection, queue: str, argument: str) -> tuple[str, str]:
    """Return the first argument of a queue that differs from a declaration with this one alone, and its value.

    Empty texts: the broker does not say, such as to a user who may not declare the queue.
    """
    from aiormq.exceptions import AMQPError

    channel = await connection.channel(publisher_confirms=False)
    try:
        await channel.declare_queue(queue, durable=True, arguments={argument: "inturn asks"})
    except AMQPError as error:
        found = _DIFFERS.search(str(error))
        return (found[1], found[2]) if found else ("", "")
    return "", ""
