"""The endpoint as a whole: its parts together in this process, and `inturn serve` as a process of its own."""

import asyncio
import io
import json
import logging
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import boto3
import pytest
import trustme
from botocore.config import Config as Options
from botocore.exceptions import ClientError
from typer.testing import CliRunner

import inturn
from inturn.cli import app
from inturn.core.errors import InputError
from inturn.database import Database
from inturn.serving.http.http1 import Request, Response
from inturn.serving.logs import configure
from inturn.sqs.config import AccessKey, Config, QueueConfig, ServerConfig
from inturn.sqs.run import Endpoint, EndpointNaming
from waiting import DEADLINE_S, until

T = TypeVar("T")


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with inturn.open(tmp_path / "shop.db") as db:
        yield db


def client(url: str, key: str = "all", secret: str = "s1", **options: Any) -> Any:  # noqa: S107
    return boto3.client(
        "sqs",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        config=Options(retries={"total_max_attempts": 1}),
        **options,
    )


def during(db: Database, config: Config, use: Callable[[str], T]) -> T:
    """What a client has from an endpoint, which runs meanwhile."""

    async def main() -> T:
        async with Endpoint(db, config) as endpoint:
            return await asyncio.to_thread(use, endpoint.url)

    return asyncio.run(main())


def denied(call: Callable[..., Any], **parameters: Any) -> dict[str, Any]:
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    error: dict[str, Any] = caught.value.response["Error"]
    return error


def got(url: str, headers: dict[str, str] | None = None, body: bytes | None = None) -> tuple[int, str, bytes]:
    request = urllib.request.Request(url, body, headers or {})  # noqa: S310 - of this test
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:  # noqa: S310
            return answer.status, answer.headers["Content-Type"], answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read()


FREE = ServerConfig(port=0)


def test_health_page_answers_get_only_and_unknown_pages_get_404(tmp_path: Path) -> None:
    def use(url: str) -> list[int]:
        return [got(f"{url}/health?x=1")[0], got(f"{url}/health", body=b"")[0], got(f"{url}/other")[0]]

    with inturn.open(tmp_path / "q.db") as db:
        assert during(db, Config(server=FREE), use) == [200, 404, 404]


# --- in this process ---


def test_without_keys_any_local_client_is_allowed_every_action(db: Database) -> None:
    def use(url: str) -> str:
        sqs = client(url)
        queue = sqs.create_queue(QueueName="orders")["QueueUrl"]
        assert queue == f"{url}/000000000000/orders"
        sqs.send_message(QueueUrl=queue, MessageBody="hello")
        body: str = sqs.receive_message(QueueUrl=queue)["Messages"][0]["Body"]
        return body

    assert during(db, Config(server=FREE), use) == "hello"


LIST = {"X-Amz-Target": "AmazonSQS.ListQueues", "Content-Type": "application/x-amz-json-1.0"}


def test_without_keys_requests_from_web_pages_are_refused(db: Database) -> None:
    def use(url: str) -> None:
        assert got(url, LIST, b"{}")[0] == 200
        assert got(url, LIST | {"Host": "localhost:1"}, b"{}")[0] == 200
        assert got(url, LIST | {"Host": "sqs.localhost"}, b"{}")[0] == 200
        assert got(url, LIST | {"Host": "queues.example.org:80"}, b"{}")[0] == 200
        for header in (
            {"Origin": "https://example.org"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Host": "rebound.example.org"},
            {"Host": "[x"},
        ):
            status, _, body = got(url, LIST | header, b"{}")
            assert (status, b"refuses requests from web pages" in body) == (403, True), header
        assert got(f"{url}/?Action=ListQueues", {"Sec-Fetch-Site": "cross-site"})[0] == 403
        assert got(f"{url}/?Action=ListQueues", {"Sec-Fetch-Site": "none"})[0] == 200

    server = ServerConfig(port=0, base_url="http://queues.example.org")

    async def main() -> None:
        endpoint = Endpoint(db, Config(server=server))
        async with endpoint:
            await asyncio.to_thread(use, f"http://127.0.0.1:{endpoint.port}")

    asyncio.run(main())


KEYS = (
    AccessKey(id="all", secret="s1"),  # noqa: S106
    AccessKey(id="sender", secret="s2", queues=("orders-*",), actions=("Send*", "GetQueueUrl")),  # noqa: S106
    AccessKey(id="mover", secret="s3", queues=("dead",), actions=("*",)),  # noqa: S106
)


def test_a_key_is_limited_to_its_queues_and_actions(db: Database) -> None:
    def use(url: str) -> None:
        everything = client(url)
        orders = everything.create_queue(QueueName="orders-eu")["QueueUrl"]
        other = everything.create_queue(QueueName="other")["QueueUrl"]
        sender = client(url, "sender", "s2")
        assert sender.get_queue_url(QueueName="orders-eu")["QueueUrl"] == orders
        sender.send_message(QueueUrl=orders, MessageBody="x")
        entries = [{"Id": "1", "MessageBody": "y"}]
        assert len(sender.send_message_batch(QueueUrl=orders, Entries=entries)["Successful"]) == 1
        start = "User: arn:aws:iam::000000000000:user/sender is not authorized to perform: sqs:"
        on = "on resource: arn:aws:sqs:us-east-1:000000000000:"
        for call, parameters, message in (
            (sender.send_message_batch, {"QueueUrl": other, "Entries": entries}, f"{start}sendmessage {on}other"),
            (sender.receive_message, {"QueueUrl": orders}, f"{start}receivemessage {on}orders-eu"),
            (sender.get_queue_url, {"QueueName": "other"}, f"{start}getqueueurl {on}other"),
            (sender.create_queue, {"QueueName": "orders-us"}, f"{start}createqueue {on}orders-us"),
            (sender.list_queues, {}, f"{start}listqueues {on}"),
        ):
            error = denied(call, **parameters)
            assert (error["Code"], error["Message"]) == ("AccessDenied", message)
        assert denied(client(url, "sender", "s1").list_queues)["Code"] == "SignatureDoesNotMatch"
        assert denied(client(url, "nobody", "s1").list_queues)["Code"] == "InvalidClientTokenId"
        assert got(url, LIST, b"{}")[0] == 403
        assert b"MissingAuthenticationToken" in got(url, LIST, b"{}")[2]
        assert sorted(url.rpartition("/")[2] for url in everything.list_queues()["QueueUrls"]) == [
            "orders-eu",
            "other",
        ]

    during(db, Config(server=FREE, keys=KEYS), use)


def test_a_move_task_requires_access_to_both_queues(db: Database) -> None:
    def use(url: str) -> None:
        everything, mover = client(url), client(url, "mover", "s3")
        arn = "arn:aws:sqs:us-east-1:000000000000:"
        for name in ("dead", "other"):
            everything.create_queue(QueueName=name)
        policy = json.dumps({"deadLetterTargetArn": f"{arn}dead", "maxReceiveCount": 1})
        everything.create_queue(QueueName="source", Attributes={"RedrivePolicy": policy})
        start = {"SourceArn": f"{arn}dead"}
        error = denied(mover.start_message_move_task, **start, DestinationArn=f"{arn}other")
        assert error["Message"].endswith(f"to perform: sqs:sendmessage on resource: {arn}other")
        assert denied(mover.start_message_move_task, SourceArn=f"{arn}other")["Message"].endswith(f"{arn}other")
        assert denied(mover.list_message_move_tasks, SourceArn=f"{arn}other")["Code"] == "AccessDenied"
        handle = everything.start_message_move_task(**start, DestinationArn=f"{arn}other")["TaskHandle"]
        assert len(mover.list_message_move_tasks(**start)["Results"]) == 1
        assert denied(client(url, "sender", "s2").cancel_message_move_task, TaskHandle=handle)["Code"] == "AccessDenied"
        assert denied(mover.cancel_message_move_task, TaskHandle="x")["Code"] == "InvalidParameterValue"

    during(db, Config(server=FREE, keys=KEYS), use)


def test_health_ready_and_metrics_pages_describe_the_database(db: Database) -> None:
    db.queue("orders").send("x")

    def use(url: str) -> None:
        client(url).list_queues()
        assert got(f"{url}/health") == (200, "application/json", b'{"status":"ok"}')
        assert got(f"{url}/ready") == (200, "application/json", b'{"status":"ok","queues":1,"messages":1}')
        status, kind, page = got(f"{url}/metrics?x=1")
        assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
        label = f'database="{db.name}"'.encode()
        assert b'inturn_queue_messages{%b,queue="orders"} 1.0\n' % label in page
        assert b'request_duration_seconds_count{action="ListQueues",%b,error_type=""} 1.0\n' % label in page
        assert b"inturn_server_open_connections{%b} " % label in page

    during(db, Config(server=FREE, keys=KEYS), lambda url: got(f"{url}/health"))
    during(db, Config(server=FREE), use)


def test_a_closed_database_gets_503_from_ready_metrics_and_api(db: Database) -> None:
    def use(url: str) -> None:
        db.close()
        assert got(f"{url}/health")[0] == 200, "the process lives"
        status, kind, body = got(f"{url}/ready")
        assert (status, kind, json.loads(body)["status"]) == (503, "application/json", "unavailable")
        assert got(f"{url}/metrics")[0] == 503
        assert denied(client(url).list_queues)["Code"] in {"ServiceUnavailable", "503"}

    async def main() -> None:
        endpoint = Endpoint(db, Config(server=FREE))
        await endpoint.start()
        await asyncio.to_thread(use, endpoint.url)
        await endpoint.stop()

    asyncio.run(main())


def test_the_metrics_setting_limits_the_clients_of_the_metrics_page(db: Database) -> None:
    def metrics_status(metrics: Any, peer: str) -> int:
        answers: list[Response] = []

        async def main() -> None:
            async with Endpoint(db, Config(server=ServerConfig(port=0, metrics=metrics))) as endpoint:
                endpoint._app.handle(Request("GET", b"/metrics", {}, b"", peer), answers.append)
                while not answers:
                    await asyncio.sleep(0.01)

        asyncio.run(main())
        return answers[0].status

    assert (
        metrics_status("local", "127.0.0.1:5")
        == metrics_status("local", "[::1]:5")
        == metrics_status("all", "10.0.0.1:5")
        == 200
    )
    assert metrics_status("local", "10.0.0.1:5") == metrics_status("local", "[2001:db8::1]:5") == 403
    assert metrics_status("off", "127.0.0.1:5") != 200


@pytest.mark.parametrize(
    ("server", "url"),
    [
        (ServerConfig(), "http://127.0.0.1:9324"),
        (ServerConfig(host="::1"), "http://[::1]:9324"),
        (ServerConfig(host="[::1]", port=1), "http://[::1]:1"),
        (ServerConfig(host="::"), "http://localhost:9324"),
        (ServerConfig(tls_cert="c", tls_key="k"), "https://127.0.0.1:9324"),
        (ServerConfig(base_url="https://queues.example.org/sqs"), "https://queues.example.org/sqs"),
    ],
)
def test_queue_urls_begin_with_the_configured_base_url(server: ServerConfig, url: str) -> None:
    assert EndpointNaming(Config(server=server)).base_url == url


# --- queues that are configured ---

DEAD = QueueConfig(name="dead.fifo", attributes={"FifoQueue": True})
POLICY = {"deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:dead.fifo", "maxReceiveCount": 3}
ORDERS = QueueConfig(
    name="orders.fifo",
    attributes={"FifoQueue": True, "VisibilityTimeout": 60, "RedrivePolicy": POLICY},
    tags={"team": "shop"},
)


def test_configured_queues_are_created_once_in_any_order(db: Database) -> None:
    def use(url: str) -> None:
        sqs = client(url)
        queue = sqs.get_queue_url(QueueName="orders.fifo")["QueueUrl"]
        attributes = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"]
        assert (attributes["VisibilityTimeout"], attributes["FifoQueue"]) == ("60", "true")
        assert json.loads(attributes["RedrivePolicy"]) == POLICY
        assert sqs.list_queue_tags(QueueUrl=queue)["Tags"] == {"team": "shop"}
        sqs.send_message(QueueUrl=queue, MessageBody="x", MessageGroupId="g", MessageDeduplicationId="1")

    config = Config(server=FREE, queues=(ORDERS, DEAD))
    during(db, config, use)
    during(db, config, lambda _url: None)
    assert db.queue("orders.fifo").depth().messages == 1


@pytest.mark.parametrize(
    ("queue", "words"),
    [
        (
            QueueConfig(name="dead.fifo", attributes={"FifoQueue": True, "VisibilityTimeout": 5}),
            "attribute VisibilityTimeout",
        ),
        (QueueConfig(name="no name"), "Can only include alphanumeric characters"),
        (QueueConfig(name="q", attributes={"VisibilityTimeout": -1}), "VisibilityTimeout"),
        (QueueConfig(name="q", attributes={"Visibility": 1}), "Unknown Attribute Visibility"),
    ],
)
def test_an_invalid_configured_queue_stops_the_start(db: Database, queue: QueueConfig, words: str) -> None:
    during(db, Config(server=FREE, queues=(DEAD,)), lambda _url: None)
    with pytest.raises(InputError, match=words) as caught:
        during(db, Config(server=FREE, queues=(queue,)), lambda _url: None)
    assert str(caught.value).startswith(f"[[queues]] {queue.name!r} cannot be created")


# --- TLS ---


def test_the_endpoint_serves_tls(db: Database, tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    issued.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    for certificate in issued.cert_chain_pems:
        certificate.write_to_path(str(tmp_path / "cert.pem"), append=True)
    server = ServerConfig(
        host="localhost", port=0, tls_cert=str(tmp_path / "cert.pem"), tls_key=str(tmp_path / "key.pem")
    )

    def use(url: str) -> None:
        assert url.startswith("https://localhost:")
        sqs = client(url, verify=str(tmp_path / "ca.pem"))
        assert sqs.create_queue(QueueName="q")["QueueUrl"] == f"{url}/000000000000/q"
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(url, context=ssl.create_default_context(), timeout=DEADLINE_S)  # noqa: S310 - it does not know the CA

    during(db, Config(server=server, keys=KEYS), use)


def test_an_invalid_certificate_stops_the_start(db: Database, tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("nothing")
    for name, words in (("cert.pem", "cannot use certificate"), ("nowhere.pem", "No such file")):
        server = ServerConfig(port=0, tls_cert=str(tmp_path / name), tls_key=str(tmp_path / "cert.pem"))
        with pytest.raises(InputError, match=words):
            during(db, Config(server=server), lambda _url: None)


def test_an_address_in_use_or_invalid_stops_the_start(db: Database) -> None:
    def use(url: str) -> None:
        port = int(url.rpartition(":")[2])
        with pytest.raises(InputError) as caught:
            during(db, Config(server=ServerConfig(port=port)), lambda _url: None)
        assert f"port {port} on 127.0.0.1 is in use" in str(caught.value)
        assert "set another port" in str(caught.value)
        with pytest.raises(InputError) as caught:
            during(db, Config(server=ServerConfig(host="127.1.2.300", port=port), keys=KEYS), lambda _url: None)
        assert str(caught.value).startswith(f"cannot listen on 127.1.2.300:{port} (Name or service not known)")

    during(db, Config(server=FREE), use)


# --- logs ---


@pytest.fixture
def lines(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[str]]]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    configure("info", json_lines=request.param)
    yield lambda: stream.getvalue().splitlines()
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize("lines", [True], indirect=True)
def test_logs_are_json_lines_without_bodies_and_secrets(lines: Callable[[], list[str]], db: Database) -> None:
    def use(url: str) -> None:
        sqs = client(url)
        queue = sqs.create_queue(QueueName="q")["QueueUrl"]
        sqs.send_message(QueueUrl=queue, MessageBody="hidden body")
        for _ in range(3):
            denied(client(url, "nobody", "hidden secret").send_message, QueueUrl=queue, MessageBody="hidden body")

    db.queue("old").send("x")
    during(db, Config(server=FREE, keys=KEYS), use)
    events = [json.loads(line) for line in lines()]
    assert [event["event"] for event in events] == ["started", "refused", "stopping", "refused", "stopped"]
    assert (events[0]["queues"], events[0]["messages"], events[0]["in_flight"], events[0]["keys"]) == (1, 1, 0, 3)
    assert (events[1]["code"], events[1]["action"], events[1]["level"]) == (
        "InvalidClientTokenId",
        "SendMessage",
        "warning",
    )
    assert (events[3]["code"], events[3]["not_shown"]) == ("InvalidClientTokenId", 1), "the last, at the end"
    assert events[4]["requests"] == 5
    assert "hidden" not in "".join(lines())


@pytest.mark.parametrize("lines", [True, False], indirect=True)
def test_control_characters_in_log_messages_are_escaped(lines: Callable[[], list[str]]) -> None:
    secret = "the value of a variable"  # noqa: S105
    logging.getLogger("inturn.server").warning("a\nb %s", "\x1b[31mc", extra={"peer": "d\ne\u2028f"})
    assert len(lines()) == 1
    try:
        int(secret and "")
    except ValueError:
        logging.getLogger("inturn.server").exception("failed\r")
    output = "\n".join(lines())
    assert "\x1b" not in output
    assert "\r" not in output
    assert "Traceback" in output
    assert secret not in output


# --- the command ---


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


class Process:
    """`inturn serve` on a free port."""

    def __init__(self, *arguments: str, env: dict[str, str] | None = None) -> None:
        command = [sys.executable, "-m", "inturn.cli", "serve", "--port", "0", "--log-json", *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | (env or {}))
        assert self.process.stderr is not None
        self.started = json.loads(self.process.stderr.readline())
        self.url: str = self.started["message"].removeprefix("inturn serves ")

    def stop(self, *signals: signal.Signals) -> tuple[int, list[dict[str, Any]]]:
        for signum in signals:
            self.process.send_signal(signum)
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, [json.loads(line) for line in errors.splitlines()]


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def start(*arguments: str, env: dict[str, str] | None = None) -> Process:
        started.append(Process(*arguments, env=env))
        return started[-1]

    yield start
    for server in started:
        server.process.kill()
        server.process.communicate(timeout=DEADLINE_S)


@pytest.mark.thorough
def test_the_serve_command_keeps_messages_across_a_restart(start: Callable[..., Process]) -> None:
    Path("inturn.toml").write_text(
        '[server]\nport = 1\n[[keys]]\nid = "me"\nsecret_env = "MY_SECRET"\n[[queues]]\nname = "orders"\n'
    )
    first = start("--db", "shop.db", "--config", "inturn.toml", env={"MY_SECRET": "s"})
    sqs = client(first.url, "me", "s")
    queue = sqs.get_queue_url(QueueName="orders")["QueueUrl"]
    for _ in range(2):
        sqs.send_message(QueueUrl=queue, MessageBody="x")
    sqs.receive_message(QueueUrl=queue)
    code, events = first.stop(signal.SIGTERM)
    assert code == 0
    assert [event["message"] for event in events] == ["stopping", "stopped"]
    second = start("--db", "shop.db", "--config", "inturn.toml", env={"MY_SECRET": "s"})
    assert {name: second.started[name] for name in ("queues", "messages", "in_flight")} == {
        "queues": 1,
        "messages": 2,
        "in_flight": 1,
    }
    assert second.stop(signal.SIGINT)[0] == 0


def wait_for_requests(url: str, count: int) -> None:
    """Wait until so many requests have come, besides those that ask."""
    asked = 0

    def have_come() -> bool:
        nonlocal asked
        asked += 1
        (total,) = re.findall(rb"^inturn_server_received_requests_total{.*} (.+)$", got(f"{url}/metrics")[2], re.M)
        return float(total) >= count + asked

    until(have_come)


def test_a_stop_answers_waiting_receives(start: Callable[..., Process]) -> None:
    process = start("--db", "shop.db")
    sqs = client(process.url)
    queue = sqs.create_queue(QueueName="q")["QueueUrl"]

    async def main() -> dict[str, Any]:
        waiting = asyncio.create_task(asyncio.to_thread(sqs.receive_message, QueueUrl=queue, WaitTimeSeconds=20))
        await asyncio.to_thread(wait_for_requests, process.url, 2)
        process.process.send_signal(signal.SIGTERM)
        return await waiting

    answer = asyncio.run(main())
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert "Messages" not in answer
    assert process.stop()[0] == 0


@pytest.mark.thorough
def test_a_stop_waits_for_started_requests_until_a_second_signal(start: Callable[..., Process]) -> None:
    Path("inturn.toml").write_text("[server]\ngrace_s = 600\n")
    process = start("--db", "shop.db", "--config", "inturn.toml")
    with socket.create_connection(("127.0.0.1", int(process.url.rpartition(":")[2]))) as slow:
        slow.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\n")
        wait_for_requests(process.url, 0)
        process.process.send_signal(signal.SIGTERM)
        assert process.process.stderr is not None
        assert json.loads(process.process.stderr.readline())["message"] == "stopping"
        with pytest.raises(subprocess.TimeoutExpired):
            process.process.wait(0.3)

        def has_ended() -> bool:
            process.process.send_signal(signal.SIGINT)
            return process.process.poll() is not None

        until(has_ended)
        assert process.process.returncode == 128 + signal.SIGINT


def test_messages_are_not_delivered_to_a_disconnected_client(start: Callable[..., Process]) -> None:
    process = start("--db", "shop.db")
    sqs = client(process.url)
    queue = sqs.create_queue(QueueName="q.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    body = json.dumps({"QueueUrl": queue, "WaitTimeSeconds": 20}).encode()
    with socket.create_connection(("127.0.0.1", int(process.url.rpartition(":")[2]))) as broken:
        broken.sendall(
            b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-amz-json-1.0\r\n"
            b"X-Amz-Target: AmazonSQS.ReceiveMessage\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        wait_for_requests(process.url, 2)
    wait_for_connections(process.url)
    sqs.send_message(QueueUrl=queue, MessageBody="x", MessageGroupId="g", MessageDeduplicationId="1")
    (message,) = sqs.receive_message(QueueUrl=queue, AttributeNames=["ApproximateReceiveCount"])["Messages"]
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    assert process.stop(signal.SIGTERM)[0] == 0


def wait_for_connections(url: str) -> None:
    """Wait until those of the client and of who asks are left."""
    until(lambda: b'inturn_server_open_connections{database="shop.db"} 2.0\n' in got(f"{url}/metrics")[2])


@pytest.mark.thorough
def test_metrics_count_sent_duplicate_received_and_deleted_messages(start: Callable[..., Process]) -> None:
    process = start("--db", "shop.db")
    sqs = client(process.url)
    queue = sqs.create_queue(QueueName="q.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    for dedup_id in "112":
        sqs.send_message(QueueUrl=queue, MessageBody="x", MessageGroupId="g", MessageDeduplicationId=dedup_id)
    (message, _) = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10)["Messages"]
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
    metrics = got(f"{process.url}/metrics")[2].decode().splitlines()
    for line in (
        'inturn_queue_sent_messages_total{database="shop.db",queue="q.fifo"} 2.0',
        'inturn_queue_received_messages_total{database="shop.db",queue="q.fifo"} 2.0',
        'inturn_queue_acknowledged_messages_total{database="shop.db",queue="q.fifo"} 1.0',
        'inturn_queue_duplicate_messages_total{database="shop.db",queue="q.fifo"} 1.0',
    ):
        assert line in metrics, [line for line in metrics if "q.fifo" in line]
    assert any(line.startswith("inturn_server_commit_commands_count") for line in metrics)
    assert process.stop(signal.SIGTERM)[0] == 0


def error_output(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["serve", *arguments])
    assert result.exit_code == 1, result.output
    return " ".join(result.stderr.split())


def test_invalid_options_and_settings_stop_the_start() -> None:
    assert "Add [[keys]] with an id and a secret" in error_output("--db", "a.db", "--host", "0.0.0.0")  # noqa: S104
    assert "port is 70000; expected a port from 0 to 65535" in error_output("--db", "a.db", "--port", "70000")
    assert "--tls-cert is set and --tls-key is not; set both" in error_output("--db", "a.db", "--tls-cert", "c.pem")
    assert "nowhere.toml: No such file" in error_output("--db", "a.db", "--config", "nowhere.toml")
    assert "directory 'no' does not exist" in error_output("--db", "no/a.db")
    Path("inturn.toml").write_text("[server]\nprot = 1")
    assert "inturn.toml: line 2, [server]: unknown setting 'prot'" in error_output(
        "--db", "a.db", "--config", "inturn.toml"
    )
    assert not Path("a.db").exists()


@pytest.mark.parametrize("name", ["httptools", "prometheus_client"])
def test_a_missing_server_extra_is_named_in_the_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [
        module_name
        for module_name in sys.modules
        if module_name.startswith(("inturn.sqs", "inturn.serving.http", "inturn.telemetry.collector", name))
    ]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]
    assert f"inturn serve needs {name}; install it with: pip install 'inturn[server]'" in error_output("--db", "a.db")
