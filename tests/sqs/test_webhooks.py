"""Webhooks of the endpoint: accepted after the commit and once, refused by their signature, never repeated in vain."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import boto3
import pytest
import webhook_senders as sender
from botocore.exceptions import ClientError
from webhook_senders import encoded, post

import inturn
from inturn.core.errors import InputError
from inturn.core.queue.messages import QueueSettings
from inturn.database import Database
from inturn.ingest import SourceControl
from inturn.ingest.config import MappingTable
from inturn.sqs.config import AccessKey, Config, ServerConfig, check_exposure, load
from inturn.sqs.run import Endpoint
from inturn.sqs.webhook_config import WebhookConfig

T = TypeVar("T")
FREE = ServerConfig(port=0)
HOOKS = (
    WebhookConfig(
        name="shop",
        queue="orders",
        signature="standard",
        secrets=(sender.STANDARD,),
        mapping=MappingTable(group="body.data.order", revision="body.data.revision"),
    ),
    WebhookConfig(
        name="billing",
        queue="billing",
        signature="stripe",
        secrets=("whsec_older", sender.STRIPE),
        mapping=MappingTable(group="body.data.object.id"),
    ),
    WebhookConfig(
        name="ci",
        queue="jobs",
        signature="github",
        secrets=(sender.GITHUB,),
        mapping=MappingTable(
            group="body.workflow_job.id",
            revision="body.workflow_job.status",
            ranks={"queued": 1, "in_progress": 2, "completed": 3},
        ),
    ),
    WebhookConfig(name="open", queue="notes", signature="none"),
)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Database]:
    with inturn.open(tmp_path / "shop.db", durable=False) as db:
        yield db


def during(db: Database, use: Callable[[str], T], *webhooks: WebhookConfig, **more: Any) -> T:
    async def main() -> T:
        async with Endpoint(db, Config(server=FREE, webhooks=webhooks or HOOKS, **more)) as endpoint:
            return await asyncio.to_thread(use, endpoint.url)

    return asyncio.run(main())


def order(number: int, name: str = "ord_7") -> bytes:
    return encoded({"type": "order.paid", "data": {"order": name, "revision": number, "word": "Łódź"}})


def test_a_webhook_is_stored_once_and_its_redelivery_accepted(db: Database) -> None:
    def use(url: str) -> list[str]:
        one, two, now = order(1), order(2), time.time()
        return [
            post(f"{url}/webhooks/shop", body, headers).verdict
            for body, headers in (
                (one, sender.standard("msg_1", one, now)),
                (one, sender.standard("msg_1", one, now - 60)),  # each attempt has a time of its own
                (two, sender.standard("msg_2", two, now)),
                (one, sender.standard("msg_1", one, now)),
            )
        ]

    assert during(db, use) == ["202 accepted", "202 duplicate", "202 accepted", "202 duplicate"]
    messages = db.queue("orders").peek()
    assert [(message.group, message.revision, message.dedup_id) for message in messages] == [
        ("ord_7", 1, "msg_1"),
        ("ord_7", 2, "msg_2"),
    ]
    assert messages[0].body == json.loads(order(1))
    assert db.queue("orders").info().settings.dedup_window_s is None  # retries go on for days


def test_stripe_and_github_webhooks_are_accepted_and_deduplicated(db: Database) -> None:
    event = encoded({"id": "evt_1", "object": "event", "data": {"object": {"id": "sub_7"}}})
    job = encoded({"action": "queued", "workflow_job": {"id": 29679449, "status": "queued"}})

    def use(url: str) -> list[str]:
        answers = [post(f"{url}/webhooks/billing", event, sender.stripe(event)) for _ in range(2)]
        answers += [post(f"{url}/webhooks/ci", job, sender.github("d-1", "workflow_job", job)) for _ in range(2)]
        answers.append(post(f"{url}/webhooks/ci", job, sender.github("d-2", "workflow_job", job)))
        return [answer.verdict for answer in answers]

    assert during(db, use) == ["202 accepted", "202 duplicate", "202 accepted", "202 duplicate", "202 accepted"]
    (message,) = db.queue("billing").peek()
    assert (message.group, message.dedup_id) == ("sub_7", "evt_1")
    message = db.queue("jobs").peek()[0]
    assert (message.group, message.revision, message.dedup_id) == ("29679449", 1, "d-1")
    assert message.attributes == {"x-github-event": "workflow_job"}  # which the body does not say


def test_a_refused_webhook_is_not_stored_and_its_status_says_why(file: Database) -> None:
    body, now = order(1), time.time()
    valid = sender.standard("msg_1", body, now)
    long = b'"' + b"x" * 2**20 + b'"'
    cases: list[tuple[int, str, bytes, dict[str, str]]] = [
        (401, "shop", body.replace(b"paid", b"free"), valid),  # forged
        (401, "shop", body, {**valid, "Webhook-Id": "msg_2"}),
        (401, "shop", body, sender.standard("msg_1", body, now, "whsec_c29tZS1vdGhlci1zZWNyZXQtMDAwMDAw")),
        (401, "shop", body, sender.standard("msg_1", body, now - 400)),  # replayed
        (401, "shop", body, sender.standard("msg_1", body, now + 400)),  # a clock that is wrong
        (400, "shop", body, {}),
        (400, "shop", body, {**valid, "Webhook-Signature": "garbage"}),
        (400, "shop", body, {**valid, "Webhook-Timestamp": "soon"}),
        (400, "billing", body, valid),
        (401, "billing", body, sender.stripe(body, now - 400)),
        (400, "ci", body, {"X-Hub-Signature-256": "sha1=00"}),
        (401, "ci", body, {"X-Hub-Signature-256": "sha256=00"}),
        (404, "nowhere", body, valid),
        (404, "", body, valid),
        (404, "shop/more", body, valid),
        (413, "shop", long, sender.standard("msg_1", long, now)),
        (403, "open", body, {"Origin": "https://example.org"}),
        (403, "open", body, {"Host": "example.org"}),
    ]

    def use(url: str) -> None:
        for status, name, content, headers in cases:
            answer = post(f"{url}/webhooks/{name}", content, headers)
            assert (answer.status, json.loads(answer.body).keys()) == (status, {"error"}), (name, headers, answer)
        for method in ("GET", "PUT"):
            assert post(f"{url}/webhooks/shop", body, valid, method).status == 405
        assert post(f"{url}/webhooks/open?from=here", body, {}).verdict == "202 accepted"
        assert post(f"{url}/webhooks/shop", body, valid).verdict == "202 accepted"  # none of them has used its id up

    during(file, use)
    assert len(file.queue("orders").peek()) == 1
    assert not list(SourceControl(file, "shop").rejected())


def test_a_webhook_over_the_size_limit_gets_413_and_the_next_is_accepted(file: Database) -> None:
    def use(url: str) -> None:
        with suppress(OSError):  # the answer may be lost, since the rest is not read
            assert post(f"{url}/webhooks/shop", b"x" * 10_000_000, {"Webhook-Id": "m"}).status == 413
        body = order(1)
        assert post(f"{url}/webhooks/shop", body, sender.standard("m", body)).status == 202

    during(file, use)


def test_a_signed_webhook_that_cannot_be_mapped_is_stored_as_rejected(db: Database) -> None:
    poison = [
        b"",
        b"no JSON",
        b"[" * 100_000,
        encoded({"data": {}}),
        encoded({"data": {"order": "a", "revision": "x"}}),
    ]

    def use(url: str) -> list[str]:
        more = {"Authorization": "Bearer xqjzwk", "X-Trace": "t-1"}
        hook = f"{url}/webhooks/shop"
        return [post(hook, body, sender.standard(f"m{n}", body) | more).verdict for n, body in enumerate(poison)]

    assert during(db, use) == ["202 rejected"] * len(poison)
    rejected = list(SourceControl(db, "shop").rejected())
    assert [record.body for record in rejected] == poison
    assert [record.reason for record in rejected][3:5] == [
        "the record has no group",
        "the revision is 'x'; expected a whole number of at most 64 bits",
    ]
    headers = json.loads(rejected[0].headers)
    assert (headers["webhook-id"], headers["x-trace"]) == ("m0", "t-1")
    assert "xqjzwk" not in rejected[0].headers
    assert not db.queue("orders").peek()


def test_a_webhook_body_that_is_not_utf8_is_rejected(file: Database) -> None:
    body = b'"\xff\xfe"'
    assert (
        during(file, lambda url: post(f"{url}/webhooks/billing", body, sender.stripe(body))).verdict == "202 rejected"
    )


def test_a_full_or_deleted_queue_gets_503_with_retry_after(file: Database) -> None:
    orders = file.queue("orders", QueueSettings(dedup_window_s=None, max_depth=1))

    def use(url: str) -> None:
        for number, expected in enumerate((202, 503), 1):
            body = order(number)
            answer = post(f"{url}/webhooks/shop", body, sender.standard(f"msg_{number}", body))
            assert answer.status == expected
        assert answer.headers["Retry-After"] == "1"
        (message,) = orders.receive()
        message.ack()
        assert post(f"{url}/webhooks/shop", body, sender.standard("msg_2", body)).verdict == "202 accepted"
        orders.delete()
        answer = post(f"{url}/webhooks/shop", body, sender.standard("msg_3", body))
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        assert b"orders" not in answer.body  # errors of this side are for its log

    during(file, use)


def test_a_deduplication_window_shorter_than_the_webhook_retries_stops_the_start(file: Database) -> None:
    file.queue("orders")
    with pytest.raises(InputError, match="'orders' of webhook 'shop' remembers ids for 300 s"):
        during(file, lambda _url: None)
    file.queue("orders").configure(dedup_window_s=345_600)
    during(file, lambda _url: None)


def test_webhooks_and_the_api_are_served_together(file: Database) -> None:
    keys = (AccessKey(id="all", secret="s1"),)  # noqa: S106 - of a test

    def use(url: str) -> str:
        body = order(1)
        assert post(f"{url}/webhooks/shop", body, sender.standard("m", body)).status == 202
        known = {"endpoint_url": url, "region_name": "us-east-1", "aws_access_key_id": "all"}
        sqs = boto3.client("sqs", aws_secret_access_key="s1", **known)  # noqa: S106
        messages = sqs.receive_message(QueueUrl=sqs.get_queue_url(QueueName="orders")["QueueUrl"])["Messages"]
        with pytest.raises(ClientError):
            boto3.client("sqs", aws_secret_access_key="s2", **known).list_queues()  # noqa: S106
        return str(messages[0]["Body"])

    assert json.loads(during(file, use, *HOOKS[:3], keys=keys)) == json.loads(order(1))


def test_without_webhooks_their_paths_belong_to_the_api(file: Database) -> None:
    async def main() -> int:
        async with Endpoint(file, Config(server=FREE)) as endpoint:
            answer = await asyncio.to_thread(post, f"{endpoint.url}/webhooks/shop", b"Action=ListQueues", {})
            return answer.status

    assert asyncio.run(main()) == 200


# --- the configuration ---

TEXT = """
[[webhooks]]
name = "billing"
queue = "events"
signature = "stripe"
%s

[webhooks.mapping]
group = "body.data.object.id"
"""


def loaded(folder: Path, text: str, environ: dict[str, str] | None = None) -> WebhookConfig:
    (folder / "inturn.toml").write_text(text)
    return load(folder / "inturn.toml", environ or {}).webhooks[0]


def test_webhook_secrets_come_from_the_config_the_environment_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "secrets").write_text("s-one\ns-two\n\n")
    for setting in ('secrets = ["s-one", "s-two"]', 'secrets_env = "BILLING"', 'secrets_file = "secrets"'):
        webhook = loaded(tmp_path, TEXT % setting, {"BILLING": "s-one\ns-two"})
        assert webhook.secrets == webhook.webhook().secrets == ("s-one", "s-two")
        assert "s-one" not in repr(webhook)
        assert "s-one" not in repr(webhook.webhook())
    assert webhook.webhook().mapping.group == "body.data.object.id"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TEXT % "", "has no secret"),
        (TEXT % 'secrets = [""]', "a secret is empty"),
        (
            TEXT % 'secrets = ["a"]\nsecrets_env = "B"',
            "line 6, [[webhooks]] number 1: secrets and secrets_env are set; set only one of secrets",
        ),
        (TEXT % 'secrets_env = "B"', "secrets_env is 'B', an environment variable that is not set or is empty"),
        (TEXT % 'secrets_file = "nowhere"', "No such file"),
        (TEXT % 'secrets_file = "empty"', "is empty"),
        (TEXT % 'secret = "a"', "unknown setting 'secret'; did you mean 'secrets'?"),
        (TEXT % 'secrets = "xqjzwk"', "secrets is of the wrong type; expected a list of strings"),
        (TEXT % 'secrets = ["a"]\ntolerance_s = 0', "tolerance_s is 0; expected a number of seconds above 0"),
        ((TEXT % 'secrets = ["a"]').replace('"stripe"', '"striped"'), "signature is 'striped'; expected"),
        ((TEXT % 'secrets = ["a"]').replace('"stripe"', '"none"'), "has secrets, which"),
        ((TEXT % 'secrets = ["a"]').replace('"stripe"', '"standard"'), "expected Base64"),
        ((TEXT % 'secrets = ["a"]').replace('"billing"', '"a/b"'), "name 'a/b': 1 to 200 letters"),
        (
            (TEXT % 'secrets = ["a"]').replace("group", "grup"),
            "line 9, [[webhooks]] number 1, [webhooks.mapping]: unknown setting 'grup'; did you mean",
        ),
        (
            (TEXT % 'secrets = ["a"]').replace("body.data", "bodi.data"),
            "line 9, [[webhooks]] number 1, [webhooks.mapping]: group is 'bodi",
        ),
        (2 * (TEXT % 'secrets = ["a"]'), "two [[webhooks]] have the name 'billing'; remove one"),
    ],
)
def test_invalid_webhook_settings_are_reported_without_secrets(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(InputError) as caught:
        loaded(tmp_path, text)
    assert words in str(caught.value)
    assert "xqjzwk" not in str(caught.value)


def test_an_unsigned_webhook_requires_a_loopback_address() -> None:
    keys = (AccessKey(id="all", secret="s1"),)  # noqa: S106 - of a test
    for host, webhooks in (("0.0.0.0", HOOKS[:3]), ("127.0.0.1", HOOKS)):  # noqa: S104
        check_exposure(Config(server=ServerConfig(host=host), keys=keys, webhooks=webhooks))
    with pytest.raises(InputError, match="webhook 'open' has no signature"):
        check_exposure(Config(server=ServerConfig(host="0.0.0.0"), keys=keys, webhooks=HOOKS))  # noqa: S104
