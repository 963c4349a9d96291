"""Hostile clients against the whole endpoint: what they say harms nobody, what they are not allowed they do not get.

What one part has to say for itself is tested beside it: the signature in test_auth.py, the bounds of a connection in
test_http_bounds.py, the two parsers in test_wire_fuzz.py, permissions and web pages in test_serve.py.
"""

import io
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import quote

import boto3
import psutil
import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config as Options
from botocore.exceptions import ClientError
from endpoint import Endpoint
from served import Answer, Served, code_of
from signing import signed

from inturn.serving.http.limits import BODY_BYTES, PENDING_BYTES
from inturn.sqs.auth import Key
from inturn.sqs.config import AccessKey, Config, ServerConfig
from raw_http import Client, post

# --- what requests say comes back as it was, and is nothing but text ---

TEXTS = [
    "'; drop table inturn_messages; --",
    '" or 1=1 --',
    "<a>&amp;<![CDATA[x]]></a>]]>",
    "<!DOCTYPE x [<!ENTITY e SYSTEM 'file:///etc/passwd'>]><x>&e;</x>",
    '{"a": "\\u0000", "b": [}',
    "../../../etc/passwd",
    "a\r\nX-Injected: yes\r\n\r\n<html>",
    "line\nline\r\nline\r\tend ",
    " \t leading and trailing \t ",
    "%0d%0a%00%s%n${jndi:ldap://x}{{7*7}}",
    "\u2028\u2029\x85\xa0\u202e\U0001f600\ufeff",
]


@pytest.mark.parametrize("text", TEXTS)
def test_bodies_attributes_and_tags_round_trip_unchanged(sqs: Endpoint, text: str) -> None:
    url = sqs.queue("plain")
    attributes = {
        "a": {"DataType": "String", "StringValue": text},
        "b": {"DataType": "Binary.x", "BinaryValue": text.encode()},
    }
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": text}}
    sqs.client.tag_queue(QueueUrl=url, Tags={text: text})
    sqs.client.send_message(QueueUrl=url, MessageBody=text, MessageAttributes=attributes, MessageSystemAttributes=trace)
    (message,) = sqs.receive(url, MessageAttributeNames=["All"])
    assert (message["Body"], message["MessageAttributes"]) == (text, attributes)
    assert message["Attributes"]["AWSTraceHeader"] == text
    assert sqs.client.list_queue_tags(QueueUrl=url)["Tags"] == {text: text}
    sqs.client.untag_queue(QueueUrl=url, TagKeys=[text])
    assert "Tags" not in sqs.client.list_queue_tags(QueueUrl=url)


WORDS = ["'';drop/**/table--", "<x>&amp;]]>", "../../etc/passwd", "%0d%0a${x}{{7}}", '\\"\\u0000"', "*?[a-z]%_"]


@pytest.mark.parametrize("word", WORDS)
def test_hostile_groups_and_ids_round_trip_and_match_only_themselves(sqs: Endpoint, word: str) -> None:
    url = sqs.queue("orders.fifo")
    for group in (word, "other"):
        for _ in range(2):
            sqs.client.send_message(
                QueueUrl=url, MessageBody=group, MessageGroupId=group, MessageDeduplicationId=word + group
            )
    first, second = sqs.receive(url, ReceiveRequestAttemptId=word)
    assert (first["Attributes"]["MessageGroupId"], second["Attributes"]["MessageGroupId"]) == (word, "other")
    assert first["Attributes"]["MessageDeduplicationId"] == word + word


@pytest.mark.parametrize(
    "name", [*TEXTS, *WORDS, "", ".", "..", "a/b", "a\\b", "a.b", "a\0b", "\u0661", "a\n", "x.fifo"]
)
def test_an_invalid_queue_name_neither_creates_nor_finds_a_queue(sqs: Endpoint, tmp_path: Path, name: str) -> None:
    sqs.queue("other")
    files = sorted(tmp_path.iterdir())
    make, find = sqs.client.create_queue, sqs.client.get_queue_url
    assert sqs.refused(make, QueueName=name)[0] == "InvalidParameterValue"
    assert sqs.refused(find, QueueName=name)[0] == "AWS.SimpleQueueService.NonExistentQueue"
    for url in (f"{sqs.url('')}{name}", f"{sqs.url('')}{quote(name, safe='')}"):
        code, _ = sqs.refused(sqs.client.send_message, QueueUrl=url, MessageBody="x")
        assert code in {"AWS.SimpleQueueService.NonExistentQueue", "InvalidAddress"}
    if name:
        assert "QueueUrls" not in sqs.client.list_queues(QueueNamePrefix=name)
    assert sqs.client.list_queues()["QueueUrls"] == [sqs.url("other")]
    assert sorted(tmp_path.iterdir()) == files


# --- signatures over HTTP ---

KEYS = (
    AccessKey(id="all", secret="s1"),  # noqa: S106
    AccessKey(id="orders", secret="s2", queues=("orders-*",)),  # noqa: S106
)
ALL, ORDERS = (Key(key.id, key.secret or "") for key in KEYS)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """An endpoint with keys, to which nothing may come twice."""
    with Served(
        tmp_path_factory.mktemp("guarded") / "q.db", Config(server=ServerConfig(port=0, replays="refuse"), keys=KEYS)
    ) as served:
        sqs = client(served.url, ALL)
        for name in ("orders-eu", "other"):
            sqs.create_queue(QueueName=name)
        yield served
        assert served.errors == []


def client(url: str, key: Key = ALL, **options: Any) -> Any:
    config = Options(**{"retries": {"total_max_attempts": 1}, **options})
    return boto3.Session(aws_access_key_id=key.id, aws_secret_access_key=key.secret, region_name="us-east-1").client(
        "sqs", endpoint_url=url, config=config
    )


def refused(call: Callable[..., Any], **parameters: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    return caught.value.response["Error"]["Code"], caught.value.response["Error"]["Message"]


@pytest.mark.parametrize(
    ("key", "code"),
    [
        (Key("all", "another"), "SignatureDoesNotMatch"),
        (Key("orders", "s1"), "SignatureDoesNotMatch"),
        (Key("nobody", "s1"), "InvalidClientTokenId"),
        (Key("all\u00e9", "s1"), "InvalidClientTokenId"),
        (Key("all/../all", "s1"), "IncompleteSignature"),
    ],
)
@pytest.mark.thorough
def test_an_unknown_key_or_wrong_secret_is_refused(guarded: Served, key: Key, code: str) -> None:
    assert refused(client(guarded.url, key).list_queues)[0] == code


@pytest.mark.parametrize(
    "head", [b"X-Amz-Target: AmazonSQS.SendMessage", b"X-Amz-Target: AmazonSQS.Fly", b"Accept: */*"]
)
@pytest.mark.parametrize("body", [b"{", b"Action=Fly", b"Action=SendMessage&A.1=x&A=y", b"%ff", b""])
def test_an_unsigned_request_is_refused_before_its_parameters_are_read(
    guarded: Served, head: bytes, body: bytes
) -> None:
    """Whoever has no key learns nothing of what the endpoint makes of parameters."""
    with Client(guarded.port) as raw:
        answer = raw.ask(post(body, head.decode()))
    assert code_of(Answer(*answer)) == "MissingAuthenticationToken"


@pytest.mark.parametrize("minutes", [-16, 16])
def test_a_request_signed_at_another_time_is_refused(guarded: Served, minutes: int) -> None:
    sqs = client(guarded.url)
    moment = datetime.now(UTC) + timedelta(minutes=minutes)
    with patch("botocore.auth.get_current_datetime", lambda: moment):
        code, text = refused(sqs.list_queues)
    assert code == "SignatureDoesNotMatch"
    assert text.startswith("Signature expired: " if minutes < 0 else "Signature not yet current: ")


def test_a_request_changed_in_transit_is_refused(guarded: Served) -> None:
    sqs = client(guarded.url)
    url = f"{guarded.url}/000000000000/other"

    def change(request: Any, **_: Any) -> None:
        request.body = request.body.replace(b"mine", b"ours")

    sqs.meta.events.register("before-send.sqs.SendMessage", change)
    assert refused(sqs.send_message, QueueUrl=url, MessageBody="mine")[0] == "SignatureDoesNotMatch"
    assert sqs.send_message(QueueUrl=url, MessageBody="theirs")["MessageId"]


def test_a_replayed_request_is_refused(guarded: Served) -> None:
    requests: list[Any] = []
    sqs = client(guarded.url)
    sqs.meta.events.register("before-send.sqs.ListQueues", lambda request, **_: requests.append(request))
    assert len(sqs.list_queues()["QueueUrls"]) == 2
    (request,) = requests
    headers = [
        f"{name}: {value.decode() if isinstance(value, bytes) else value}" for name, value in request.headers.items()
    ]
    headers = [header for header in headers if not header.lower().startswith("content-length")]
    with Client(guarded.port) as raw:
        answer = raw.ask(post(request.body, f"Host: 127.0.0.1:{guarded.port}", *headers).replace(b"Host: a\r\n", b""))
    assert answer.status == 403
    assert json.loads(answer.body)["message"] == "Signature already used: sign each request anew."


def test_a_presigned_url_works_once_and_only_unchanged(guarded: Served) -> None:
    url = f"{guarded.url}/?Action=GetQueueUrl&QueueName=orders-eu"
    target = signed(url, b"", {}, method="GET", key=ALL, time_s=time.time(), expires=60).target

    def asked(target: bytes) -> tuple[int, str]:
        with Client(guarded.port) as raw:
            answer = raw.ask(b"GET %b HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % (target, guarded.port))
        return answer.status, code_of(Answer(*answer))

    assert asked(target.replace(b"orders-eu", b"other")) == (403, "SignatureDoesNotMatch")
    assert asked(target) == (200, "")
    assert asked(target) == (403, "SignatureDoesNotMatch")


def test_no_action_reaches_the_queue_of_another_key(guarded: Served) -> None:
    sqs = client(guarded.url, ORDERS)
    other = f"{guarded.url}/000000000000/other"
    arn = "arn:aws:sqs:us-east-1:000000000000:other"
    handle = {"ReceiptHandle": "x"}
    parameters: dict[str, dict[str, Any]] = {
        "add_permission": {"Label": "x", "AWSAccountIds": ["0" * 12], "Actions": ["*"]},
        "change_message_visibility": {**handle, "VisibilityTimeout": 0},
        "change_message_visibility_batch": {"Entries": [{"Id": "1", **handle}]},
        "delete_message": handle,
        "delete_message_batch": {"Entries": [{"Id": "1", **handle}]},
        "delete_queue": {},
        "get_queue_attributes": {"AttributeNames": ["All"]},
        "list_dead_letter_source_queues": {},
        "list_queue_tags": {},
        "purge_queue": {},
        "receive_message": {},
        "remove_permission": {"Label": "x"},
        "send_message": {"MessageBody": "x"},
        "send_message_batch": {"Entries": [{"Id": "1", "MessageBody": "x"}]},
        "set_queue_attributes": {"Attributes": {"DelaySeconds": "1"}},
        "tag_queue": {"Tags": {"a": "b"}},
        "untag_queue": {"TagKeys": ["a"]},
    }
    named: dict[str, dict[str, Any]] = {
        "create_queue": {"QueueName": "other"},
        "get_queue_url": {"QueueName": "other"},
        "start_message_move_task": {"SourceArn": arn},
        "list_message_move_tasks": {"SourceArn": arn},
    }
    tried = {name: {"QueueUrl": other, **params} for name, params in parameters.items()} | named
    assert len(tried) == 21, "all but the lists of all queues, and the cancelling of a task that there is none of"
    for action, params in tried.items():
        assert refused(getattr(sqs, action), **params)[0] == "AccessDenied", action
    for url in ("other", f"{guarded.url}/000000000000/%6fther", f"{guarded.url}/000000000000/orders-eu/../other"):
        assert refused(sqs.purge_queue, QueueUrl=url)[0] == "AccessDenied", url
    assert sqs.get_queue_url(QueueName="orders-eu")["QueueUrl"].endswith("/orders-eu")


def test_permission_is_checked_for_the_queue_in_the_parameters(guarded: Served) -> None:
    """Permission is asked for the queue that the action takes."""
    url = f"{guarded.url}/000000000000/orders-eu"
    form = f"Action=PurgeQueue&QueueUrl={guarded.url}/000000000000/other".encode()
    sent = signed(url, form, {"Content-Type": "application/x-www-form-urlencoded"}, key=ORDERS, time_s=time.time())
    headers = [
        f"{name.decode()}: {value.decode()}" for name, value in sent.headers.items() if name != b"content-length"
    ]
    with Client(guarded.port) as raw:
        answer = raw.ask(post(form, *headers, target="/000000000000/orders-eu").replace(b"Host: a\r\n", b""))
    assert (answer.status, b"<Code>AccessDenied</Code>" in answer.body) == (403, True)


# --- a process of its own ---


class Process:
    """`inturn serve` with short time-outs, and a client that behaves."""

    def __init__(self, directory: Path, *arguments: str, toml: str = "") -> None:
        (directory / "inturn.toml").write_text(toml)
        command = [sys.executable, "-m", "inturn.cli", "serve", "--port", "0", "--db", "q.db"]
        self.process = subprocess.Popen(
            [*command, "--config", "inturn.toml", *arguments], cwd=directory, stderr=subprocess.PIPE
        )
        assert self.process.stderr is not None
        self.first = self.process.stderr.readline()
        match = re.search(rb"http://127\.0\.0\.1:(\d+)", self.first)
        assert match, self.first
        self.port = int(match[1])
        # It tries again, as clients do: a connection may be closed for idleness just when it is used again.
        retries = {"total_max_attempts": 4, "mode": "standard"}
        self.client = client(f"http://127.0.0.1:{self.port}", max_pool_connections=1, retries=retries)

    def works(self) -> None:
        url = self.client.create_queue(QueueName="q")["QueueUrl"]
        assert self.client.send_message(QueueUrl=url, MessageBody="x")["MessageId"]

    def stop(self) -> list[bytes]:
        """The lines of its log."""
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=30)
        assert self.process.returncode == 0
        return [self.first, *errors.splitlines(keepends=True)]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    with ExitStack() as stack:

        def start(*arguments: str, toml: str = "") -> Process:
            process = Process(tmp_path, *arguments, toml=toml)
            stack.callback(process.process.communicate)
            stack.callback(process.process.kill)
            return process

        yield start


HASTE = "[limits]\nrequest_s = 2\nunread_s = 2\nidle_s = 2\nconnections = 20\n"  # the good clients' too


@pytest.mark.thorough
def test_slow_clients_are_disconnected_and_others_served(start: Callable[..., Process]) -> None:
    process = start(toml=HASTE)
    process.works()
    with ExitStack() as stack:

        def slow(data: bytes) -> Client:
            opened = stack.enter_context(Client(process.port))
            opened.send(data)
            return opened

        silent = [slow(b"") for _ in range(3)]
        heads = [slow(b"POST / HTTP/1.1\r\nHost: localhost\r\nX-A: b") for _ in range(5)]
        bodies = [slow(post(b"a" * 1000)[:-999].replace(b"Host: a", b"Host: localhost")) for _ in range(5)]
        for connection in silent:
            assert connection.is_closed()
        for connection in heads + bodies:
            assert connection.answer().status == 408
            assert connection.is_closed()
        process.works()
        deaf = slow(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 5_000)
        with suppress(ConnectionError):
            while True:  # what it has not read is not kept for ever: no time is asked for, it must end
                deaf.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1_000)
        process.works()
    assert process.stop()


def status_of(port: int, target: str) -> int:
    """The status of a page, asked over a connection of its own."""
    with Client(port) as probe:
        return probe.ask(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()).status


def test_over_the_connection_limit_idle_ones_are_closed_and_new_requests_get_503(start: Callable[..., Process]) -> None:
    process = start(toml=HASTE.replace("idle_s = 2", "idle_s = 60"))
    process.works()  # and so has one connection
    with ExitStack() as stack:
        idle = [stack.enter_context(Client(process.port)) for _ in range(19)]
        for connection in idle:
            assert connection.ask(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").status == 200
        waiting = ask_for_messages(process, stack, 20)
        assert all(connection.is_closed() for connection in idle)
        refused_one = client(f"http://127.0.0.1:{process.port}")
        with pytest.raises(ClientError) as caught:
            refused_one.list_queues()
        assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
        assert (status_of(process.port, "/health"), status_of(process.port, "/ready")) == (200, 200)
        waiting.pop().__exit__()
        process.works()
    assert process.stop()


def ask_for_messages(process: Process, stack: ExitStack, count: int) -> list[Client]:
    """So many clients that wait for messages of a queue that has none."""
    url = process.client.create_queue(QueueName="empty")["QueueUrl"]
    process.client.close()
    form = f"Action=ReceiveMessage&WaitTimeSeconds=20&QueueUrl={url}".encode()
    clients = [stack.enter_context(Client(process.port)) for _ in range(count)]
    for waiting in clients:
        waiting.send(post(form).replace(b"Host: a", b"Host: localhost"))
    deadline = time.monotonic() + 30
    while status_of(process.port, "/") != 503:  # as long as there is room, there is no such page
        assert time.monotonic() < deadline
    return clients


GUARDED = '[[keys]]\nid = "all"\nsecret = "s1"\n'


def unfinished(port: int, key: Key | None) -> bytes:
    """All but the last byte of a request of 4 MiB."""
    target = {"X-Amz-Target": "AmazonSQS.SendMessage"}
    sent = signed(f"http://127.0.0.1:{port}/", b"", target, key=key or ALL, time_s=time.time())
    lines = [b"%b: %b" % header for header in sent.headers.items() if key or header[0] != b"authorization"]
    head = b"\r\n".join([b"POST / HTTP/1.1", *(line for line in lines if not line.startswith(b"content-length"))])
    return b"%b\r\nContent-Length: %d\r\n\r\n%b" % (head, BODY_BYTES, b"a" * (BODY_BYTES - 1))


@pytest.mark.thorough
@pytest.mark.parametrize("key", [None, Key("nobody", "x"), Key("all", "another")])
def test_unfinished_unauthenticated_requests_are_bounded_in_memory(
    start: Callable[..., Process], key: Key | None
) -> None:
    process = start(toml=GUARDED)
    process.works()
    before = psutil.Process(process.process.pid).memory_info().rss
    data = unfinished(process.port, key)
    with ExitStack() as stack:
        for _ in range(60):
            attacker = stack.enter_context(Client(process.port))
            with suppress(OSError):  # it may be refused before it has sent all
                attacker.send(data)
        grown = psutil.Process(process.process.pid).memory_info().rss - before
        assert grown < 1.5 * PENDING_BYTES < 60 * BODY_BYTES / 2
        process.works()
        url = process.client.create_queue(QueueName="q")["QueueUrl"]
        assert process.client.send_message(QueueUrl=url, MessageBody="x" * 1_000_000)["MessageId"]
        assert status_of(process.port, "/health") == 200
    lines = process.stop()
    assert 0 < sum(b"refused" in line or b"the oldest is dropped" in line for line in lines) <= 4


def test_an_sdk_retry_succeeds_after_a_503_under_load(start: Callable[..., Process]) -> None:
    """As the service's SDKs do: by themselves, after a 503."""
    process = start(toml=GUARDED)
    statuses: list[int] = []
    sqs = boto3.Session(aws_access_key_id=ALL.id, aws_secret_access_key=ALL.secret, region_name="us-east-1").client(
        "sqs", endpoint_url=f"http://127.0.0.1:{process.port}", config=Options(retries={"total_max_attempts": 3})
    )
    sqs.meta.events.register("response-received.sqs", lambda response_dict, **_: note(statuses, response_dict))
    url = sqs.create_queue(QueueName="q")["QueueUrl"]
    crowd = ExitStack()

    def crowd_out(request: Any, **_: Any) -> Any:
        """Have the server answer the first try as it answers who makes room."""
        if statuses != [200]:
            return None
        with Client(process.port) as slow:
            slow.send(unfinished(process.port, Key("all", "another")))
            for _ in range(20):
                attacker = crowd.enter_context(Client(process.port))
                attacker.send(unfinished(process.port, Key("all", "another")))
            answer = slow.answer()
        assert (answer.status, answer.body, answer.headers["retry-after"]) == (503, b"", "1")
        return AWSResponse(request.url, answer.status, answer.headers, Raw(answer.body))

    sqs.meta.events.register("before-send.sqs.SendMessage", crowd_out)
    with crowd:
        assert sqs.send_message(QueueUrl=url, MessageBody="x" * 1_000_000)["MessageId"]
    assert statuses == [200, 503, 200]
    assert process.stop()


def note(statuses: list[int], response: dict[str, Any] | None) -> None:
    if response is not None:
        statuses.append(response["status_code"])


class Raw(io.BytesIO):
    """What botocore reads an answer from."""

    def stream(self, *_: object, **__: object) -> Iterator[bytes]:
        yield self.getvalue()


@pytest.mark.thorough
def test_endless_bodies_are_bounded_in_memory(start: Callable[..., Process]) -> None:
    process = start()
    process.works()
    before = psutil.Process(process.process.pid).memory_info().rss
    offered = 0
    chunk = b"100000\r\n%b\r\n" % (b"a" * 0x100000)
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    for _ in range(20):
        with Client(process.port) as greedy:
            greedy.send(head)
            for _ in range(20):
                greedy.send(chunk)
                offered += len(chunk)
            assert greedy.answer().status == 413
    with Client(process.port) as liar:
        assert liar.ask(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n").status == 413
    grown = psutil.Process(process.process.pid).memory_info().rss - before
    assert grown < 10 * BODY_BYTES < offered / 5
    process.works()
    assert process.stop()


# --- the log ---

INJECTED = "x\r\n2026-01-01T00:00:00.000+00:00 info    inturn.server: forged\x1b[31m\u2028\x00"


@pytest.mark.parametrize("arguments", [("--log-json",), ()])
@pytest.mark.thorough
def test_request_data_cannot_inject_log_lines(start: Callable[..., Process], arguments: tuple[str, ...]) -> None:
    process = start(*arguments, toml='[[keys]]\nid = "all"\nsecret = "s1"\n')
    escaped = quote(INJECTED, safe="")
    forms = [
        f"Action={escaped}&Version={escaped}",
        f"Action=SendMessage&QueueUrl={escaped}&MessageBody={escaped}",
        f"Action=CreateQueue&QueueName={escaped}",
        f"Action=ListQueues&X-Amz-Credential={escaped}&X-Amz-Algorithm={escaped}",
        f"Action=StartMessageMoveTask&SourceArn={escaped}",
    ]
    odd = INJECTED.replace("\r\n", "\r").encode().replace(b"\r", b"\x85").replace(b"\0", b"")
    for form in forms:
        with Client(process.port) as raw:  # a client of its own each, so that each is told to the log
            raw.send(
                post(form.encode(), "Content-Type: application/x-www-form-urlencoded", f"X-Forwarded-For: {escaped}")
            )
            assert raw.answer().status in {400, 403}
        with Client(process.port) as raw:
            raw.send(
                b"GET /?%b HTTP/1.1\r\nHost: a\r\nUser-Agent: %b\r\nAuthorization: AWS4-HMAC-SHA256 %b\r\n\r\n"
                % (form.encode(), odd, odd)
            )
            assert raw.answer().status in {400, 403}
    bad = client(f"http://127.0.0.1:{process.port}", Key("nobody", "x"))
    assert refused(bad.create_queue, QueueName=INJECTED)[0] == "InvalidClientTokenId"
    lines = process.stop()
    assert b"refused" in b"".join(lines)
    assert not re.search(rb"forged|[\x00-\x09\x0b-\x1f\x7f]|\xe2\x80\xa8", b"".join(lines))
    for line in lines:
        if arguments:
            assert json.loads(line)["level"] in {"info", "warning"}
        else:
            assert re.match(rb"\d{4}-\d\d-\d\dT[0-9:.]+\+00:00 (info|warning) +inturn\.server: ", line), line
