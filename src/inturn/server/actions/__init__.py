"""The SQS actions: one module for each group of them, and the one table of all."""

from typing import Final

from inturn.server.actions.attributes import get_queue_attributes, set_queue_attributes
from inturn.server.actions.moves import cancel_message_move_task, list_message_move_tasks, start_message_move_task
from inturn.server.actions.permissions import add_permission, remove_permission
from inturn.server.actions.queues import (
    create_queue,
    delete_queue,
    get_queue_url,
    list_dead_letter_source_queues,
    list_queues,
    purge_queue,
)
from inturn.server.actions.receive import receive_message
from inturn.server.actions.send import send_message, send_message_batch
from inturn.server.actions.settle import (
    change_message_visibility,
    change_message_visibility_batch,
    delete_message,
    delete_message_batch,
)
from inturn.server.actions.tags import list_queue_tags, tag_queue, untag_queue
from inturn.server.context import Action

DONE_BY: Final[dict[str, Action]] = {
    "AddPermission": add_permission,
    "CancelMessageMoveTask": cancel_message_move_task,
    "ChangeMessageVisibility": change_message_visibility,
    "ChangeMessageVisibilityBatch": change_message_visibility_batch,
    "CreateQueue": create_queue,
    "DeleteMessage": delete_message,
    "DeleteMessageBatch": delete_message_batch,
    "DeleteQueue": delete_queue,
    "GetQueueAttributes": get_queue_attributes,
    "GetQueueUrl": get_queue_url,
    "ListDeadLetterSourceQueues": list_dead_letter_source_queues,
    "ListMessageMoveTasks": list_message_move_tasks,
    "ListQueueTags": list_queue_tags,
    "ListQueues": list_queues,
    "PurgeQueue": purge_queue,
    "ReceiveMessage": receive_message,
    "RemovePermission": remove_permission,
    "SendMessage": send_message,
    "SendMessageBatch": send_message_batch,
    "SetQueueAttributes": set_queue_attributes,
    "StartMessageMoveTask": start_message_move_task,
    "TagQueue": tag_queue,
    "UntagQueue": untag_queue,
}
"""The function of each action, by the action's name."""
