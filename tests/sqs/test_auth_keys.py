"""What a key may do."""

import pytest

from inturn.sqs.auth import Key, allowed, denied


@pytest.mark.parametrize(
    ("queues", "actions", "action", "queue", "may"),
    [
        (["*"], ["*"], "DeleteQueue", "a", True),
        (["orders-*"], ["*"], "SendMessage", "orders-eu.fifo", True),
        (["orders-*"], ["*"], "SendMessage", "Orders-eu.fifo", False),
        (["orders-*"], ["*"], "SendMessage", "orders", False),
        (["a", "b"], ["*"], "SendMessage", "b", True),
        (["a", "b"], ["*"], "SendMessage", "c", False),
        (["*.fifo"], ["*"], "SendMessage", "a.fifo", True),
        ([], ["*"], "SendMessage", "a", False),
        (["*"], [], "SendMessage", "a", False),
        (["*"], ["Send*"], "SendMessage", "a", True),
        (["*"], ["SendMessage"], "SendMessageBatch", "a", True),
        (["*"], ["SendMessageBatch"], "SendMessageBatch", "a", True),
        (["*"], ["SendMessageBatch"], "SendMessage", "a", False),
        (["*"], ["sqs:sendmessage"], "SendMessage", "a", True),
        (["*"], ["Send*"], "ReceiveMessage", "a", False),
        (["*"], ["ChangeMessageVisibility"], "ChangeMessageVisibilityBatch", "a", True),
        (["a"], ["ListQueues"], "ListQueues", None, True),
        (["a"], ["SendMessage"], "ListQueues", None, False),
        (["a"], ["ListQueues"], "ListQueues", "b", False),
    ],
)
def test_a_key_allows_its_configured_queues_and_actions(
    queues: list[str], actions: list[str], action: str, queue: str | None, may: bool
) -> None:
    assert allowed(Key("id", "secret", tuple(queues), tuple(actions)), action, queue) is may


def test_the_repr_of_a_key_hides_the_secret() -> None:
    assert "hidden" not in repr(Key("id", "hidden"))


def test_a_denied_action_gets_access_denied_with_user_and_resource() -> None:
    error = denied(
        Key("AKID", "s"), "SendMessageBatch", "arn:aws:sqs:us-east-1:000000000000:orders.fifo", "000000000000"
    )
    assert (error.query_code, error.code, error.status) == ("AccessDenied", "AccessDeniedException", 403)
    assert error.message == (
        "User: arn:aws:iam::000000000000:user/AKID is not authorized to perform: sqs:sendmessage "
        "on resource: arn:aws:sqs:us-east-1:000000000000:orders.fifo"
    )
