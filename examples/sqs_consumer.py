"""An SQS consumer moved to inturn: the same boto3 code, with another address.

``inturn serve --db shop.db`` is the endpoint; here it runs within the program. Only ``endpoint_url`` changes. A message
that fails keeps its position: the later messages of its group wait for it, and no other group does. Run it with
``python examples/sqs_consumer.py`` (it needs ``inturn[server]`` and boto3). It prints:

    acct-1 deposit 5
    acct-1 withdraw 3 fails
    acct-2 deposit 9
    acct-1 withdraw 3
"""

import asyncio
import tempfile
from typing import Any

import boto3

import inturn
from inturn.sqs.config import Config, ServerConfig
from inturn.sqs.run import Endpoint

SENT = [("acct-1", "deposit 5"), ("acct-1", "withdraw 3"), ("acct-2", "deposit 9")]


def main(endpoint_url: str) -> None:
    sqs = boto3.client(
        "sqs", endpoint_url=endpoint_url, region_name="eu-west-1", aws_access_key_id="any", aws_secret_access_key="any"
    )
    url = sqs.create_queue(QueueName="payments.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    for number, (account, body) in enumerate(SENT):
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=account, MessageDeduplicationId=str(number))
    failed: set[str] = set()
    while messages := receive(sqs, url):
        for message in messages:
            group, body, handle = message["Attributes"]["MessageGroupId"], message["Body"], message["ReceiptHandle"]
            if body.startswith("withdraw") and body not in failed:  # as if the bank were away the first time
                failed.add(body)
                print(group, body, "fails")
                sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=0)
                continue
            print(group, body)
            sqs.delete_message(QueueUrl=url, ReceiptHandle=handle)


def receive(sqs: Any, url: str) -> list[dict[str, Any]]:
    answer = sqs.receive_message(QueueUrl=url, AttributeNames=["MessageGroupId"])
    messages: list[dict[str, Any]] = answer.get("Messages", [])
    return messages


async def serve(folder: str) -> None:
    with inturn.open(f"{folder}/shop.db") as db:
        async with Endpoint(db, Config(server=ServerConfig(port=0))) as endpoint:
            await asyncio.to_thread(main, endpoint.url)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        asyncio.run(serve(made))
