"""Webhooks in a web server of one's own: the ASGI application, alone and mounted, down to the pipeline behind it."""

import asyncio
import datetime as dt
import gzip
import hashlib
import hmac
import json
import time
import tracemalloc
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import standardwebhooks
from starlette.applications import Starlette
from starlette.routing import Mount

import inturn
from inturn.core import limits
from inturn.core.errors import InputError
from inturn.database import Database
from inturn.ingest import MessageMapping, SourceControl, Webhook, WebhookApp

SECRET = "whsec_aW50dXJuLXRlc3Qtc2VjcmV0LUEtMDAw"  # noqa: S105 - of a test
HOOK = Webhook(
    name="shop",
    queue="orders",
    signature="standard",
    secrets=[SECRET],
    mapping=MessageMapping(group="body.order", revision="body.revision"),
)

TEXT = MessageMapping(group=None, format="text")


def signed(id_: str, body: bytes) -> list[tuple[bytes, bytes]]:
    signed_at = dt.datetime.fromtimestamp(int(time.time()), dt.UTC)
    signature = standardwebhooks.Webhook(SECRET).sign(id_, signed_at, body.decode())
    sent = {"webhook-id": id_, "webhook-timestamp": str(int(signed_at.timestamp())), "webhook-signature": signature}
    return [(name.encode(), value.encode()) for name, value in sent.items()]


def request(
    app: Any, path: str, body: bytes, headers: Sequence[tuple[bytes, bytes]] = (), method: str = "POST", pieces: int = 2
) -> tuple[int, dict[bytes, bytes], Any]:
    """What an ASGI server gets, which gives the body in pieces."""
    size = len(body) // pieces + 1
    parts = [body[start : start + size] for start in range(0, len(body) + 1, size)]
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    messages[-1]["more_body"] = False
    events: list[Any] = []

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        events.append(message)

    scope = {"type": "http", "method": method, "path": path, "root_path": "", "headers": list(headers)}
    asyncio.run(app(scope, receive, send))
    start, end = events
    return start["status"], dict(start["headers"]), json.loads(end["body"])


def body(revision: int) -> bytes:
    return json.dumps({"order": "ord_7", "revision": revision, "status": str(revision)}).encode()


def test_the_webhook_app_answers_requests_like_the_server_endpoint(db: Database) -> None:
    own = WebhookApp(db, [HOOK])
    for app, path in ((own, "/shop"), (Starlette(routes=[Mount("/hooks", own)]), "/hooks/shop")):
        response = request(app, path, body(1), signed(f"m{path}", body(1)))
        assert response == (
            202,
            {b"content-type": b"application/json", b"content-length": b"21"},
            {"status": "accepted"},
        )
        assert request(app, path, body(1), signed(f"m{path}", body(1)))[2] == {"status": "duplicate"}
        assert request(app, path, body(2), signed("m", body(1)))[0] == 401
        assert request(app, path, body(1))[0] == 400
        assert request(app, path + "s", body(1))[0] == 404
        assert request(app, path, b"", method="GET")[0] == 405
        assert request(app, path, b"x" * (limits.BODY_BYTES + 1), signed("m", b""), pieces=50)[0] == 413
        assert request(app, path, b"no JSON", signed(path, b"no JSON"))[2] == {"status": "rejected"}
    assert len(db.queue("orders").peek()) == 2
    assert [record.body for record in SourceControl(db, "shop").rejected()] == [b"no JSON"] * 2


def test_svix_header_names_give_the_same_deduplication_id(db: Database) -> None:
    app = WebhookApp(db, [HOOK])

    def svix(sent: bytes, id_: str) -> list[tuple[bytes, bytes]]:
        return [(name.replace(b"webhook", b"Svix"), value) for name, value in signed(id_, sent)]

    assert request(app, "/shop", body(1), svix(body(1), "m1"))[2] == {"status": "accepted"}
    assert request(app, "/shop", body(1), svix(body(1), "m1"))[2] == {"status": "duplicate"}
    assert request(app, "/shop", body(1), signed("m1", body(1)))[2] == {"status": "duplicate"}
    for forged in ([*svix(body(1), "m1"), (b"webhook-id", b"m2")], [*signed("m1", body(1))[1:], (b"svix-id", b"m1")]):
        assert request(app, "/shop", body(1), forged)[0] == 400
    assert request(app, "/shop", body(1), [*signed("m1", body(1)), (b"svix-id", b"m2")])[2] == {"status": "duplicate"}
    assert [message.dedup_id for message in db.queue("orders").peek()] == ["m1"]
    assert request(app, "/shop", b"no JSON", svix(b"no JSON", "m3"))[2] == {"status": "rejected"}
    mended = Webhook(name="shop", queue="orders", signature="standard", secrets=[SECRET], mapping=TEXT)
    assert SourceControl(db, "shop").resend(mended.intake).sent == 1
    assert [message.dedup_id for message in db.queue("orders").peek()] == ["m1", "m3"]


def hub_signed(sent: bytes, *more: tuple[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    digest = hmac.new(b"s", sent, hashlib.sha256).hexdigest().encode()
    return [(b"x-hub-signature-256", b"sha256=" + digest), (b"x-github-delivery", digest), *more]


def test_a_gzip_body_is_verified_as_sent_and_then_decompressed(db: Database) -> None:
    mapping = MessageMapping(group="body.order", revision="body.revision")
    app = WebhookApp(db, [Webhook(name="ci", queue="q", signature="github", secrets=["s"], mapping=mapping)])
    gzipped = (b"Content-Encoding", b"gzip")

    def response_of(sent: bytes, *headers: tuple[bytes, bytes]) -> tuple[int, Any]:
        status, _, answer = request(app, "/ci", sent, hub_signed(sent, *headers))
        return status, answer.get("status") or answer["error"]

    first, second = gzip.compress(body(1)), gzip.compress(body(2)[:9]) + gzip.compress(body(2)[9:])
    assert response_of(first, gzipped) == (202, "accepted")
    assert response_of(second, (b"content-encoding", b" GZIP ")) == (202, "accepted")
    assert response_of(body(3), (b"content-encoding", b"identity")) == (202, "accepted")
    assert [message.body for message in db.queue("q").peek()] == [json.loads(body(number)) for number in (1, 2, 3)]
    assert request(app, "/ci", first, [*hub_signed(body(1)), gzipped])[0] == 401
    bad = [(first[:-9], b"gzip"), (body(4), b"gzip"), (first + b"x", b"gzip"), (body(5), b"br"), (first, b"")]
    assert [response_of(sent, (b"content-encoding", encoding)) for sent, encoding in bad] == [(202, "rejected")] * len(
        bad
    )
    rejected = list(SourceControl(db, "ci").rejected())
    assert [record.body for record in rejected] == [sent for sent, _ in bad]
    assert "the body is not gzip: Compressed file ended" in rejected[0].reason
    assert "content-encoding is 'br'; only gzip" in rejected[3].reason


def test_a_decompression_bomb_is_rejected_without_using_memory(db: Database) -> None:
    hook = Webhook(name="ci", queue="q", signature="github", secrets=["s"])
    inner = gzip.compress(bytes(500_000_000), 1)  # zeros, a thousand times smaller
    bomb = inner[: limits.BODY_BYTES - 1] if len(inner) >= limits.BODY_BYTES else inner
    members = gzip.compress(bytes(10_000)) * 10_000
    app = WebhookApp(db, [hook])
    for sent in (bomb, members[: limits.BODY_BYTES - 1]):
        tracemalloc.start()
        answer = request(app, "/ci", sent, hub_signed(sent, (b"content-encoding", b"gzip")))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert (answer[0], answer[2]) == (413, {"error": "the body has more than 1,048,576 bytes when unpacked"})
        assert most < 20 * limits.BODY_BYTES
    nothing = gzip.compress(b"") * (limits.BODY_BYTES // 20)  # parts without content
    assert request(app, "/ci", nothing, hub_signed(nothing, (b"content-encoding", b"gzip")))[2] == {
        "status": "rejected"
    }
    assert not db.queue("q").peek()


def test_a_webhook_for_a_full_queue_gets_503_with_retry_after(db: Database) -> None:
    app = WebhookApp(db, [HOOK])
    db.queue("orders").configure(max_depth=1)
    assert request(app, "/shop", body(1), signed("m1", body(1)))[0] == 202
    status, headers, _ = request(app, "/shop", body(2), signed("m2", body(2)))
    assert (status, headers[b"retry-after"]) == (503, b"1")


def test_a_disconnected_client_sends_no_message(db: Database) -> None:
    async def receive() -> Any:
        return {"type": "http.disconnect"}

    async def send(_message: Any) -> None:
        raise AssertionError

    app = WebhookApp(db, [HOOK])
    asyncio.run(app({"type": "http", "method": "POST", "path": "/shop", "headers": []}, receive, send))
    asyncio.run(app({"type": "lifespan"}, receive, send))
    assert not db.queue("orders").peek()


def test_w3_parallel_webhook_deliveries_of_a_group_are_applied_one_after_the_other(db: Database) -> None:
    """Both found no row, and the creation overwrote what the update had written; here a subscription has one turn."""
    hook = Webhook(name="pay", queue="subs", signature="none", mapping=MessageMapping(group="body.sub", id="body.id"))
    app, subs = WebhookApp(db, [hook]), db.queue("subs")
    events = [(f"sub_{n}", kind) for n in range(20) for kind in ("created", "updated")]
    posted = [json.dumps({"sub": sub, "id": f"{sub}-{kind}", "type": kind}).encode() for sub, kind in events]
    with ThreadPoolExecutor(8) as senders:
        assert {status for status, *_ in senders.map(lambda sent_body: request(app, "/pay", sent_body), posted)} == {
            202
        }

    def apply(state: dict[str, Any], event: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
        if event["type"] == "created":
            return {"status": "incomplete"} | state, []
        return {"status": "active"}, []

    pipeline = inturn.Pipeline(name="subs", group="sub", order=inturn.Arrival(), id="id", handler=apply)
    assert inturn.work(pipeline, subs, concurrency=8, until="empty").applied == 40
    states = {state.group: state.state for state in db.pipeline("subs").states()}
    assert states == {f"sub_{n}": {"status": "active"} for n in range(20)}


def test_w10_retried_and_reordered_webhooks_are_applied_once_in_order(db: Database) -> None:
    """Revision 1 fails and is sent again after revision 2, and once more since its answer was lost."""

    def apply(state: dict[str, Any], message: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        return {"status": message["status"]}, [message["status"]]

    app, orders = WebhookApp(db, [HOOK]), db.queue("orders")
    for id_, revision in (("m2", 2), ("m1", 1), ("m1", 1)):
        assert request(app, "/shop", body(revision), signed(id_, body(revision)))[0] == 202
    pipeline = inturn.Pipeline(name="orders", group="order", order=inturn.Gapless("revision"), handler=apply)
    delivered: list[Any] = []
    inturn.work(pipeline, orders, deliver=lambda output, _effect_id: delivered.append(output), until="empty")
    assert delivered == ["1", "2"]


def test_w8_the_rank_of_a_status_is_the_revision_of_its_message(db: Database) -> None:
    ranks = {"queued": 1, "in_progress": 2, "completed": 3}
    mapping = MessageMapping(group="body.job.id", revision="body.job.status", ranks=ranks)
    hook = Webhook(name="ci", queue="jobs", signature="github", secrets=["s"], mapping=mapping)
    app = WebhookApp(db, [hook])
    attempts = [("completed", 1), ("in_progress", 1), ("queued", 1), ("queued", 2), ("odd", 2)]
    for number, (status, attempt) in enumerate(attempts):
        sent = json.dumps({"job": {"id": 7, "status": status, "run_attempt": attempt}}).encode()
        digest = hmac.new(b"s", sent, hashlib.sha256).hexdigest()
        headers = [(b"x-hub-signature-256", f"sha256={digest}".encode()), (b"X-GitHub-Delivery", b"d-%d" % number)]
        assert request(app, "/ci", sent, headers)[0] == 202

    def apply(_state: dict[str, Any], message: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
        return {"status": message["job"]["status"]}, [[message["job"]["status"], message["job"]["run_attempt"]]]

    order = inturn.Monotone("rank", epoch="job.run_attempt")
    pipeline = inturn.Pipeline(name="jobs", group="job_id", order=order, handler=apply)
    seen: list[Any] = []
    counts = inturn.work(
        pipeline, db.queue("jobs"), deliver=lambda output, _effect_id: seen.append(output), until="empty"
    )
    assert seen[-1] == ["queued", 2]
    assert ["completed", 1] in seen
    assert (counts.received, counts.applied + counts.stale) == (4, 4)
    assert [record.reason for record in SourceControl(db, "ci").rejected()] == [
        "the revision is 'odd'; expected one of queued, in_progress, completed"
    ]


def test_invalid_webhook_settings_are_refused_at_construction(db: Database) -> None:
    known: dict[str, Any] = {"name": "a", "queue": "q", "signature": "github", "secrets": ["s"]}
    for wrong, words in (
        ({"name": "a/b"}, "name 'a/b': 1 to"),
        ({"name": ""}, "name '': 1 to"),
        ({"queue": ""}, "invalid name"),
        ({"signature": "svix"}, "signature is 'svix'"),
        ({"secrets": []}, "has no secret"),
        ({"secrets": "text"}, "a list of texts"),
        ({"signature": "none"}, "has secrets"),
        ({"tolerance_s": 0}, "tolerance_s is 0; .*above 0"),
        ({"signature": "stripe", "mapping": MessageMapping(group=None, format="text")}, "needs format='json'"),
    ):
        with pytest.raises(InputError, match=words):
            Webhook(**known | wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="two webhooks have the same name"):
        WebhookApp(db, [Webhook(**known), Webhook(**known)])
    db.queue("q")
    with pytest.raises(InputError, match="remembers ids for 300 s"):
        WebhookApp(db, [Webhook(**known)])
