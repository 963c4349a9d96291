"""The guard of a queue: RabbitMQ excludes a second consumer from classic queues, from quorum queues only on demand.

AMQP has no request for the arguments of a queue. But a declaration with different arguments is refused, with a text
that names the first argument that differs and its value. The declared values are invalid, so that no queue is created
if none exists.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from inturn.ingest.events import EVENTS

if TYPE_CHECKING:
    from aio_pika.abc import AbstractConnection


_SINGLE_CONSUMER: Final = "x-single-active-consumer"
_TYPE: Final = "x-queue-type"
_DIFFERS: Final = re.compile(r"inequivalent arg '([^']+)' for .* but current is (.*)", re.DOTALL)

_NOT_EXCLUSIVE: Final = (
    "the broker admits a second consumer, and two consumers break the order. Sources exclude each other by a lock; "
    f"other consumers are detected only when the source starts. Declare the queue again with {_SINGLE_CONSUMER}, or "
    "make sure that nothing else reads it"
)


async def log_guard(connection: AbstractConnection, queue: str) -> None:
    """Log if the broker does not exclude a second consumer, or if that cannot be determined."""
    is_guarded = await _is_guarded(connection, queue)
    if is_guarded is None:
        text = (
            f"queue %(queue)r: if it is a quorum queue without {_SINGLE_CONSUMER}, which cannot be determined, "
            f"{_NOT_EXCLUSIVE}"
        )
        EVENTS.info("unguarded", queue, text, queue=queue)
    elif not is_guarded:
        EVENTS.warning(
            "unguarded",
            queue,
            f"queue %(queue)r is a quorum queue without {_SINGLE_CONSUMER}: {_NOT_EXCLUSIVE}",
            queue=queue,
        )


async def _is_guarded(connection: AbstractConnection, queue: str) -> bool | None:
    """Return whether the broker excludes a second consumer; None: it cannot be determined."""
    name, value = await _difference(connection, queue, _TYPE)
    if name == _TYPE and "quorum" in value:
        name, value = await _difference(connection, queue, _SINGLE_CONSUMER)
        return None if name != _SINGLE_CONSUMER else "true" in value
    return True if name == _TYPE or (name == _SINGLE_CONSUMER and "true" in value) else None


async def _difference(connection: AbstractConnection, queue: str, argument: str) -> tuple[str, str]:
    """Return the first argument of a queue that differs from a declaration with this one alone, and its value.

    Empty texts: the broker does not show it, such as to a user who may not declare the queue.
    """
    from aiormq.exceptions import AMQPError

    channel = await connection.channel(publisher_confirms=False)
    try:
        await channel.declare_queue(queue, durable=True, arguments={argument: "inturn asks"})
    except AMQPError as error:
        match_ = _DIFFERS.search(str(error))
        return (match_[1], match_[2]) if match_ else ("", "")
    return "", ""
