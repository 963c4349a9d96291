"""What servers of one PostgreSQL have in common: keys, settings, receives that are tried again, move tasks."""

import asyncio
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from typing import Any, TypeVar

import boto3
import pytest
from botocore.config import Config as Options
from botocore.exceptions import ClientError
from typer.testing import CliRunner

import inturn
from inturn.cli import app
from inturn.core.address import shown
from inturn.core.errors import InputError
from inturn.database import Database
from inturn.sqs import limits
from inturn.sqs.config import AccessKey, Config, ServerConfig, load
from inturn.sqs.run import Endpoint
from inturn.sqs.saved_keys import encode_key, fact_name, keys_in, remove_key, save_key
from inturn.store import limits as store_limits
from inturn.store.commands import StoreCall
from inturn.store.postgres.connection import plainly
from waiting import DEADLINE_S, until

T = TypeVar("T")
PORT = ServerConfig(port=0)
SHOP = AccessKey(id="shop", secret="s1")  # noqa: S106 - of these tests


@pytest.fixture
def databases(postgres_url: str) -> Iterator[list[Database]]:
    """One database, opened by as many as are servers."""
    with ExitStack() as stack:
        yield [stack.enter_context(inturn.open(postgres_url, durable=False)) for _ in range(2)]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SHARED_S", 0.05)


def during(databases: list[Database], configs: list[Config], use: Callable[..., T]) -> T:
    """What a client has from endpoints, which run meanwhile, one over each database."""

    async def main() -> T:
        async with AsyncExitStack() as stack:
            endpoints = [
                await stack.enter_async_context(Endpoint(db, config))
                for db, config in zip(databases, configs, strict=True)
            ]
            return await asyncio.to_thread(use, *endpoints)

    return asyncio.run(main())


def client(
    endpoint: Endpoint,
    key: str = "shop",
    secret: str = "s1",  # noqa: S107
    region: str = "us-east-1",
) -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=f"http://127.0.0.1:{endpoint.port}",
        region_name=region,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        config=Options(retries={"total_max_attempts": 1}),
    )


def code(call: Callable[..., Any], **params: Any) -> str:
    """What is answered: the code of an error, or "" for none."""
    try:
        call(**params)
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return ""


# --- keys and settings ---


def test_a_saved_key_applies_at_every_server(databases: list[Database]) -> None:
    def use(_one: Endpoint, two: Endpoint) -> None:
        assert code(client(two).list_queues) == ""
        assert code(client(two, secret="s2").list_queues) == "SignatureDoesNotMatch"  # noqa: S106
        save_key(databases[0], AccessKey(id="mailer", secret="s3", actions=("Send*",)))  # noqa: S106
        until(lambda: code(client(two, "mailer", "s3").list_queues) == "AccessDenied")
        assert remove_key(databases[0], "shop")
        until(lambda: code(client(two).list_queues) == "InvalidClientTokenId")
        assert not remove_key(databases[0], "shop")
        assert remove_key(databases[0], "mailer")
        until(lambda: code(client(two, "mailer", "s3").list_queues) == "InvalidClientTokenId")

    during(databases, [Config(server=PORT, keys=(SHOP,)), Config(server=PORT)], use)


def test_an_invalid_saved_key_is_logged_and_other_keys_still_work(databases: list[Database]) -> None:
    def keep(store: Any, _now_ms: int) -> None:
        store.servers.save_value("key/odd", '{"secret": 7}')

    def use(endpoint: Endpoint) -> None:
        databases[1].writer.run(StoreCall("", keep))
        time.sleep(0.2)  # for some looks
        assert code(client(endpoint).list_queues) == ""
        assert remove_key(databases[1], "odd")
        save_key(databases[1], AccessKey(id="new", secret="s4"))  # noqa: S106 - of this test
        until(lambda: code(client(endpoint, "new", "s4").list_queues) == "")
        databases[1].writer.run(StoreCall("", keep))

    during(databases[:1], [Config(server=PORT, keys=(SHOP,))], use)
    with pytest.raises(InputError, match="'key/odd' in table inturn_server_value is not a valid access key"):
        during(databases[:1], [Config(server=PORT)], lambda _: None)


def test_the_first_saved_key_ends_open_access(databases: list[Database]) -> None:
    def use(one: Endpoint, _two: Endpoint) -> None:
        assert code(client(one, "any", "any").list_queues) == ""
        save_key(databases[1], SHOP)
        until(lambda: code(client(one, "any", "any").list_queues) == "InvalidClientTokenId")
        assert code(client(one).list_queues) == ""

    during(databases, [Config(server=PORT)] * 2, use)


def test_keys_in_the_database_permit_any_listen_address(databases: list[Database]) -> None:
    everywhere = Config(server=ServerConfig(host="0.0.0.0", port=0))  # noqa: S104
    with pytest.raises(InputError, match="no access keys"):
        during(databases[:1], [everywhere], lambda _: None)
    save_key(databases[0], SHOP)
    during(databases[:1], [everywhere], lambda endpoint: client(endpoint).list_queues())


def test_servers_share_region_and_account(
    databases: list[Database], tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server_config = ServerConfig(port=0, region="eu-west-1", account="123456789012")
    databases[0].queue("q")

    def arn(endpoint: Endpoint, region: str = "eu-west-1") -> str:
        sqs = client(endpoint, region=region)
        queue = sqs.get_queue_url(QueueName="q")["QueueUrl"]
        return str(sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"])

    assert during(databases[:1], [Config(server=server_config)], arn) == "arn:aws:sqs:eu-west-1:123456789012:q"
    assert during(databases[1:], [Config(server=PORT)], arn) == "arn:aws:sqs:eu-west-1:123456789012:q"
    assert "was" not in caplog.text
    path = tmp_path / "inturn.toml"
    path.write_text('[server]\nport = 0\nregion = "us-east-1"\n')  # the usual one, but it says so
    other_region = partial(arn, region="us-east-1")
    assert during(databases[1:], [load(path)], other_region) == "arn:aws:sqs:us-east-1:123456789012:q"
    assert 'server/region had the value "eu-west-1", not "us-east-1", in the database; it is replaced' in caplog.text
    assert during(databases[:1], [Config(server=PORT)], other_region) == "arn:aws:sqs:us-east-1:123456789012:q"


def test_servers_share_queues_of_other_regions_and_accounts(databases: list[Database]) -> None:
    theirs = AccessKey(id="theirs", secret="s2", account="111122223333")  # noqa: S106

    def use(one: Endpoint, two: Endpoint) -> None:
        for key, region in (("shop", "us-east-1"), ("shop", "eu-west-1"), ("theirs", "eu-west-1")):
            secret = "s1" if key == "shop" else "s2"
            first, second = client(one, key, secret, region), client(two, key, secret, region)
            queue = first.create_queue(QueueName="orders")["QueueUrl"].removeprefix(one.url)
            sent = first.send_message(QueueUrl=one.url + queue, MessageBody=queue)["MessageId"]
            assert second.get_queue_url(QueueName="orders")["QueueUrl"] == two.url + queue
            (message,) = messages(second, two.url + queue)
            assert (message["MessageId"], message["Body"]) == (sent, queue)
            assert messages(first, one.url + queue) == []
            first.delete_message(QueueUrl=one.url + queue, ReceiptHandle=message["ReceiptHandle"])
        assert code(client(two).get_queue_url, QueueName="orders", QueueOwnerAWSAccountId="1" * 12) == "AccessDenied"

    during(databases, [Config(server=PORT, keys=(SHOP, theirs)), Config(server=PORT)], use)
    assert databases[0].queues() == [
        "arn:aws:sqs:eu-west-1:000000000000:orders",
        "arn:aws:sqs:eu-west-1:111122223333:orders",
        "orders",
    ]


# --- what one server begins and another goes on with ---


def messages(client: Any, queue: str, **more: Any) -> list[dict[str, Any]]:
    return list(client.receive_message(QueueUrl=queue, MaxNumberOfMessages=10, **more).get("Messages", []))


def test_a_receive_attempt_repeated_at_another_server_gets_the_same_handles(databases: list[Database]) -> None:
    def use(one: Endpoint, two: Endpoint) -> None:
        first, second = client(one), client(two)
        queue = first.create_queue(QueueName="q.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
        for body in ("a", "b"):
            parameters = {"MessageBody": body, "MessageGroupId": body, "MessageDeduplicationId": body}
            first.send_message(QueueUrl=queue, **parameters)
        received = messages(first, queue, ReceiveRequestAttemptId="once")
        repeated = messages(second, queue, ReceiveRequestAttemptId="once")
        assert [message["ReceiptHandle"] for message in repeated] == [message["ReceiptHandle"] for message in received]
        assert len(received) == 2
        assert messages(second, queue, ReceiveRequestAttemptId="once") == repeated
        second.delete_message(QueueUrl=queue, ReceiptHandle=received[0]["ReceiptHandle"])
        assert messages(first, queue, ReceiveRequestAttemptId="once") == []

    during(databases, [Config(server=PORT)] * 2, use)


def test_a_request_replayed_at_another_server_is_refused(databases: list[Database]) -> None:
    strict = Config(server=ServerConfig(port=0, replays="refuse"), keys=(SHOP,))

    def use(one: Endpoint, two: Endpoint) -> list[tuple[int, bytes]]:
        signed: list[tuple[Any, bytes]] = []
        asking = client(one)
        asking.meta.events.register("before-send", lambda request, **_: signed.append((request.headers, request.body)))
        asking.create_queue(QueueName="q")
        ((headers, body),) = signed
        answers = []
        for endpoint in (two, one):
            sent = urllib.request.Request(f"http://127.0.0.1:{endpoint.port}/", body, method="POST")
            for name, value in headers.items():
                sent.add_header(name, value.decode() if isinstance(value, bytes) else value)
            sent.add_header("Host", f"127.0.0.1:{one.port}")
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(sent, timeout=DEADLINE_S)  # noqa: S310 - of this test
            answers.append((refused.value.code, refused.value.read()))
        assert code(client(two).list_queues) == ""
        return answers

    for status, text in during(databases, [strict] * 2, use):
        assert status == 403
        assert b"Signature already used" in text


def test_a_move_task_resumes_at_another_server(databases: list[Database], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOVER_S", 0.5)
    monkeypatch.setattr(limits, "MOVES_AT_ONCE", 1)

    def use(one: Endpoint, two: Endpoint) -> None:
        sqs = client(one)
        dead = sqs.create_queue(QueueName="dead")["QueueUrl"]
        policy = '{"deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:dead", "maxReceiveCount": "1"}'
        sqs.create_queue(QueueName="q", Attributes={"RedrivePolicy": policy})
        to = sqs.create_queue(QueueName="to")["QueueUrl"]
        for number in range(20):
            sqs.send_message(QueueUrl=dead, MessageBody=str(number))
        arns = {
            name: f"arn:aws:sqs:us-east-1:000000000000:{queue}"
            for name, queue in (("SourceArn", "dead"), ("DestinationArn", "to"))
        }
        sqs.start_message_move_task(**arns, MaxNumberOfMessagesPerSecond=10)
        moving = one._app._mover._running["dead"]
        for task in (one._polling, moving):  # as if it were dead
            moving.get_loop().call_soon_threadsafe(task.cancel)

        def state() -> dict[str, Any]:
            return dict(client(two).list_message_move_tasks(SourceArn=arns["SourceArn"])["Results"][0])

        until(lambda: state()["Status"] == "COMPLETED")
        assert state()["ApproximateNumberOfMessagesMoved"] == 20
        attributes = client(two).get_queue_attributes(QueueUrl=to, AttributeNames=["ApproximateNumberOfMessages"])
        assert attributes["Attributes"]["ApproximateNumberOfMessages"] == "20"

    during(databases, [Config(server=PORT)] * 2, use)


# --- by hand ---


def keys(db: Database) -> tuple[AccessKey, ...]:
    """The keys that a server without sealing keys finds."""
    return keys_in(db.writer.run(StoreCall("", lambda store, _now_ms: store.servers.values())))


@pytest.mark.parametrize("saved", ['{"secret": "hunter2", "actions": ["Fly"]}', '{"secret": ""}', '{"secret": 5}'])
def test_an_invalid_saved_key_is_named_without_its_secret(saved: str) -> None:
    with pytest.raises(InputError, match="is not a valid access key; remove it with") as refused:
        keys_in({fact_name("shop"): saved})
    assert "hunter2" not in str(refused.value)


def ran(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    return " ".join((done.stdout + done.stderr).split())


def test_keys_are_added_listed_and_removed_with_the_cli(
    postgres_url: str, databases: list[Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "There are no keys" in ran("keys", "list", postgres_url)
    printed = ran("keys", "add", postgres_url, "mailer", "--queues", "mails-*", "--actions", "Send*")
    (key,) = keys(databases[0])
    assert (key.id, key.queues, key.actions) == ("mailer", ("mails-*",), ("Send*",))
    assert key.secret is not None
    assert printed == f"mailer was added. Its secret, which is not shown again: {key.secret}"
    assert len(key.secret) == 40
    listed = ran("keys", "list", postgres_url)
    assert "mailer mails-* Send*" in listed
    assert key.secret not in listed
    ran("keys", "add", postgres_url, "ops", "--admin")
    assert [(key.id, key.admin) for key in keys(databases[0])] == [("mailer", False), ("ops", True)]
    assert '"admin":true' in ran("keys", "list", postgres_url, "--json").replace(" ", "")
    ran("keys", "remove", postgres_url, "ops")
    assert "admin" not in encode_key(keys(databases[0])[0]), "it is left out"
    monkeypatch.setenv("MINE", "s9")
    assert ran("keys", "add", postgres_url, "mailer", "--secret-env", "MINE") == "mailer was changed."
    assert [key.secret for key in keys(databases[0])] == ["s9"]
    assert ran("keys", "add", postgres_url, "mailer", "--account", "111122223333").startswith("mailer was changed.")
    assert [key.account for key in keys(databases[0])] == ["111122223333"]
    assert "111122223333" in ran("keys", "list", postgres_url)
    assert '"account": "111122223333"' in ran("keys", "list", postgres_url, "--json")
    assert "account is '1'; expected 12 digits" in ran("keys", "add", postgres_url, "x", "--account", "1")
    printed = ran("keys", "add", postgres_url, "x", "--secret-env", "NONE")
    assert "--secret-env is 'NONE', an environment variable that is not set or is empty" in " ".join(printed.split())
    assert "unknown action 'Fly'" in ran("keys", "add", postgres_url, "x", "--actions", "Fly")
    assert "letters, digits" in ran("keys", "add", postgres_url, "a b")
    assert "mailer was removed" in ran("keys", "remove", postgres_url, "mailer")
    assert "no key 'mailer'" in ran("keys", "remove", postgres_url, "mailer")


def test_the_keys_command_refuses_a_file_database(tmp_path: Any) -> None:
    inturn.open(tmp_path / "shop.db").close()
    assert "[[keys]] in the configuration" in ran("keys", "add", str(tmp_path / "shop.db"), "shop")
    assert "[[keys]] in the configuration" in ran("keys", "list", str(tmp_path / "shop.db"))


def test_cli_commands_accept_postgresql_queue_addresses(postgres_url: str) -> None:
    address = f"{postgres_url}#orders"
    assert ran("queue", "create", address) == f"{shown(address)} was created."
    ran("send", address, "hello", "--group", "a")
    assert "orders 1" in ran("queue", "list", postgres_url)
    assert "hello" in ran("receive", address)
    assert "names no queue" in ran("send", postgres_url, "hello")


def test_tcp_user_timeout_is_set_unless_the_address_sets_it(postgres_url: str) -> None:
    for address, timeout in (
        (postgres_url, str(store_limits.DEAD_LINE_S * 1000)),
        (f"{postgres_url}&tcp_user_timeout=5", "5"),
    ):
        with plainly(address) as connection:
            assert connection.info.get_parameters()["tcp_user_timeout"] == timeout


def test_an_address_without_a_password_is_shown_unchanged() -> None:
    for address in ("shop.db", "postgresql://[::1]:5432/shop", "postgresql://db:5432,other:5433/shop?user=me"):
        assert shown(address) == address


def test_error_messages_contain_no_password() -> None:
    """Neither of one that is right as an address, nor of one that libpq takes apart wrongly."""
    for sign in ("", "%20", "%", "@", "/", ":", "#", "?", "&"):
        secret = f"xqj{sign}zwk"
        for words in (["queue", "list"], ["keys", "list"], ["serve", "--db"]):
            printed = ran(*words, f"postgresql://me:{secret}@127.0.0.1:1/shop?connect_timeout=1")
            assert "xqj" not in printed, printed
            assert "zwk" not in printed, printed
            assert "me@127.0.0.1:1/shop" in printed
        printed = ran("queue", "list", f"postgresql://127.0.0.1:1/shop?user=me&password=xqj{sign}&connect_timeout=1")
        assert "xqj" not in printed, printed
