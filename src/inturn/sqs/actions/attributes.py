"""GetQueueAttributes and SetQueueAttributes."""

from collections.abc import Callable
from typing import Final

from inturn.core.queue.messages import Depth, QueueInfo
from inturn.sqs import errors
from inturn.sqs.actions import settings
from inturn.sqs.context import Context, extra_setting, in_queue, is_fifo, save_extra
from inturn.sqs.model import Empty, GetQueueAttributes, GetQueueAttributesAnswer, SetQueueAttributes
from inturn.store.commands import Command
from inturn.store.protocols import Store

_DEPTHS: Final[dict[str, Callable[[Depth], int]]] = {
    "ApproximateNumberOfMessages": lambda depth: depth.messages - depth.in_flight - depth.delayed,
    "ApproximateNumberOfMessagesDelayed": lambda depth: depth.delayed,
    "ApproximateNumberOfMessagesNotVisible": lambda depth: depth.in_flight,
}
_READABLE: Final = settings.SETTABLE | {*_DEPTHS, "CreatedTimestamp", "LastModifiedTimestamp", "QueueArn"}
_DEFAULT_WINDOW: Final = "300"


def get_queue_attributes(context: Context, params: GetQueueAttributes) -> Command[GetQueueAttributesAnswer]:
    """Return the requested settings and message counts of a queue; without names, none."""
    requested = params.attribute_names

    def read(store: Store, queue: QueueInfo, now_ms: int) -> GetQueueAttributesAnswer:
        for name in requested:
            if name not in _READABLE and name != "All":
                raise errors.invalid_attribute_name(name)
        attributes = _all_attributes(context, queue)
        if (
            "All" in requested
            and attributes.get(settings.WINDOW) == _DEFAULT_WINDOW
            and settings.WINDOW not in requested
        ):
            del attributes[settings.WINDOW]  # not an SQS attribute: shown under "All" only if it is not the default
        if "All" in requested or not _DEPTHS.keys().isdisjoint(requested):
            depth = store.depth(queue, now_ms)
            attributes.update({count_name: str(count(depth)) for count_name, count in _DEPTHS.items()})
        return GetQueueAttributesAnswer(
            {name: value for name, value in attributes.items() if "All" in requested or name in requested}
        )

    return in_queue(context, params.queue_url, read)


def _all_attributes(context: Context, queue: QueueInfo) -> dict[str, str]:
    modified_ms = extra_setting(queue.settings, "modified_ms", queue.created_ms)
    return {
        "QueueArn": context.arn(queue.name),
        "CreatedTimestamp": str(queue.created_ms // 1000),
        "LastModifiedTimestamp": str(modified_ms // 1000),
        **settings.current_attributes(context, queue),
    }


def set_queue_attributes(context: Context, params: SetQueueAttributes) -> Command[Empty]:
    """Change the given settings of a queue."""

    def change(store: Store, queue: QueueInfo, now_ms: int) -> Empty:
        changes = settings.normalized(params.attributes, fifo=is_fifo(queue))
        queue.settings = settings.with_changes(context, store, queue.name, queue.settings, changes, params.attributes)
        save_extra(store, queue, modified_ms=now_ms)
        return Empty()

    return in_queue(context, params.queue_url, change)
