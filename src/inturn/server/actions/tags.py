"""TagQueue, UntagQueue and ListQueueTags."""

from collections.abc import Mapping
from dataclasses import replace

from inturn.core.queue.messages import QueueInfo
from inturn.server import errors, limits
from inturn.server.context import Context, asking, kept, queue_in
from inturn.server.model import Empty, ListQueueTags, ListQueueTagsAnswer, TagQueue, UntagQueue
from inturn.store.commands import Command
from inturn.store.protocols import Store

_KEY_LENGTH = 128
_VALUE_LENGTH = 256


def tag_queue(context: Context, params: TagQueue) -> Command[Empty]:
    """Add tags to a queue; an existing key gets the new value."""
    name = context.name(params.queue_url)

    def tag(store: Store, _now_ms: int) -> Empty:
        queue = queue_in(store, name)
        if not params.tags:
            raise errors.missing_parameter("Tags")
        tags = {**kept(queue.settings, "tags", {}), **params.tags}
        check(context.bare(name), tags)
        _save(store, queue, tags)
        return Empty()

    return asking(tag)


def check(name: str, tags: Mapping[str, str]) -> None:
    """Check a queue's tags.

    Raises:
        SqsError: if there are too many, or one is too long.
    """
    if len(tags) > limits.QUEUE_TAGS:
        raise errors.invalid_parameter_value(f"Too many tags added for queue {name}.")
    for key, value in tags.items():
        if not 1 <= len(key) <= _KEY_LENGTH:
            raise errors.invalid_parameter_value("Tag keys must be between 1 and 128 characters in length.")
        if len(value) > _VALUE_LENGTH:
            raise errors.invalid_parameter_value("Tag values must be between 0 and 256 characters in length.")


def _save(store: Store, queue: QueueInfo, tags: Mapping[str, str]) -> None:
    queue.settings = replace(queue.settings, extra={**queue.settings.extra, "tags": dict(tags)})
    store.save(queue.name, queue)


def untag_queue(context: Context, params: UntagQueue) -> Command[Empty]:
    """Remove tags from a queue; unknown keys are ignored."""
    name = context.name(params.queue_url)

    def untag(store: Store, _now_ms: int) -> Empty:
        queue = queue_in(store, name)
        if not params.tag_keys:
            raise errors.invalid_parameter_value("Tag keys must be between 1 and 128 characters in length.")
        tags: dict[str, str] = kept(queue.settings, "tags", {})
        _save(store, queue, {key: value for key, value in tags.items() if key not in params.tag_keys})
        return Empty()

    return asking(untag)


def list_queue_tags(context: Context, params: ListQueueTags) -> Command[ListQueueTagsAnswer]:
    """Return all tags of a queue."""
    name = context.name(params.queue_url)
    return asking(lambda store, _now_ms: ListQueueTagsAnswer(dict(kept(queue_in(store, name).settings, "tags", {}))))
