"""Stripe's events arrive out of order, twice, and several in one second: a handler that does not depend on their order.

Stripe does not number its events, and ``created`` has whole seconds. So there is no reliable order: ``Arrival()``
applies events as they arrive, ``id=`` recognises duplicates, and the handler gives the same state in any order. Run
it with ``python examples/stripe_webhooks.py`` (it needs ``inturn[webhooks]`` and httpx2). It prints:

    ['accepted', 'accepted', 'accepted', 'duplicate']
    sub_7: active
"""

import hashlib
import hmac
import json
import tempfile
import time
from typing import Any

from starlette.testclient import TestClient

import inturn
from inturn.ingest import MessageMapping, Webhook, WebhookApp

EVENTS = [("evt_B", "updated", 66, "active"), ("evt_A", "created", 66, "incomplete"), ("evt_0", "updated", 61, "late")]


def follow(state: dict[str, Any], event: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    status = event["data"]["object"]["status"]
    if event["type"].endswith(".created"):  # it says something only if nothing newer has
        return {"status": status, "since": 0} | state, []
    return state if event["created"] < state.get("since", 0) else {"status": status, "since": event["created"]}, []


subscriptions = inturn.Pipeline(name="subscriptions", group="sub", order=inturn.Arrival(), id="id", handler=follow)
billing = Webhook(
    name="billing",
    queue="stripe",
    signature="stripe",
    secrets=["whsec_1"],
    mapping=MessageMapping(group="body.data.object.id"),
)


def post(client: TestClient, name: str, kind: str, created: int, status: str) -> str:
    """Send an event as Stripe does, and return the answer."""
    event = {"id": name, "type": f"customer.subscription.{kind}", "created": created}
    body = json.dumps(event | {"data": {"object": {"id": "sub_7", "status": status}}}).encode()
    timestamp = str(int(time.time()))
    signature = hmac.new(b"whsec_1", f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    answer = client.post("/billing", content=body, headers={"stripe-signature": f"t={timestamp},v1={signature}"})
    return str(answer.json()["status"])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, inturn.open(f"{folder}/shop.db") as db:
        client = TestClient(WebhookApp(db, [billing]))
        print([post(client, *event) for event in [*EVENTS, EVENTS[0]]])
        inturn.work(subscriptions, db.queue("stripe"), until="empty")
        for each in db.pipeline("subscriptions").states():
            print(f"{each.group}: {each.state['status']}")
