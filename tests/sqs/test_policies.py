"""Policies as clients meet them: what is denied is not done, whoever asks, and nobody is locked out for ever."""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config as Options
from botocore.exceptions import ClientError
from served import Served

import inturn
from inturn.core.errors import InputError
from inturn.sqs import policies
from inturn.sqs.config import AccessKey, Config, QueueConfig, ServerConfig
from inturn.sqs.context import Context
from inturn.sqs.run import Endpoint

HOME, OTHER = "000000000000", "111122223333"
ARN = f"arn:aws:sqs:us-east-1:{HOME}:"
KEYS = (
    AccessKey(id="owner", secret="s1"),  # noqa: S106
    AccessKey(id="admin", secret="s2", admin=True),  # noqa: S106
    AccessKey(id="sender", secret="s3", actions=("Send*", "GetQueueUrl")),  # noqa: S106
    AccessKey(id="partner", secret="s4", account=OTHER),  # noqa: S106 - of another account
    AccessKey(id="partner-sender", secret="s5", actions=("Send*",), account=OTHER),  # noqa: S106 - likewise
    AccessKey(id="mender", secret="s6", queues=("none",), actions=(), admin=True),  # noqa: S106
)
SECRETS = {key.id: key.secret for key in KEYS}
DENY_ALL = {"Effect": "Deny", "Principal": "*", "Action": "*", "Resource": "*"}


def client(url: str, key: str = "owner") -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=key,
        aws_secret_access_key=SECRETS[key],
        config=Options(retries={"total_max_attempts": 1}),
    )


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path / "q.db", Config(server=ServerConfig(port=0), keys=KEYS)) as served:
        yield served
        assert served.errors == []


def text_of(*statements: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def allow(*actions: str, **more: Any) -> dict[str, Any]:
    principal = {"AWS": f"arn:aws:iam::{OTHER}:root"}
    return {"Effect": "Allow", "Principal": principal, "Action": list(actions), "Resource": f"{ARN}*", **more}


def refused(call: Callable[..., Any], **parameters: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    error = caught.value.response["Error"]
    return error["Code"], error["Message"]


def create_queue(served: Served, name: str, *statements: dict[str, Any], **attributes: str) -> str:
    if statements:
        attributes["Policy"] = text_of(*statements)
    url: str = client(served.url).create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    return url


def test_a_deny_applies_to_the_queue_owner(served: Served) -> None:
    owner = client(served.url)
    url = create_queue(served, "orders")
    owner.send_message(QueueUrl=url, MessageBody="x")
    owner.set_queue_attributes(QueueUrl=url, Attributes={"Policy": text_of(DENY_ALL)})
    code, text = refused(owner.send_message, QueueUrl=url, MessageBody="y")
    assert code == "AccessDenied"
    assert text == (
        f"User: arn:aws:iam::{HOME}:user/owner is not authorized to perform: sqs:sendmessage "
        f"on resource: {ARN}orders with an explicit deny in a resource-based policy"
    )
    entries = [{"Id": "1", "MessageBody": "y"}]
    assert refused(owner.send_message_batch, QueueUrl=url, Entries=entries)[0] == "AccessDenied"
    assert refused(owner.receive_message, QueueUrl=url)[0] == "AccessDenied"
    assert refused(owner.get_queue_url, QueueName="orders")[0] == "AccessDenied"
    assert refused(owner.create_queue, QueueName="orders")[0] == "AccessDenied"
    assert refused(owner.delete_queue, QueueUrl=url)[0] == "AccessDenied"
    assert owner.list_queues()["QueueUrls"] == [url], "lists have no resource"
    assert served.db.queue("orders").depth().messages == 1


@pytest.mark.parametrize("key", ["admin", "mender"])
def test_a_deny_does_not_lock_out_an_admin_key(served: Served, key: str) -> None:
    url = create_queue(served, "orders", DENY_ALL)
    owner, admin = client(served.url), client(served.url, key)
    for call, parameters in (
        (owner.get_queue_attributes, {"AttributeNames": ["All"]}),
        (owner.set_queue_attributes, {"Attributes": {"Policy": ""}}),
        (owner.remove_permission, {"Label": "x"}),
        (owner.add_permission, {"Label": "x", "AWSAccountIds": [OTHER], "Actions": ["SendMessage"]}),
        (admin.send_message, {"MessageBody": "x"}),
        (admin.purge_queue, {}),
    ):
        assert refused(call, QueueUrl=url, **parameters)[0] == "AccessDenied"
    admin.add_permission(QueueUrl=url, Label="x", AWSAccountIds=[OTHER], Actions=["SendMessage"])
    admin.remove_permission(QueueUrl=url, Label="x")
    assert json.loads(admin.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])["Attributes"]["Policy"])
    admin.set_queue_attributes(QueueUrl=url, Attributes={"Policy": ""})
    assert owner.send_message(QueueUrl=url, MessageBody="x")["MessageId"]


def test_another_account_needs_an_allow_in_the_policy(served: Served) -> None:
    url = create_queue(served, "orders")
    owner, partner, sender = (client(served.url, key) for key in ("owner", "partner", "partner-sender"))
    send = {"QueueUrl": url, "MessageBody": "x"}
    assert refused(partner.send_message, **send) == (
        "AccessDenied",
        (
            f"User: arn:aws:iam::{OTHER}:user/partner is not authorized to perform: sqs:sendmessage on resource: "
            f"{ARN}orders because no resource-based policy allows the sqs:sendmessage action"
        ),
    )
    owner.add_permission(QueueUrl=url, Label="them", AWSAccountIds=[OTHER], Actions=["SendMessage", "GetQueueUrl"])
    partner.send_message(**send)
    partner.send_message_batch(QueueUrl=url, Entries=[{"Id": "1", "MessageBody": "y"}])
    assert partner.get_queue_url(QueueName="orders", QueueOwnerAWSAccountId=HOME)["QueueUrl"] == url
    assert refused(partner.get_queue_url, QueueName="orders")[0] == "AWS.SimpleQueueService.NonExistentQueue"
    assert refused(partner.receive_message, QueueUrl=url)[0] == "AccessDenied"
    owner.add_permission(QueueUrl=url, Label="more", AWSAccountIds=[OTHER], Actions=["*"])
    assert len(partner.receive_message(QueueUrl=url)["Messages"]) == 1
    assert refused(sender.receive_message, QueueUrl=url)[0] == "AccessDenied", "beyond what its own key may"
    for call, parameters in (
        (partner.delete_queue, {}),
        (partner.set_queue_attributes, {"Attributes": {"Policy": ""}}),
        (partner.tag_queue, {"Tags": {"a": "b"}}),
    ):
        code, text = refused(call, QueueUrl=url, **parameters)
        assert (code, text.endswith("because only the queue's owner may do that")) == ("AccessDenied", True)
    owner.remove_permission(QueueUrl=url, Label="them")
    owner.remove_permission(QueueUrl=url, Label="more")
    assert refused(partner.send_message, **send)[0] == "AccessDenied"


def test_a_policy_principal_matches_a_key_by_name(served: Served) -> None:
    allowed = allow("sqs:SendMessage", Principal={"AWS": f"arn:aws:iam::{OTHER}:user/partner"})
    url = create_queue(served, "orders", allowed, DENY_ALL | {"Principal": {"AWS": f"arn:aws:iam::{HOME}:user/sender"}})
    send = {"QueueUrl": url, "MessageBody": "x"}
    client(served.url, "partner").send_message(**send)
    client(served.url).send_message(**send)
    assert refused(client(served.url, "partner-sender").send_message, **send)[0] == "AccessDenied"
    assert refused(client(served.url, "sender").send_message, **send)[0] == "AccessDenied"


def test_an_allow_does_not_extend_the_configured_actions_of_a_key(served: Served) -> None:
    url = create_queue(served, "orders", allow("sqs:*", Principal="*"))
    assert refused(client(served.url, "sender").receive_message, QueueUrl=url)[0] == "AccessDenied"


def test_an_unknown_condition_denies_access(served: Served) -> None:
    unknown = {"StringEquals": {"aws:PrincipalOrgID": "o-1"}}
    granting = create_queue(served, "a", allow("sqs:*", Condition=unknown))
    denying = create_queue(served, "b", allow("sqs:*"), DENY_ALL | {"Condition": unknown})
    partner = client(served.url, "partner")
    assert refused(partner.send_message, QueueUrl=granting, MessageBody="x")[0] == "AccessDenied"
    assert refused(partner.send_message, QueueUrl=denying, MessageBody="x")[0] == "AccessDenied"
    attributes = client(served.url).get_queue_attributes(QueueUrl=granting, AttributeNames=["Policy"])["Attributes"]
    assert json.loads(attributes["Policy"])["Statement"] == [allow("sqs:*", Condition=unknown)], "it is kept"


def test_policy_conditions_match_source_address_and_tls(served: Served) -> None:
    local = {"IpAddress": {"aws:SourceIp": "127.0.0.0/8"}}
    url = create_queue(served, "a", allow("sqs:SendMessage", Condition=local))
    client(served.url, "partner").send_message(QueueUrl=url, MessageBody="x")
    plain = create_queue(served, "b", DENY_ALL | {"Condition": {"Bool": {"aws:SecureTransport": "false"}}})
    assert refused(client(served.url).send_message, QueueUrl=plain, MessageBody="x")[0] == "AccessDenied"
    elsewhere = create_queue(served, "c", DENY_ALL | {"Condition": {"NotIpAddress": {"aws:SourceIp": "127.0.0.1"}}})
    client(served.url).send_message(QueueUrl=elsewhere, MessageBody="x")


@pytest.mark.parametrize(
    ("server", "host", "is_secure"),
    [
        (ServerConfig(), b"queues.example.org", False),
        (ServerConfig(tls_cert="c", tls_key="k"), b"any", True),
        (ServerConfig(base_url="https://queues.example.org"), b"queues.example.org", True),
        (ServerConfig(base_url="https://queues.example.org:8443/sqs"), b"queues.example.org:8443", True),
        (ServerConfig(base_url="https://queues.example.org"), b"10.0.0.1:9324", False),
        (ServerConfig(base_url="http://queues.example.org"), b"queues.example.org", False),
    ],
)
def test_requests_count_as_tls_by_server_settings_and_host(
    tmp_path: Path, server: ServerConfig, host: bytes, is_secure: bool
) -> None:
    with inturn.open(tmp_path / "q.db") as db:
        context = Context(db=db, naming=server)  # type: ignore[arg-type] - nothing is asked for its URL
        assert policies.Policies(context, server, lambda: 0).is_secure({b"host": host}) is is_secure


# --- moves ---


def test_a_move_task_requires_every_permission_that_it_uses(served: Served) -> None:
    owner = client(served.url)
    dead = create_queue(served, "dead")
    redrive = json.dumps({"deadLetterTargetArn": f"{ARN}dead", "maxReceiveCount": 1})
    source = create_queue(served, "source", RedrivePolicy=redrive)
    create_queue(served, "target")
    start = {"SourceArn": f"{ARN}dead"}

    def denying(url: str, *actions: str) -> None:
        policy = text_of(DENY_ALL | {"Action": list(actions)}) if actions else ""
        owner.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})

    for action in ("StartMessageMoveTask", "ReceiveMessage", "DeleteMessage"):
        denying(dead, f"sqs:{action}")
        code, text = refused(owner.start_message_move_task, **start)
        assert (code, f"sqs:{action.lower()} on resource: {ARN}dead " in text) == ("AccessDenied", True)
    denying(dead)
    denying(source, "sqs:SendMessage")
    assert f"sqs:sendmessage on resource: {ARN}source" in refused(owner.start_message_move_task, **start)[1]
    denying(dead, "sqs:CancelMessageMoveTask", "sqs:ListMessageMoveTasks")
    handle = owner.start_message_move_task(**start, DestinationArn=f"{ARN}target")["TaskHandle"]
    assert refused(owner.cancel_message_move_task, TaskHandle=handle)[0] == "AccessDenied"
    assert refused(owner.list_message_move_tasks, **start)[0] == "AccessDenied"


def test_a_deny_on_the_dead_letter_queue_does_not_stop_dead_lettering(served: Served) -> None:
    owner = client(served.url)
    create_queue(served, "dead", DENY_ALL)
    redrive = json.dumps({"deadLetterTargetArn": f"{ARN}dead", "maxReceiveCount": 1})
    url = create_queue(served, "source", RedrivePolicy=redrive, VisibilityTimeout="0")
    owner.send_message(QueueUrl=url, MessageBody="x")
    assert len(owner.receive_message(QueueUrl=url)["Messages"]) == 1
    assert "Messages" not in owner.receive_message(QueueUrl=url)
    assert served.db.queue("dead").depth().messages == 1


# --- several servers ---


@pytest.mark.parametrize("kind", ["file", "postgres"])
def test_a_policy_set_at_another_server_applies_here(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = tmp_path / "q.db" if kind == "file" else request.getfixturevalue("postgres_url")
    config = Config(server=ServerConfig(port=0), keys=KEYS)
    with ExitStack() as stack:
        one, two = (stack.enter_context(Served(path, config)) for _ in range(2))
        url = create_queue(one, "new", DENY_ALL)
        send = {"QueueUrl": url, "MessageBody": "x"}
        other = client(two.url)
        assert refused(other.send_message, **send)[0] == "AccessDenied", "it did not know the queue"
        assert refused(other.purge_queue, QueueUrl=url)[0] == "AccessDenied"
        client(one.url, "admin").set_queue_attributes(QueueUrl=url, Attributes={"Policy": ""})
        other.send_message(**send)


def test_an_idle_server_loads_a_policy_set_at_another_server(tmp_path: Path) -> None:
    config = Config(server=ServerConfig(port=0), keys=KEYS)
    with ExitStack() as stack:
        active, idle = (stack.enter_context(Served(tmp_path / "q.db", config)) for _ in range(2))
        url = create_queue(active, "orders")
        client(idle.url).send_message(QueueUrl=url, MessageBody="x")
        client(active.url).set_queue_attributes(QueueUrl=url, Attributes={"Policy": text_of(DENY_ALL)})
        deadline = time.monotonic() + 60
        while "policy" not in idle.db.store.queues["orders"].settings.extra:
            assert time.monotonic() < deadline, "it is never told"
            time.sleep(0.02)


# --- without keys ---


def test_without_keys_policies_are_stored_and_a_warning_says_they_do_not_apply(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "inturn.server")

    def use(url: str) -> None:
        sqs = client(url)
        for name in ("a", "b"):
            queue = sqs.create_queue(QueueName=name)["QueueUrl"]
            sqs.set_queue_attributes(QueueUrl=queue, Attributes={"Policy": text_of(DENY_ALL)})
            sqs.send_message(QueueUrl=queue, MessageBody="x")
        sqs.add_permission(QueueUrl=queue, Label="x", AWSAccountIds=[OTHER], Actions=["SendMessage"])

    async def main() -> list[str]:
        caplog.clear()
        with inturn.open(tmp_path / "q.db") as db:
            async with Endpoint(db, Config(server=ServerConfig(port=0))) as endpoint:
                await asyncio.to_thread(use, endpoint.url)
        return [record.getMessage() for record in caplog.records]

    for _ in range(2):  # when one is set, and when one is there at the start
        assert asyncio.run(main()) == [
            "queue policies do not apply: without access keys every client counts as the owner"
        ]


def test_a_malformed_policy_of_a_configured_queue_stops_the_start(tmp_path: Path) -> None:
    queue = QueueConfig(name="q", attributes={"Policy": {"Statement": {"Effect": "Denied"}}})

    async def main() -> None:
        with inturn.open(tmp_path / "q.db") as db:
            async with Endpoint(db, Config(server=ServerConfig(port=0), queues=(queue,))):
                pass

    with pytest.raises(InputError, match="Statement 1: Effect is 'Denied'; expected 'Allow' or 'Deny'"):
        asyncio.run(main())
