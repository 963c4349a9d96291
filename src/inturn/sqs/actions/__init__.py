"""The SQS actions: one module for each group of them, and the one table of all."""

from typing import Final

from inturn.sqs.actions import attributes, moves, permissions, queues, receive, send, settle, tags
from inturn.sqs.context import Action

DONE_BY: Final[dict[str, Action]] = {
    "AddPermission": permissions.add_permission,
    "CancelMessageMoveTask": moves.cancel_message_move_task,
    "ChangeMessageVisibility": settle.change_message_visibility,
    "ChangeMessageVisibilityBatch": settle.change_message_visibility_batch,
    "CreateQueue": queues.create_queue,
    "DeleteMessage": settle.delete_message,
    "DeleteMessageBatch": settle.delete_message_batch,
    "DeleteQueue": queues.delete_queue,
    "GetQueueAttributes": attributes.get_queue_attributes,
    "GetQueueUrl": queues.get_queue_url,
    "ListDeadLetterSourceQueues": queues.list_dead_letter_source_queues,
    "ListMessageMoveTasks": moves.list_message_move_tasks,
    "ListQueueTags": tags.list_queue_tags,
    "ListQueues": queues.list_queues,
    "PurgeQueue": queues.purge_queue,
    "ReceiveMessage": receive.receive_message,
    "RemovePermission": permissions.remove_permission,
    "SendMessage": send.send_message,
    "SendMessageBatch": send.send_message_batch,
    "SetQueueAttributes": attributes.set_queue_attributes,
    "StartMessageMoveTask": moves.start_message_move_task,
    "TagQueue": tags.tag_queue,
    "UntagQueue": tags.untag_queue,
}
"""The function of each action, by the action's name."""
