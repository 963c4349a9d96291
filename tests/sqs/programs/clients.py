"""Clients of a FIFO queue, each with boto3 and a thread of its own, who write down what they ask and are answered.

    python clients.py send|take ENDPOINT QUEUE_URL DIRECTORY FIRST COUNT SEED

They go on until SIGTERM comes. Who sends does not stop before the last message is acknowledged: what is not answered is
sent again with its deduplication id, and now and then what was acknowledged is too. Who takes deletes most of what
comes, gives some back, and leaves some until its time is over.
"""

import random
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import boto3
import msgspec
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ConnectTimeoutError, EndpointConnectionError

from inturn.testing.history import OK, UNASKED, UNKNOWN, Event, ReceiveCall, ReceivedMessage, SendCall, SettleCall

GROUPS = [f"g{number}" for number in range(20)]
REMEMBERED_S = 240
"""For how long an acknowledged message may be sent again: less than the queue remembers it."""

stopping = threading.Event()


class Client:
    """One client, and what it writes down."""

    def __init__(self, name: str, session: boto3.Session, endpoint: str, url: str, path: Path, seed: str) -> None:
        self.name = name
        self.chance = random.Random(f"{seed}/{name}")
        options = Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=10, max_pool_connections=1)
        self.sqs: Any = session.client("sqs", endpoint_url=endpoint, config=options)
        self.url = url
        self._path = path

    def run(self, work: Callable[["Client"], None]) -> None:
        with self._path.open("ab", buffering=0) as self._file:
            work(self)

    def ask(self, verb: str, **params: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """What was answered, and what is known of it."""
        answer: dict[str, Any] = {}
        asked_ns = time.monotonic_ns()
        try:
            answer = getattr(self.sqs, verb)(QueueUrl=self.url, **params)
            outcome = OK
        except ClientError as error:
            outcome = error.response["Error"]["Code"]
        except (EndpointConnectionError, ConnectTimeoutError):
            outcome = UNASKED
        except BotoCoreError:
            outcome = UNKNOWN
        known = {"client": self.name, "asked": asked_ns, "answered": time.monotonic_ns(), "outcome": outcome}
        if outcome == UNASKED:
            stopping.wait(0.1)
        return answer, known

    def ask_batch(
        self, verb: str, entries: Sequence[dict[str, Any]]
    ) -> Iterable[tuple[dict[str, Any], dict[str, Any]]]:
        """The same of each entry, in their order."""
        answer, known = self.ask(verb, Entries=[{"Id": str(place), **entry} for place, entry in enumerate(entries)])
        done = {int(entry["Id"]): entry for entry in answer.get("Successful", ())}
        failed = {int(entry["Id"]): entry["Code"] for entry in answer.get("Failed", ())}
        for place in range(len(entries)):
            yield done.get(place, {}), known | ({"outcome": failed[place]} if place in failed else {})

    def write(self, events: Sequence[Event]) -> None:
        self._file.write(msgspec.json.Encoder().encode_lines(events))


# --- who sends ---


def produce(client: Client) -> None:
    chance = client.chance
    recent: deque[tuple[float, list[SendCall]]] = deque(maxlen=30)
    number = 0
    while not stopping.is_set():
        sent_s, messages = chance.choice(recent) if recent and chance.random() < 0.1 else (0.0, [])
        if not sent_s or time.monotonic() - sent_s > REMEMBERED_S:
            messages = []
            group = chance.choice(GROUPS)
            for _ in range(chance.choice((1, 1, 1, 3, 10))):
                number += 1
                dedup_id = f"{client.name}-{number}"
                body = f"{dedup_id} {'x' * chance.choice((0, 10, 200))}"
                messages.append(SendCall(client="", asked=0, answered=0, dedup_id=dedup_id, group=group, body=body))
                if chance.random() < 0.3:
                    group = chance.choice(GROUPS)
        while not send(client, messages):
            pass
        recent.append((sent_s or time.monotonic(), messages))
        stopping.wait(chance.uniform(0, 0.04))


def send(client: Client, messages: Sequence[SendCall]) -> bool:
    """Whether all of them are acknowledged."""
    entries = [
        {"MessageBody": message.body, "MessageGroupId": message.group, "MessageDeduplicationId": message.dedup_id}
        for message in messages
    ]
    if len(entries) == 1:
        answers = [client.ask("send_message", **entries[0])]
    else:
        answers = [*client.ask_batch("send_message_batch", entries)]
    calls = []
    for message, (answer, known) in zip(messages, answers, strict=True):
        number = answer.get("SequenceNumber")
        known |= {"dedup_id": message.dedup_id, "group": message.group, "body": message.body}
        calls.append(SendCall(**known, number=None if number is None else int(number)))
    client.write(calls)
    return all(call.outcome == OK for call in calls)


# --- who takes ---


def consume(client: Client) -> None:
    chance = client.chance
    while not stopping.is_set():
        answer, known = client.ask(
            "receive_message",
            MaxNumberOfMessages=chance.choice((1, 3, 10)),
            WaitTimeSeconds=chance.choice((0, 1)),
            MessageSystemAttributeNames=["All"],
        )
        deliveries = [delivery(message) for message in answer.get("Messages", ())]
        client.write([ReceiveCall(**known, deliveries=deliveries)])
        fate = chance.random()
        if not deliveries:
            stopping.wait(0.02)
        elif fate < 0.85:
            delete(client, deliveries)
        elif fate < 0.95:
            give_back(client, chance.sample(deliveries, len(deliveries)))


def delivery(message: dict[str, Any]) -> ReceivedMessage:
    known = message["Attributes"]
    return ReceivedMessage(
        int(known["SequenceNumber"]),
        known["MessageDeduplicationId"],
        known["MessageGroupId"],
        message["Body"],
        message["ReceiptHandle"],
    )


def delete(client: Client, deliveries: Sequence[ReceivedMessage]) -> None:
    """All at once or one by one; what is not answered is asked again, or not."""
    remaining = list(deliveries)
    while remaining:
        if client.chance.random() < 0.5:
            batch, remaining = remaining, []
            answers = client.ask_batch("delete_message_batch", [{"ReceiptHandle": message.handle} for message in batch])
        else:
            batch, remaining = remaining[:1], remaining[1:]
            answers = [client.ask("delete_message", ReceiptHandle=batch[0].handle)]
        calls = [
            SettleCall(**known, number=message.number, handle=message.handle)
            for message, (_, known) in zip(batch, answers, strict=True)
        ]
        client.write(calls)
        if client.chance.random() < 0.7 and not stopping.is_set():
            remaining += [
                message for message, call in zip(batch, calls, strict=True) if call.outcome in {UNKNOWN, UNASKED}
            ]


def give_back(client: Client, deliveries: Iterable[ReceivedMessage]) -> None:
    for message in deliveries:
        _, known = client.ask("change_message_visibility", ReceiptHandle=message.handle, VisibilityTimeout=0)
        client.write([SettleCall(**known, number=message.number, handle=message.handle, deletes=False)])


def main(verb: str, endpoint: str, url: str, directory: Path, first: int, count: int, seed: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    session = boto3.Session(aws_access_key_id="any", aws_secret_access_key="any", region_name="us-east-1")  # noqa: S106
    names = [f"{verb}{number}" for number in range(first, first + count)]
    clients = [Client(name, session, endpoint, url, directory / f"{name}.jsonl", seed) for name in names]
    failed: list[BaseException] = []

    def run(client: Client) -> None:
        try:
            client.run(produce if verb == "send" else consume)
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=run, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    sys.exit(bool(failed))


if __name__ == "__main__":
    verb, endpoint, url, directory, first, count, seed = sys.argv[1:]
    main(verb, endpoint, url, Path(directory), int(first), int(count), seed)
