"""TagQueue, UntagQueue and ListQueueTags."""

from collections.abc import Mapping

from inturn.core.queue.messages import QueueInfo
from inturn.sqs import errors, limits
from inturn.sqs.context import Context, extra_setting, in_queue, save_extra
from inturn.sqs.model import Empty, ListQueueTags, ListQueueTagsAnswer, TagQueue, UntagQueue
from inturn.store.commands import Command
from inturn.store.protocols import Store

_KEY_LENGTH = 128
_VALUE_LENGTH = 256


def tag_queue(context: Context, params: TagQueue) -> Command[Empty]:
    """Add tags to a queue; an existing key gets the new value."""

    def tag(store: Store, queue: QueueInfo, _now_ms: int) -> Empty:
        if not params.tags:
            raise errors.missing_parameter("Tags")
        tags = {**extra_setting(queue.settings, "tags", {}), **params.tags}
        check(context.bare_name(queue.name), tags)
        save_extra(store, queue, tags=tags)
        return Empty()

    return in_queue(context, params.queue_url, tag)


def check(name: str, tags: Mapping[str, str]) -> None:
    """Refuse a queue's tags if there are too many, or one is too long."""
    if len(tags) > limits.QUEUE_TAGS:
        raise errors.invalid_parameter_value(f"Too many tags added for queue {name}.")
    for key, value in tags.items():
        if not 1 <= len(key) <= _KEY_LENGTH:
            raise errors.invalid_parameter_value("Tag keys must be between 1 and 128 characters in length.")
        if len(value) > _VALUE_LENGTH:
            raise errors.invalid_parameter_value("Tag values must be between 0 and 256 characters in length.")


def untag_queue(context: Context, params: UntagQueue) -> Command[Empty]:
    """Remove tags from a queue; unknown keys are ignored."""

    def untag(store: Store, queue: QueueInfo, _now_ms: int) -> Empty:
        if not params.tag_keys:
            raise errors.invalid_parameter_value("Tag keys must be between 1 and 128 characters in length.")
        tags: dict[str, str] = extra_setting(queue.settings, "tags", {})
        save_extra(store, queue, tags={key: value for key, value in tags.items() if key not in params.tag_keys})
        return Empty()

    return in_queue(context, params.queue_url, untag)


def list_queue_tags(context: Context, params: ListQueueTags) -> Command[ListQueueTagsAnswer]:
    """Return all tags of a queue."""

    def read(_store: Store, queue: QueueInfo, _now_ms: int) -> ListQueueTagsAnswer:
        return ListQueueTagsAnswer(dict(extra_setting(queue.settings, "tags", {})))

    return in_queue(context, params.queue_url, read)
