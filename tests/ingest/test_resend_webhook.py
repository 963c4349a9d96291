"""Rejected requests of webhooks are sent again as the first mapping saw them; too many are left to their senders."""

import gzip
import json
from typing import Any

import pytest

from ingest.scripted import Log, Scripted
from inturn.core.errors import InputError, RejectedFull
from inturn.database import Database
from inturn.ingest import Ingest, MessageMapping, SourceControl, Webhook, WebhookApp
from inturn.ingest.webhooks import refusal_response


def hook(mapping: MessageMapping, **more: Any) -> Webhook:
    return Webhook(name="shop", queue="orders", signature="none", mapping=mapping, **more)


def received(db: Database, webhook: Webhook, body: bytes, **headers: str) -> str:
    WebhookApp(db, [webhook])  # makes the queue
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return db.writer.run(webhook.command(names, body, db.writer.clock()))


WRONG = hook(MessageMapping(group="body.user", id="headers.X-Id"))
MENDED = hook(MessageMapping(group="body.order", id="headers.X-Id"))


def test_rejected_requests_are_resent_once_by_id_including_gzip_bodies(db: Database) -> None:
    plain = json.dumps({"order": "o1"}).encode()
    assert received(db, WRONG, plain, X_Id="1") == "rejected"
    assert received(db, WRONG, gzip.compress(plain), X_ID="2", Content_Encoding="gzip") == "rejected"
    assert received(db, WRONG, plain, x_id="2") == "rejected", "its sender sends it again, though it need not"
    control = SourceControl(db, "shop")
    assert control.resend(MENDED.intake) == (2, 1, 0, 0, 0)
    assert [(message.group, message.dedup_id, message.body) for message in db.queue("orders").peek()] == [
        ("o1", "1", {"order": "o1"}),
        ("o1", "2", {"order": "o1"}),
    ]
    assert received(db, MENDED, plain, X_ID="1") == "duplicate"
    assert control.rejected_total() == (0, 0)


def test_a_resent_request_keeps_its_attributes_and_time(db: Database) -> None:
    mapping = MessageMapping(group="body.user")
    github = Webhook(name="shop", queue="orders", signature="github", secrets=["s"], mapping=mapping)
    mended = Webhook(
        name="shop", queue="orders", signature="github", secrets=["s"], mapping=MessageMapping(group="time")
    )
    import hashlib
    import hmac

    signed = "sha256=" + hmac.new(b"s", b"{}", hashlib.sha256).hexdigest()
    headers = {"X_GitHub_Event": "push", "X_GitHub_Delivery": "d", "X_Hub_Signature_256": signed}
    before = db.writer.clock()
    assert received(db, github, b"{}", **headers) == "rejected"
    after = db.writer.clock()
    assert SourceControl(db, "shop").resend(mended.intake).sent == 1
    (message,) = db.queue("orders").peek()
    assert message.attributes == {"x-github-event": "push"}
    assert before <= int(message.group or 0) <= after


def test_mapped_attributes_override_those_of_the_webhook_sender(db: Database) -> None:
    import hashlib
    import hmac

    body = b'{"action": "opened"}'
    signed = "sha256=" + hmac.new(b"s", body, hashlib.sha256).hexdigest()
    paths = {"action": "body.action"}
    for number, more in enumerate([{}, {"x-github-event": "body.action"}]):
        mapping = MessageMapping(group=None, attributes=paths | more)
        github = Webhook(name="shop", queue="orders", signature="github", secrets=["s"], mapping=mapping)
        headers = {"X_GitHub_Event": "push", "X_GitHub_Delivery": str(number), "X_Hub_Signature_256": signed}
        assert received(db, github, body, **headers) == "accepted"
    assert [message.attributes for message in db.queue("orders").peek()] == [
        {"action": "opened", "x-github-event": "push"},
        {"action": "opened", "x-github-event": "opened"},
    ]


def test_a_webhook_and_a_source_with_the_same_name_are_refused(db: Database) -> None:
    source = Scripted(Log(p=[b"{}"]))
    bank = Ingest(source, db.queue("payments"), WRONG.mapping, name="shop")
    assert received(db, WRONG, b"{}", X_Id="1") == "rejected"
    with pytest.raises(InputError, match="webhook"):
        bank.run(until="caught up")
    assert SourceControl(db, "shop").purge() == 1
    bank.run(until="caught up")
    with pytest.raises(InputError, match="'shop'"):
        WebhookApp(db, [WRONG])
    with pytest.raises(InputError, match="'shop'"):  # the source came while the webhook was there
        db.writer.run(WRONG.command({"x-id": "2"}, b"{}", db.writer.clock()))
    assert [record.partition for record in SourceControl(db, "shop").rejected()] == ["p"]


def test_a_resend_mapping_that_reads_an_unstored_secret_header_is_rejected(db: Database) -> None:
    assert received(db, WRONG, b"{}", Authorization="Bearer s3cret", X_Id="1") == "rejected"
    control = SourceControl(db, "shop")
    assert control.resend(hook(MessageMapping(group="headers.authorization")).intake) == (0, 0, 0, 0, 1)
    (rejected,) = control.rejected()
    assert "it was not stored" in rejected.reason
    assert b"s3cret" not in (rejected.exact or b"")
    assert "s3cret" not in rejected.headers


def test_a_webhook_request_beyond_the_rejected_bound_is_refused_to_its_sender(db: Database) -> None:
    bounded = hook(WRONG.mapping, max_rejected=2)
    assert [received(db, bounded, b"{}", X_Id=str(number)) for number in range(2)] == ["rejected", "rejected"]
    with pytest.raises(RejectedFull) as full:
        received(db, bounded, b"{}", X_Id="3")
    assert (refusal_response(full.value).status, refusal_response(full.value).retry_after_s) == (503, 1)
    assert received(db, bounded, b'{"user": "u"}', X_Id="4") == "accepted", "what can be mapped is taken"
    control = SourceControl(db, "shop")
    assert control.purge() == 2
    assert received(db, bounded, b"{}", X_Id="3") == "rejected"
