"""The same name in two regions, or of two accounts, is two queues: the whole endpoint, as boto3 sees it."""

import asyncio
import json
import logging
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import boto3
import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.config import Config as Options
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

import inturn
from inturn.core import limits as core_limits
from inturn.core.errors import InputError
from inturn.database import Database
from inturn.sqs import limits
from inturn.sqs.config import AccessKey, Config, QueueConfig, ServerConfig
from inturn.sqs.run import Endpoint
from inturn.store.sqlite.backup import restore
from waiting import until

T = TypeVar("T")
US, EU = "us-east-1", "eu-west-1"
OURS, THEIRS = "000000000000", "111122223333"
NO_QUEUE = "AWS.SimpleQueueService.NonExistentQueue"
FREE = ServerConfig(port=0)
KEYS = (
    AccessKey(id="ours", secret="s1"),  # noqa: S106 - of these tests
    AccessKey(id="theirs", secret="s2", account=THEIRS),  # noqa: S106
)
SECRETS = {key.id: key.secret for key in KEYS}


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with inturn.open(tmp_path / "q.db", durable=False) as db:
        yield db


@pytest.fixture(params=["without keys", "with keys"])
def config(request: pytest.FixtureRequest) -> Config:
    return Config(server=FREE, keys=KEYS if request.param == "with keys" else ())


def during(db: Database, config: Config, use: Callable[[str], T]) -> T:
    async def main() -> T:
        async with Endpoint(db, config) as endpoint:
            return await asyncio.to_thread(use, endpoint.url)

    return asyncio.run(main())


def client(url: str, region: str = US, key: str = "ours") -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=url,
        region_name=region,
        aws_access_key_id=key,
        aws_secret_access_key=SECRETS[key],
        config=Options(retries={"total_max_attempts": 1}),
    )


def create_queue(sqs: Any, name: str, **attributes: Any) -> str:
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in attributes.items()}
    return str(sqs.create_queue(QueueName=name, Attributes=texts)["QueueUrl"])


def arn(sqs: Any, queue: str) -> str:
    attributes = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]
    return str(attributes["QueueArn"])


def bodies(sqs: Any, queue: str) -> list[str]:
    answer = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10, VisibilityTimeout=0)
    return [message["Body"] for message in answer.get("Messages", [])]


def code(call: Callable[..., Any], **params: Any) -> str:
    try:
        call(**params)
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return ""


def test_the_same_name_in_two_regions_is_two_queues(db: Database, config: Config) -> None:
    def use(url: str) -> None:
        us, eu = client(url), client(url, EU)
        us_queue, eu_queue = create_queue(us, "orders"), create_queue(eu, "orders")
        assert (us_queue, eu_queue) == (f"{url}/{OURS}/orders", f"{url}/queue/{EU}/{OURS}/orders")
        assert (arn(us, us_queue), arn(eu, eu_queue)) == (
            f"arn:aws:sqs:{US}:{OURS}:orders",
            f"arn:aws:sqs:{EU}:{OURS}:orders",
        )
        us.send_message(QueueUrl=us_queue, MessageBody="here")
        eu.send_message(QueueUrl=eu_queue, MessageBody="there")
        assert (bodies(us, us_queue), bodies(eu, eu_queue)) == (["here"], ["there"])
        for sqs, own in ((us, us_queue), (eu, eu_queue)):
            assert sqs.get_queue_url(QueueName="orders")["QueueUrl"] == own
            assert sqs.list_queues()["QueueUrls"] == [own]
            assert bodies(sqs, "orders") == bodies(sqs, own)  # a name alone is one of the caller's region
        eu.delete_queue(QueueUrl=eu_queue)
        assert code(eu.get_queue_url, QueueName="orders") == NO_QUEUE
        assert bodies(us, us_queue) == ["here"]

    during(db, config, use)


def test_a_queue_url_of_another_region_gets_queue_does_not_exist(db: Database, config: Config) -> None:
    def use(url: str) -> None:
        us, eu = client(url), client(url, EU)
        us_queue, eu_queue = create_queue(us, "orders"), create_queue(eu, "orders")
        assert code(eu.send_message, QueueUrl=us_queue, MessageBody="x") == NO_QUEUE
        assert code(us.send_message, QueueUrl=eu_queue, MessageBody="x") == NO_QUEUE
        assert code(us.send_message, QueueUrl=f"arn:aws:sqs:{EU}:{OURS}:orders", MessageBody="x") == NO_QUEUE
        assert code(us.get_queue_url, QueueName=f"arn:aws:sqs:{EU}:{OURS}:orders") == NO_QUEUE
        assert code(us.create_queue, QueueName=f"arn:aws:sqs:{EU}:{OURS}:new") == "InvalidParameterValue"
        assert bodies(us, us_queue) == bodies(eu, eu_queue) == []

    during(db, config, use)


def test_list_queues_pages_by_region_and_account(db: Database) -> None:
    def use(url: str) -> None:
        clients = [client(url), client(url, EU), client(url, key="theirs")]
        for sqs in clients:
            for number in range(3):
                create_queue(sqs, f"q{number}")
        for sqs, own in zip(clients, (f"{url}/{OURS}", f"{url}/queue/{EU}/{OURS}", f"{url}/{THEIRS}"), strict=True):
            page = sqs.list_queues(MaxResults=2)
            assert page["QueueUrls"] == [f"{own}/q0", f"{own}/q1"]
            assert sqs.list_queues(MaxResults=2, NextToken=page["NextToken"])["QueueUrls"] == [f"{own}/q2"]
            assert sqs.list_queues(QueueNamePrefix="q1")["QueueUrls"] == [f"{own}/q1"]
            assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix="arn:")

    during(db, Config(server=FREE, keys=KEYS), use)


def test_a_key_reaches_only_queues_of_its_account(db: Database) -> None:
    def use(url: str) -> None:
        ours, theirs = client(url), client(url, key="theirs")
        one, two = create_queue(ours, "orders"), create_queue(theirs, "orders")
        assert (one, two) == (f"{url}/{OURS}/orders", f"{url}/{THEIRS}/orders")
        assert arn(theirs, two) == f"arn:aws:sqs:{US}:{THEIRS}:orders"
        theirs.send_message(QueueUrl=two, MessageBody="x")
        assert bodies(ours, one) == []
        for sqs, other, account in ((ours, two, THEIRS), (theirs, one, OURS)):
            assert code(sqs.send_message, QueueUrl=other, MessageBody="x") == "AccessDenied"
            assert code(sqs.delete_queue, QueueUrl=other) == "AccessDenied"
            assert code(sqs.get_queue_url, QueueName="orders", QueueOwnerAWSAccountId=account) == "AccessDenied"
            assert code(sqs.list_message_move_tasks, SourceArn=f"arn:aws:sqs:{US}:{account}:orders") == "AccessDenied"
        assert ours.get_queue_url(QueueName="orders", QueueOwnerAWSAccountId=OURS)["QueueUrl"] == one
        assert theirs.get_queue_url(QueueName="orders", QueueOwnerAWSAccountId=THEIRS)["QueueUrl"] == two
        with pytest.raises(ClientError) as caught:
            theirs.delete_queue(QueueUrl=one)
        who = f"arn:aws:iam::{THEIRS}:user/theirs"
        assert caught.value.response["Error"]["Message"] == (
            f"User: {who} is not authorized to perform: sqs:deletequeue on resource: arn:aws:sqs:{US}:{OURS}:orders"
            " because only the queue's owner may do that"
        )

    during(db, Config(server=FREE, keys=KEYS), use)


def test_queue_patterns_of_a_key_match_names_in_any_region(db: Database) -> None:
    keys = (AccessKey(id="ours", secret="s1", queues=("orders-*",)),)  # noqa: S106

    def use(url: str) -> None:
        for region in (US, EU):
            sqs = client(url, region)
            queue = create_queue(sqs, "orders-1")
            assert code(sqs.send_message, QueueUrl=queue, MessageBody="x") == ""
            assert code(sqs.create_queue, QueueName="other") == "AccessDenied"

    during(db, Config(server=FREE, keys=keys), use)


def test_without_keys_a_queue_of_another_account_is_found_by_owner_id(db: Database) -> None:
    def use(url: str) -> None:
        sqs = client(url)
        queue_url = sqs.get_queue_url(QueueName="theirs", QueueOwnerAWSAccountId=THEIRS)["QueueUrl"]
        assert queue_url == f"{url}/{THEIRS}/theirs"
        sqs.send_message(QueueUrl=queue_url, MessageBody="x")
        assert arn(sqs, queue_url) == f"arn:aws:sqs:{US}:{THEIRS}:theirs"
        assert code(sqs.get_queue_url, QueueName="theirs") == NO_QUEUE
        assert client(url, EU).list_queues()["QueueUrls"] == [f"{url}/queue/{EU}/{OURS}/far"]

    queues = (QueueConfig(name="theirs", account=THEIRS), QueueConfig(name="far", region=EU))
    during(db, Config(server=FREE, queues=queues), use)
    assert db.queues() == [f"arn:aws:sqs:{EU}:{OURS}:far", f"arn:aws:sqs:{US}:{THEIRS}:theirs"]
    assert db.queue(f"arn:aws:sqs:{US}:{THEIRS}:theirs").receive()[0].body == "x"


def test_queues_made_in_python_belong_to_the_servers_region_and_account(db: Database) -> None:
    db.queue("orders").send("x")
    server = ServerConfig(port=0, region=EU, account=THEIRS)

    def use(url: str) -> None:
        eu = client(url, EU)
        assert eu.list_queues()["QueueUrls"] == [f"{url}/{THEIRS}/orders"]
        assert arn(eu, f"{url}/{THEIRS}/orders") == f"arn:aws:sqs:{EU}:{THEIRS}:orders"
        assert "QueueUrls" not in client(url, US).list_queues()

    during(db, Config(server=server), use)


# --- dead letters and move tasks ---


def test_a_dead_letter_queue_in_another_region_is_refused(db: Database, config: Config) -> None:
    def use(url: str) -> None:
        us, eu = client(url), client(url, EU)
        create_queue(us, "dead")
        for wrong in (f"arn:aws:sqs:{US}:{OURS}:dead", f"arn:aws:sqs:{EU}:{OURS}:dead"):
            policy = {"deadLetterTargetArn": wrong, "maxReceiveCount": 1}
            assert code(create_queue, sqs=eu, name="orders", RedrivePolicy=policy) == "InvalidParameterValue"
        dead = create_queue(eu, "dead")
        policy = {"deadLetterTargetArn": arn(eu, dead), "maxReceiveCount": 1}
        orders = create_queue(eu, "orders", RedrivePolicy=policy)
        attributes = eu.get_queue_attributes(QueueUrl=orders, AttributeNames=["RedrivePolicy"])["Attributes"]
        assert json.loads(attributes["RedrivePolicy"]) == policy
        assert eu.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [orders]
        sent = eu.send_message(QueueUrl=orders, MessageBody="x")["MessageId"]
        assert bodies(eu, orders) == ["x"]
        assert bodies(eu, orders) == []
        (message,) = eu.receive_message(QueueUrl=dead, MessageSystemAttributeNames=["All"], VisibilityTimeout=0)[
            "Messages"
        ]
        assert message["MessageId"] == sent
        assert message["Attributes"]["DeadLetterQueueSourceArn"] == arn(eu, orders)
        assert code(us.start_message_move_task, SourceArn=arn(eu, dead)) == "ResourceNotFoundException"
        eu.start_message_move_task(SourceArn=arn(eu, dead))
        until(lambda: eu.list_message_move_tasks(SourceArn=arn(eu, dead))["Results"][0]["Status"] == "COMPLETED")
        assert bodies(eu, orders) == ["x"]

    during(db, config, use)


def test_a_dead_letter_queue_of_another_account_is_refused(db: Database) -> None:
    def use(url: str) -> None:
        policy = {"deadLetterTargetArn": arn(client(url), create_queue(client(url), "dead")), "maxReceiveCount": 1}
        theirs = client(url, key="theirs")
        create_queue(theirs, "dead")
        with pytest.raises(ClientError, match="Dead letter target owner should be same as the source"):
            create_queue(theirs, "orders", RedrivePolicy=policy)

    during(db, Config(server=FREE, keys=KEYS), use)


# --- what says the region ---


def got(url: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 - of this test
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def presigned(url: str, region: str) -> str:
    request = AWSRequest("GET", url)
    SigV4QueryAuth(Credentials("ours", "s1"), "sqs", region, 60).add_auth(request)
    return str(request.url)


def test_a_presigned_url_reaches_only_the_region_it_is_signed_for(db: Database, config: Config) -> None:
    def use(url: str) -> None:
        queue = create_queue(client(url, EU), "orders")
        send = "Action=SendMessage&Version=2012-11-05&MessageBody=x"
        assert got(presigned(f"{queue}?{send}", EU))[0] == 200
        status, text = got(presigned(f"{queue}?{send}", US))
        assert (status, NO_QUEUE.encode() in text) == (400, True)
        assert bodies(client(url, EU), queue) == ["x"]

    during(db, config, use)


def test_an_unsigned_request_takes_the_region_of_its_url(db: Database) -> None:
    def use(url: str) -> None:
        us_queue, eu_queue = create_queue(client(url), "orders"), create_queue(client(url, EU), "orders")
        for queue in (us_queue, eu_queue):
            body = urllib.parse.quote(queue, safe="")
            assert got(f"{queue}?Action=SendMessage&Version=2012-11-05&MessageBody={body}")[0] == 200
        assert bodies(client(url), us_queue) == [us_queue]
        assert bodies(client(url, EU), eu_queue) == [eu_queue]
        status, text = got(f"{url}/?Action=ListQueues&Version=2012-11-05")
        assert (status, eu_queue.encode() in text, us_queue.encode() in text) == (200, False, True)

    during(db, Config(server=FREE), use)


def test_an_invalid_region_gets_403(db: Database, config: Config) -> None:
    def use(url: str) -> None:
        for none in ("US", "a:b"):
            status, text = got(presigned(f"{url}/?Action=ListQueues&Version=2012-11-05", none))
            assert (status, b"Credential should be scoped to a valid region" in text) == (403, True)

    during(db, config, use)


def test_check_region_refuses_other_regions(db: Database, config: Config) -> None:
    server = ServerConfig(port=0, check_region=True)

    def use(url: str) -> None:
        assert code(client(url).list_queues) == ""
        assert code(client(url, EU).list_queues) == "SignatureDoesNotMatch"

    during(db, Config(server=server, keys=config.keys), use)


def test_joined_regions_share_their_queues(db: Database, config: Config, caplog: pytest.LogCaptureFixture) -> None:
    during(db, config, lambda url: create_queue(client(url, EU), "lost"))
    joined = Config(server=ServerConfig(port=0, regions="joined"), keys=config.keys)

    def use(url: str) -> None:
        us, eu = client(url), client(url, EU)
        queue = create_queue(us, "orders")
        assert create_queue(eu, "orders") == queue == f"{url}/{OURS}/orders"
        eu.send_message(QueueUrl=queue, MessageBody="x")
        assert bodies(us, f"{url}/queue/{EU}/{OURS}/orders") == ["x"]
        assert arn(eu, queue) == f"arn:aws:sqs:{US}:{OURS}:orders"
        assert us.list_queues()["QueueUrls"] == eu.list_queues()["QueueUrls"] == [queue]
        policy = {"deadLetterTargetArn": arn(eu, queue), "maxReceiveCount": 1}
        assert code(create_queue, sqs=eu, name="more", RedrivePolicy=policy) == ""
        theirs = {"deadLetterTargetArn": f"arn:aws:sqs:{EU}:{OURS}:lost", "maxReceiveCount": 1}
        assert code(create_queue, sqs=eu, name="other", RedrivePolicy=theirs) == "InvalidParameterValue"

    during(db, joined, use)
    (record,) = [record for record in caplog.records if "other than the server's cannot be reached" in record.message]
    assert (record.levelno, record.queues) == (logging.WARNING, 1)


# --- whoever runs it ---


def test_the_log_names_the_region_where_a_missing_queue_exists(
    db: Database, config: Config, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core_limits, "LOG_WINDOW_S", 0.0)

    def use(url: str) -> None:
        queue = create_queue(client(url, EU), "orders")
        for call, params in (
            (client(url).get_queue_url, {"QueueName": "orders"}),
            (client(url).send_message, {"QueueUrl": queue, "MessageBody": "x"}),
            (client(url).get_queue_url, {"QueueName": "nowhere"}),
        ):
            with pytest.raises(ClientError) as caught:
                call(**params)
            assert caught.value.response["Error"]["Message"] == "The specified queue does not exist."

    during(db, config, use)
    messages = [record.message for record in caplog.records if "was requested in" in record.message]
    where = f"requested in region {US} of account {OURS}, but exists in region {EU} of account {OURS}"
    assert messages == [f"queue 'orders' was {where}"] * 2


def test_repeated_requests_for_missing_queues_are_logged_once_per_window(
    db: Database, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core_limits, "LOG_WINDOW_S", 3600.0)

    def use(url: str) -> None:
        create_queue(client(url, EU), "orders")
        for _ in range(5):
            assert code(client(url).get_queue_url, QueueName="orders") == NO_QUEUE

    during(db, Config(server=FREE), use)
    first, last = [record for record in caplog.records if "was requested in" in record.message]
    assert not hasattr(first, "not_shown")
    assert last.not_shown == 3, "the last of them, told at the end"


def test_metrics_label_queues_of_another_region_by_arn(db: Database) -> None:
    def use(url: str) -> bytes:
        for region in (US, EU):
            sqs = client(url, region)
            sqs.send_message(QueueUrl=create_queue(sqs, "orders"), MessageBody="x")
        return got(f"{url}/metrics")[1]

    page = during(db, Config(server=FREE), use)
    for label in ("orders", f"arn:aws:sqs:{EU}:{OURS}:orders"):
        assert f'inturn_queue_messages{{database="{db.name}",queue="{label}"}} 1.0\n'.encode() in page
        assert f'inturn_queue_sent_messages_total{{database="{db.name}",queue="{label}"}} 1.0\n'.encode() in page


def test_a_server_of_another_region_has_the_queues_created_for_that_region(db: Database) -> None:
    def first(url: str) -> None:
        eu = client(url, EU)
        eu.send_message(QueueUrl=create_queue(eu, "orders"), MessageBody="x")

    def then(url: str) -> None:
        eu = client(url, EU)
        assert eu.list_queues()["QueueUrls"] == [f"{url}/{OURS}/orders"]
        assert bodies(eu, f"{url}/{OURS}/orders") == ["x"]
        assert create_queue(eu, "orders") == f"{url}/{OURS}/orders"
        assert create_queue(eu, "more") == f"{url}/{OURS}/more"

    during(db, Config(server=FREE), first)
    moved = Config(server=ServerConfig(port=0, region=EU))
    during(db, moved, then)
    assert db.queues() == [f"arn:aws:sqs:{EU}:{OURS}:orders", "more"]
    during(db, Config(server=FREE), lambda url: create_queue(client(url), "orders"))
    with pytest.raises(InputError, match="two queues of the database have the same name: 'orders'"):
        during(db, moved, then)


def test_the_cache_of_callers_is_bounded(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CALLERS", 3)

    async def main() -> int:
        async with Endpoint(db, Config(server=FREE)) as endpoint:
            for number in range(10):
                await asyncio.to_thread(client(endpoint.url, f"region-{number}").list_queues)
            return len(endpoint._app._context._known)

    assert asyncio.run(main()) <= 3


def test_the_cache_of_queue_urls_is_bounded(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "URLS", 3)

    async def main() -> dict[Any, str]:
        async with Endpoint(db, Config(server=FREE)) as endpoint:
            sqs = client(endpoint.url)
            await asyncio.to_thread(create_queue, sqs, "orders")
            for number in range(10):
                queue_url = f"http://{number}/{OURS}/orders"
                assert await asyncio.to_thread(code, sqs.send_message, QueueUrl=queue_url, MessageBody="x") == ""
            queue_url = f"http://{'x' * limits.URL_LENGTH}/{OURS}/orders"
            assert await asyncio.to_thread(code, sqs.send_message, QueueUrl=queue_url, MessageBody="x") == ""
            return endpoint._app._context._named

    known = asyncio.run(main())
    assert 0 < len(known) <= 3
    assert all(len(url) <= limits.URL_LENGTH for _, url in known)


# --- ids ---


def ids(db: Database) -> tuple[list[str], list[str]]:
    """The ids of the same three sends in an endpoint over a database, and the handles of their first receives."""

    def use(url: str) -> tuple[list[str], list[str]]:
        sqs = client(url)
        queue = create_queue(sqs, "orders")
        sent = [sqs.send_message(QueueUrl=queue, MessageBody="x")["MessageId"] for _ in range(3)]
        messages = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10)["Messages"]
        assert {message["MessageId"] for message in messages} == {*sent}
        return sent, [message["ReceiptHandle"] for message in messages]

    return during(db, Config(server=FREE), use)


def targets(request: pytest.FixtureRequest, tmp_path: Path) -> list[Any]:
    if request.param == "file":
        return [tmp_path / "one.db", tmp_path / "two.db"]
    return [request.getfixturevalue("postgres_url"), tmp_path / "two.db"]


@pytest.fixture(params=["file", "postgres"])
def two(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Database, Database]]:
    one, other = targets(request, tmp_path)
    with inturn.open(one, durable=False) as first, inturn.open(other, durable=False) as second:
        yield first, second


def test_two_databases_have_no_message_id_in_common(two: tuple[Database, Database]) -> None:
    (first, _), (second, _) = map(ids, two)
    assert {*first}.isdisjoint(second)


def test_a_receipt_handle_of_another_database_is_refused(two: tuple[Database, Database]) -> None:
    (_, first), (_, second) = map(ids, two)
    assert len(first) == len(second) == 3

    def use(url: str) -> None:
        sqs = client(url)
        queue = sqs.get_queue_url(QueueName="orders")["QueueUrl"]
        for handle in first:
            parameters = {"QueueUrl": queue, "ReceiptHandle": handle}
            assert code(sqs.delete_message, **parameters) == "ReceiptHandleIsInvalid"
            assert code(sqs.change_message_visibility, **parameters, VisibilityTimeout=0) == "ReceiptHandleIsInvalid"
        for handle in second:
            sqs.delete_message(QueueUrl=queue, ReceiptHandle=handle)

    during(two[1], Config(server=FREE), use)
    assert two[1].queue("orders").depth().messages == 0


def received(db: Database) -> dict[str, str]:
    """The ids and bodies of what is in the queue."""

    def use(url: str) -> dict[str, str]:
        sqs = client(url)
        answer = sqs.receive_message(QueueUrl=f"{url}/{OURS}/orders", MaxNumberOfMessages=10, VisibilityTimeout=0)
        return {message["MessageId"]: message["Body"] for message in answer.get("Messages", [])}

    return during(db, Config(server=FREE), use)


def test_message_ids_and_handles_survive_reopening_and_restoring(tmp_path: Path) -> None:
    path = tmp_path / "q.db"
    with inturn.open(path) as db:
        for number in range(5):
            db.queue("orders").send(str(number))
        before = received(db)
        db.backup(tmp_path / "copy.db")
    assert len(before) == 5
    with inturn.open(path) as db:
        assert received(db) == before
    with suppress(FileNotFoundError):
        path.unlink()
    restore(str(tmp_path / "copy.db"), str(path))
    with inturn.open(path) as db:
        assert received(db) == before
