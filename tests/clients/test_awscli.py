"""The AWS CLI against the endpoint: what it prints, and with which code it exits.

Most commands run one after the other in one process of the CLI's own code, since its start takes most of a second;
those of the last tests are processes of their own.
"""

import json
import os
import re
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from served_endpoint import ACCOUNT, ARN, DEADLINE_S, REGION, Serving, unique

BIN = Path(sys.executable).parent
DOCUMENT = Path(__file__).parent.parent.parent / "docs/server.md"

MANY = """
import contextlib, io, json, sys
from awscli.clidriver import create_clidriver

aws = create_clidriver()
for line in sys.stdin:
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    arguments = json.loads(line)
    one = create_clidriver() if "--region" in arguments else aws  # which would stay in that region
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = one.main(arguments)
        except SystemExit as refused:  # by its parser of arguments
            code = refused.code
        out.flush(), err.flush()
    told = [stream.buffer.getvalue().decode() for stream in (out, err)]
    print(json.dumps([code, *told]), flush=True)
"""


@dataclass(frozen=True)
class Ran:
    """What became of a command."""

    code: int
    out: str
    err: str


class Aws:
    """The CLI."""

    def __init__(self, serving: Serving, folder: Path) -> None:
        self.url = serving.url
        self.environment = serving.environment(folder)
        self._process = subprocess.Popen(
            [sys.executable, "-c", MANY],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self.environment,
            text=True,
        )

    def run(self, action: str, *arguments: str) -> Ran:
        """Run a command of sqs."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = json.dumps(["--endpoint-url", self.url, "sqs", action, *arguments])
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return Ran(*json.loads(self._process.stdout.readline()))

    def __call__(self, action: str, *arguments: str) -> Any:
        """What a command that succeeds prints: a document, or nothing."""
        ran = self.run(action, *arguments)
        assert (ran.code, ran.err) == (0, "")
        return json.loads(ran.out) if ran.out else None

    def start(self, *arguments: str, url: str | None = None) -> "subprocess.Popen[str]":
        """A command as a process of its own."""
        return subprocess.Popen(
            [str(BIN / "aws"), "--endpoint-url", url or self.url, "sqs", *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        self._process.communicate(timeout=DEADLINE_S)


@pytest.fixture(scope="module")
def aws(serving: Serving, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    aws = Aws(serving, tmp_path_factory.mktemp("aws"))
    yield aws
    aws.close()


def made(aws: Aws, name: str, **attributes: str) -> str:
    if name.endswith(".fifo"):
        attributes["FifoQueue"] = "true"
    url: str = aws("create-queue", "--queue-name", unique(name), "--attributes", json.dumps(attributes))["QueueUrl"]
    return url


def bodies(aws: Aws, url: str) -> list[str]:
    answer = aws("receive-message", "--queue-url", url, "--max-number-of-messages", "10")
    return [message["Body"] for message in (answer or {}).get("Messages", [])]


def test_send_receive_and_delete_a_message(aws: Aws) -> None:
    url = made(aws, "orders")
    attributes = {
        "text": {"DataType": "String", "StringValue": "grüß"},
        "number": {"DataType": "Number", "StringValue": "-1.5"},
        "bytes": {"DataType": "Binary", "BinaryValue": "raw"},
    }
    queue = ("--queue-url", url)
    sent = aws("send-message", *queue, "--message-body", "<ä> & b", "--message-attributes", json.dumps(attributes))
    every = ("--attribute-names", "All", "--message-attribute-names", "All")
    (message,) = aws("receive-message", *queue, *every, "--visibility-timeout", "40")["Messages"]
    assert (message["Body"], message["MessageId"]) == ("<ä> & b", sent["MessageId"])
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    shown = {"DataType": "Binary", "BinaryValue": b64encode(b"raw").decode()}
    assert message["MessageAttributes"] == attributes | {"bytes": shown}
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    assert bodies(aws, url) == []
    handle = ("--receipt-handle", message["ReceiptHandle"])
    assert aws("change-message-visibility", *queue, *handle, "--visibility-timeout", "0") is None
    (redelivered,) = aws("receive-message", *queue)["Messages"]
    assert aws("delete-message", *queue, "--receipt-handle", redelivered["ReceiptHandle"]) is None
    options = ("--attribute-names", "ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
    assert set(aws("get-queue-attributes", *queue, *options)["Attributes"].values()) == {"0"}


def test_the_same_name_in_two_regions_is_two_queues(aws: Aws) -> None:
    name = unique("orders")
    regions = {region: ("--region", region) for region in (REGION, "eu-west-1")}
    urls = {region: aws("create-queue", "--queue-name", name, *how)["QueueUrl"] for region, how in regions.items()}
    assert urls["eu-west-1"] == f"{aws.url}/queue/eu-west-1/{ACCOUNT}/{name}"
    for region, how in regions.items():
        aws("send-message", "--queue-url", urls[region], "--message-body", region, *how)
    for region, how in regions.items():
        (message,) = aws("receive-message", "--queue-url", urls[region], "--max-number-of-messages", "10", *how)[
            "Messages"
        ]
        assert message["Body"] == region
        assert aws("get-queue-url", "--queue-name", name, *how)["QueueUrl"] == urls[region]
        attributes = aws("get-queue-attributes", "--queue-url", urls[region], "--attribute-names", "QueueArn", *how)
        assert attributes["Attributes"]["QueueArn"] == f"arn:aws:sqs:{region}:{ACCOUNT}:{name}"
    ran = aws.run("send-message", "--queue-url", urls[REGION], "--message-body", "x", "--region", "eu-west-1")
    assert "AWS.SimpleQueueService.NonExistentQueue" in ran.err


def test_a_partly_failing_batch_reports_both_parts(aws: Aws) -> None:
    url = made(aws, "orders")
    entries = ["Id=late,MessageBody=x,DelaySeconds=901", "Id=good,MessageBody=y"]
    answer = aws("send-message-batch", "--queue-url", url, "--entries", *entries)
    assert [entry["Id"] for entry in answer["Successful"]] == ["good"]
    assert [(entry["Id"], entry["Code"]) for entry in answer["Failed"]] == [("late", "InvalidParameterValue")]
    (message,) = aws("receive-message", "--queue-url", url)["Messages"]
    entries = [f"Id=good,ReceiptHandle={message['ReceiptHandle']}", "Id=bad,ReceiptHandle=nonsense"]
    answer = aws("delete-message-batch", "--queue-url", url, "--entries", *entries)
    assert [entry["Id"] for entry in answer["Successful"]] == ["good"]
    assert [(entry["Id"], entry["Code"]) for entry in answer["Failed"]] == [("bad", "ReceiptHandleIsInvalid")]


def test_fifo_order_and_deduplication(aws: Aws) -> None:
    url = made(aws, "orders.fifo", VisibilityTimeout="30")
    sent = []
    for body, group, dedup_id in (("a1", "a", "1"), ("b1", "b", "2"), ("a2", "a", "3"), ("again", "a", "1")):
        ids = ("--message-group-id", group, "--message-deduplication-id", dedup_id)
        sent.append(aws("send-message", "--queue-url", url, "--message-body", body, *ids))
    assert sent[3]["MessageId"] == sent[0]["MessageId"]
    assert sent[3]["SequenceNumber"] == sent[0]["SequenceNumber"] < sent[2]["SequenceNumber"]
    (first,) = aws("receive-message", "--queue-url", url)["Messages"]
    assert first["Body"] == "a1"
    assert bodies(aws, url) == ["b1"]  # a's other message is not for a second consumer now
    aws("delete-message", "--queue-url", url, "--receipt-handle", first["ReceiptHandle"])
    assert bodies(aws, url) == ["a2"]


def test_queues_are_created_listed_in_pages_and_deleted(aws: Aws) -> None:
    prefix = unique("list")
    names = [f"{prefix}-{letter}" for letter in "abcde"]
    for name in names:
        aws("create-queue", "--queue-name", name, "--attributes", "VisibilityTimeout=45", "--tags", "team=shop")
    queue = ("--queue-url", aws("get-queue-url", "--queue-name", names[0])["QueueUrl"])

    listing = ("--queue-name-prefix", prefix, "--max-items", "2", "--page-size", "1")
    first = aws("list-queues", *listing)
    second = aws("list-queues", *listing, "--starting-token", first["NextToken"])
    third = aws("list-queues", *listing, "--starting-token", second["NextToken"])
    pages = [first["QueueUrls"], second["QueueUrls"], third["QueueUrls"]]
    assert [len(page) for page in pages] == [2, 2, 1]
    assert sorted(url.rpartition("/")[2] for page in pages for url in page) == names
    assert "NextToken" not in third
    every = ("list-queues", "--queue-name-prefix", prefix, "--query", "length(QueueUrls)", "--output", "text")
    assert aws.run(*every).out == "5\n"
    assert aws("list-queues", "--queue-name-prefix", f"{prefix}-x") is None

    aws("set-queue-attributes", *queue, "--attributes", "DelaySeconds=3,VisibilityTimeout=50")
    attributes = aws("get-queue-attributes", *queue, "--attribute-names", "All")["Attributes"]
    assert (attributes["DelaySeconds"], attributes["VisibilityTimeout"]) == ("3", "50")
    assert attributes["QueueArn"] == ARN + names[0]
    aws("tag-queue", *queue, "--tags", "stage=test")
    aws("untag-queue", *queue, "--tag-keys", "team")
    assert aws("list-queue-tags", *queue)["Tags"] == {"stage": "test"}
    allowed = ("--label", "send", "--aws-account-ids", "123456789012", "--actions", "SendMessage")
    aws("add-permission", *queue, *allowed)
    aws("remove-permission", *queue, "--label", "send")

    aws("send-message", *queue, "--message-body", "x", "--delay-seconds", "0")
    aws("purge-queue", *queue)
    assert bodies(aws, queue[1]) == []
    aws("delete-queue", *queue)
    assert aws.run("get-queue-url", "--queue-name", names[0]).code == 255


def test_dead_letters_are_listed_and_moved_back(aws: Aws) -> None:
    dead = made(aws, "dead")
    arn = ARN + dead.rpartition("/")[2]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    source = made(aws, "orders", RedrivePolicy=policy, VisibilityTimeout="0")
    assert aws("list-dead-letter-source-queues", "--queue-url", dead)["queueUrls"] == [source]
    aws("send-message", "--queue-url", source, "--message-body", "x")
    assert [bodies(aws, source), bodies(aws, source)] == [["x"], []]
    assert aws("start-message-move-task", "--source-arn", arn)["TaskHandle"]
    deadline = time.monotonic() + DEADLINE_S
    while (task := aws("list-message-move-tasks", "--source-arn", arn)["Results"][0])["Status"] != "COMPLETED":
        assert time.monotonic() < deadline, task
    assert task["ApproximateNumberOfMessagesMoved"] == 1
    assert bodies(aws, source) == ["x"]


def test_errors_have_the_codes_and_exit_status_of_the_cli(aws: Aws) -> None:
    url = made(aws, "orders.fifo")
    queue, body = ("--queue-url", url), ("--message-body", "x")
    name, other = url.rpartition("/")[2], "FifoQueue=true,VisibilityTimeout=1"
    prefix = "AWS.SimpleQueueService."
    cases = (
        (("get-queue-url", "--queue-name", "nowhere"), "GetQueueUrl", f"{prefix}NonExistentQueue"),
        (("send-message", *queue, *body), "SendMessage", "MissingParameter"),
        (("send-message", *queue, *body, "--message-group-id", "g"), "SendMessage", "InvalidParameterValue"),
        (("delete-message", *queue, "--receipt-handle", "x"), "DeleteMessage", "ReceiptHandleIsInvalid"),
        (("create-queue", "--queue-name", name, "--attributes", other), "CreateQueue", "QueueAlreadyExists"),
    )
    for arguments, operation, code in cases:
        ran = aws.run(*arguments)
        assert (ran.code, ran.out) == (255, ""), arguments
        assert f"An error occurred ({code}) when calling the {operation} operation: " in ran.err, arguments
    assert aws.run("delete-message", *queue, "--receipt-handle", "-x").code == 2  # so no handle begins like that


# --- processes of their own ---


@pytest.mark.thorough
def test_a_long_poll_receives_a_message_sent_meanwhile(aws: Aws, serving: Serving) -> None:
    url = made(aws, "waited")
    before = serving.requests()
    waiting = aws.start("receive-message", "--queue-url", url, "--wait-time-seconds", "20")
    serving.wait_for_a_request(before)
    aws("send-message", "--queue-url", url, "--message-body", "at last")
    out, err = waiting.communicate(timeout=DEADLINE_S)
    assert (waiting.returncode, err) == (0, "")
    assert [message["Body"] for message in json.loads(out)["Messages"]] == ["at last"]


@pytest.mark.thorough
def test_another_host_name_is_accepted_and_a_wrong_secret_refused(
    aws: Aws, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = ("--queue-url", made(aws, "orders"))
    by_name = aws.start("send-message", *queue, "--message-body", "x", url=serving.local_url)
    out, err = by_name.communicate(timeout=DEADLINE_S)
    assert (by_name.returncode, err) == (0, "")
    assert json.loads(out)["MessageId"]
    monkeypatch.setitem(aws.environment, "AWS_SECRET_ACCESS_KEY", "guessed")
    purge = aws.start("purge-queue", *queue)
    _, err = purge.communicate(timeout=DEADLINE_S)
    if serving.is_signed:
        assert purge.returncode == 255
        assert "An error occurred (SignatureDoesNotMatch) when calling the PurgeQueue operation: " in err
    else:
        assert (purge.returncode, err) == (0, "")


@pytest.mark.thorough
def test_the_commands_of_the_documentation_succeed(serving: Serving, tmp_path: Path) -> None:
    """A shell does what the document says, as it stands there, but for the port and the key."""
    blocks = re.findall(r"^```shell\n(.*?)^```", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)
    commands = "\n".join(block for block in blocks if "aws " in block)
    for documented, actual in {
        ":9324": f":{serving.port}",
        "_KEY_ID=any": f"_KEY_ID={serving.key.id}",
        "_ACCESS_KEY=any": f"_ACCESS_KEY={serving.key.secret}",
    }.items():
        assert documented in commands
        commands = commands.replace(documented, actual)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    ran = subprocess.run(
        ["bash", "-euc", commands],  # noqa: S607 - whichever there is
        check=False,
        env=environment | {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert json.loads(ran.stdout)["QueueUrl"] == f"{serving.url}/000000000000/orders"
