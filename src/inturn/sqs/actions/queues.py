"""Queue actions: CreateQueue, DeleteQueue, GetQueueUrl, ListQueues, ListDeadLetterSourceQueues, PurgeQueue.

A delete is complete when it is answered.
"""

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from inturn.core.queue.messages import QueueInfo
from inturn.sqs import errors, limits
from inturn.sqs.actions import settings, tags
from inturn.sqs.context import FIFO, Context, extra_setting, in_queue, queue_in, save_extra, store_command
from inturn.sqs.model import (
    CreateQueue,
    CreateQueueAnswer,
    DeleteQueue,
    Empty,
    GetQueueUrl,
    GetQueueUrlAnswer,
    ListDeadLetterSourceQueues,
    ListDeadLetterSourceQueuesAnswer,
    ListQueues,
    ListQueuesAnswer,
    PurgeQueue,
)
from inturn.sqs.naming import scope_of
from inturn.store.commands import Command
from inturn.store.protocols import Store

_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_PLAIN: Final = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
_WITH_SUFFIX: Final = (
    "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, "
    "must end with .fifo suffix and be 1 to 80 in length"
)

# --- creating and deleting ---


def create_queue(context: Context, params: CreateQueue) -> Command[CreateQueueAnswer]:
    """Create a queue; return an existing one if it has the requested attributes, else refuse."""
    fifo = params.attributes.get("FifoQueue", "").lower() == "true"
    _check_name(params.queue_name, fifo=fifo)
    name = context.stored_name(params.queue_name)
    changes = settings.normalized(params.attributes, fifo=fifo)
    tags.check(params.queue_name, params.tags)
    answer = CreateQueueAnswer(context.url(name))

    def make(store: Store, now_ms: int) -> CreateQueueAnswer:
        existing = store.queues.get(name)
        if existing is not None:
            current = settings.current_attributes(context, existing)
            for attribute, value in changes.items():
                if current.get(attribute, "") != value:
                    raise errors.other_attribute(attribute)
            return answer
        queue_settings = settings.with_changes(context, store, name, None, changes, params.attributes)
        if params.tags:
            queue_settings = replace(queue_settings, extra={**queue_settings.extra, "tags": dict(params.tags)})
        store.save(name, QueueInfo(0, name, queue_settings, now_ms))
        return answer

    return store_command(make)


def _check_name(name: str, *, fifo: bool) -> None:
    plain = name.removesuffix(FIFO) if fifo else name
    is_plain = _NAME.fullmatch(plain) is not None and len(name) <= limits.QUEUE_NAME_LENGTH
    if not is_plain or (fifo and plain == name):
        raise errors.invalid_parameter_value(_WITH_SUFFIX if fifo else _PLAIN)


def delete_queue(context: Context, params: DeleteQueue) -> Command[Empty]:
    """Delete a queue with its messages.

    The service then refuses the name for a minute. Here the queue is deleted at once, so its name can be used again.
    """

    def delete(store: Store, queue: QueueInfo, _now_ms: int) -> Empty:
        store.save(queue.name, None)
        return Empty()

    return in_queue(context, params.queue_url, delete)


def purge_queue(context: Context, params: PurgeQueue) -> Command[Empty]:
    """Delete all messages of a queue, and forget its deduplication ids."""

    def purge(store: Store, queue: QueueInfo, now_ms: int) -> Empty:
        purged_ms = extra_setting(queue.settings, "purged_ms", None)
        if purged_ms is not None and purged_ms <= now_ms < purged_ms + limits.PURGE_S * 1000:
            raise errors.purge_queue_in_progress(context.bare_name(queue.name))
        save_extra(store, queue, purge=True, purged_ms=now_ms)
        return Empty()

    return in_queue(context, params.queue_url, purge)


# --- finding ---


def get_queue_url(context: Context, params: GetQueueUrl) -> Command[GetQueueUrlAnswer]:
    """Find a queue by its name, in the caller's region."""
    name = context.stored_name(params.queue_name, params.queue_owner_aws_account_id)

    def find(store: Store, _now_ms: int) -> GetQueueUrlAnswer:
        queue_in(store, name)
        return GetQueueUrlAnswer(context.url(name))

    return store_command(find)


def list_queues(context: Context, params: ListQueues) -> Command[ListQueuesAnswer]:
    """List the queues of the caller's region and account with a name prefix, in the order of their names."""
    scope, prefix = context.scope, params.queue_name_prefix or ""

    def is_listed(queue: QueueInfo) -> bool:
        where, name = scope_of(context.home, queue.name)
        return where == scope and name.startswith(prefix)

    def read(store: Store, _now_ms: int) -> ListQueuesAnswer:
        page, token = _page(store, params, is_listed)
        return ListQueuesAnswer([context.url(name) for name in page], token)

    return store_command(read)


def list_dead_letter_source_queues(
    context: Context, params: ListDeadLetterSourceQueues
) -> Command[ListDeadLetterSourceQueuesAnswer]:
    """List the queues that have this dead-letter queue."""

    def read(store: Store, target: QueueInfo, _now_ms: int) -> ListDeadLetterSourceQueuesAnswer:
        page, token = _page(store, params, lambda queue: queue.settings.dead_letter == target.name)
        return ListDeadLetterSourceQueuesAnswer([context.url(name) for name in page], token)

    return in_queue(context, params.queue_url, read)


def _page(
    store: Store, params: ListQueues | ListDeadLetterSourceQueues, is_one: Callable[[QueueInfo], bool]
) -> tuple[Sequence[str], str | None]:
    """Return the next names and the token of the next page; SQS gives a token only if MaxResults was given."""
    most = params.max_results
    if most is not None and not 1 <= most <= limits.LIST_RESULTS:
        reason = f"MaxResults must be an integer between 1 and {limits.LIST_RESULTS}."
        raise errors.invalid_value(most, "MaxResults", reason)
    after = _after(params.next_token) if params.next_token else ""
    names = sorted(queue.name for queue in store.queues.values() if queue.name > after and is_one(queue))
    page = names[: most or limits.LIST_RESULTS]
    is_more = most is not None and len(names) > len(page)
    return page, base64.urlsafe_b64encode(page[-1].encode()).decode() if is_more else None


def _after(token: str) -> str:
    """Return the name after which a list continues."""
    try:
        return base64.urlsafe_b64decode(token).decode()
    except ValueError:
        raise errors.invalid_parameter_value("Invalid or expired next token.") from None
