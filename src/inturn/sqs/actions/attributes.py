"""GetQueueAttributes and SetQueueAttributes."""

from collections.abc import Callable
from typing import Final

from inturn.core.queue.messages import Depth, QueueInfo
from inturn.sqs import errors
from inturn.sqs.actions import settings
from inturn.sqs.context import Context, in_queue, is_fifo, keep, kept
from inturn.sqs.model import Empty, GetQueueAttributes, GetQueueAttributesAnswer, SetQueueAttributes
from inturn.store.commands import Command
from inturn.store.protocols import Store

_DEPTHS: Final[dict[str, Callable[[Depth], int]]] = {
    "ApproximateNumberOfMessages": lambda depth: depth.messages - depth.in_flight - depth.delayed,
    "ApproximateNumberOfMessagesDelayed": lambda depth: depth.delayed,
    "ApproximateNumberOfMessagesNotVisible": lambda depth: depth.in_flight,
}
_READABLE: Final = settings.SETTABLE | {*_DEPTHS, "CreatedTimestamp", "LastModifiedTimestamp", "QueueArn"}
_USUAL_WINDOW: Final = "300"


def get_queue_attributes(context: Context, params: GetQueueAttributes) -> Command[GetQueueAttributesAnswer]:
    """Return the requested settings and message counts of a queue; without names, none."""
    asked = params.attribute_names

    def look(store: Store, queue: QueueInfo, now_ms: int) -> GetQueueAttributesAnswer:
        for each in asked:
            if each not in _READABLE and each != "All":
                raise errors.invalid_attribute_name(each)
        has = _told(context, queue)
        if "All" in asked and has.get(settings.WINDOW) == _USUAL_WINDOW and settings.WINDOW not in asked:
            del has[settings.WINDOW]  # not an SQS attribute: shown under "All" only if it is not the default
        if "All" in asked or not _DEPTHS.keys().isdisjoint(asked):
            depth = store.depth(queue, now_ms)
            has.update({each: str(count(depth)) for each, count in _DEPTHS.items()})
        return GetQueueAttributesAnswer({each: value for each, value in has.items() if "All" in asked or each in asked})

    return in_queue(context, params.queue_url, look)


def _told(context: Context, queue: QueueInfo) -> dict[str, str]:
    modified_ms = kept(queue.settings, "modified_ms", queue.created_ms)
    return {
        "QueueArn": context.arn(queue.name),
        "CreatedTimestamp": str(queue.created_ms // 1000),
        "LastModifiedTimestamp": str(modified_ms // 1000),
        **settings.current(context, queue),
    }


def set_queue_attributes(context: Context, params: SetQueueAttributes) -> Command[Empty]:
    """Change the given settings of a queue."""

    def change(store: Store, queue: QueueInfo, now_ms: int) -> Empty:
        changes = settings.wanted(params.attributes, fifo=is_fifo(queue))
        queue.settings = settings.applied(context, store, queue.name, queue.settings, changes, params.attributes)
        keep(store, queue, modified_ms=now_ms)
        return Empty()

    return in_queue(context, params.queue_url, change)
