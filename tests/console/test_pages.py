"""The pages say what the command line says, and their forms decide what it decides."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from console_shop import HOST, Shop
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

import inturn
from inturn.cli.targets import open_inspector
from inturn.console import console, pages
from inturn.core.errors import InputError


def test_the_first_page_lists_stuck_groups_by_reason(shop: Shop) -> None:
    document = shop.browser.get("/api/stuck").json()["stores"][0]
    reasons = [(reason["status"], reason["error"], reason["groups"], reason["held"]) for reason in document["reasons"]]
    assert reasons == [("failed", "ValueError: amount -5 is below zero", 2, 4), ("waiting", "", 1, 1)]
    assert {group["group"] for group in document["groups"]} == {"eu-1", "eu-2", "us-1"}
    page = shop.page("/")
    assert "amount -5 is below zero" in page
    assert "us-2" not in page, "a group that goes on is not stuck"


def test_the_first_page_filters_by_group_and_error_patterns(shop: Shop) -> None:
    document = shop.browser.get("/api/stuck", params={"group": "eu-*", "error": "ValueError*"}).json()["stores"][0]
    assert {group["group"] for group in document["groups"]} == {"eu-1", "eu-2"}
    assert "No group matches" in shop.page("/", group="none-*")


def test_the_group_page_shows_the_text_of_explain(shop: Shop) -> None:
    page = shop.page("/group", store=shop.store, group="eu-1")
    with open_inspector(shop.store) as inspector:
        explanation = inspector.explain("eu-1").split("\n")[0].partition("since")[0]
    assert explanation in page
    kinds = [
        event["kind"]
        for event in shop.browser.get("/api/group", params={"store": shop.store, "group": "eu-1"}).json()["events"]
    ]
    assert kinds == ["applied", "failed", "held", "missing", "held"]


def test_replacing_a_failing_message_resumes_the_group(shop: Shop) -> None:
    answer = shop.decide(group="eu-1", action="replace", content='{"amount": 5}', why="the sign was wrong")
    assert "recorded" in answer.text
    assert "The decision is not applied yet" in shop.page("/group", store=shop.store, group="eu-1")
    shop.send()
    with open_inspector(shop.store) as inspector:
        assert inspector.group("eu-1").state == {"balance": 13}
    assert "carried out" in shop.browser.get(answer.url).text


def test_a_bulk_decision_applies_to_all_groups_with_an_error(shop: Shop) -> None:
    page = shop.page("/preview", store=shop.store, action="drop", error="ValueError*")
    assert "Drop 2 groups?" in page
    answer = shop.decide(action="drop", error="ValueError*")
    assert "0 of 2 decisions are applied" in answer.text
    shop.send()
    assert "2 of 2 decisions are applied" in shop.browser.get(answer.url).text
    with open_inspector(shop.store) as inspector:
        assert {group.group: group.status for group in inspector.groups()} == {
            "eu-1": "waiting",
            "eu-2": "open",
            "us-1": "waiting",
            "us-2": "open",
        }


def test_a_second_decision_on_a_message_is_reported_as_not_applied(shop: Shop) -> None:
    first = shop.decide(group="eu-2", action="drop", by="ann")
    second = shop.decide(group="eu-2", action="replace", content='{"amount": 1}', by="bob")
    shop.send()
    assert "carried out" in shop.browser.get(first.url).text
    assert "no longer applies, so nothing was changed" in shop.browser.get(second.url).text


def seen(shop: Shop, name: str, **fields: str) -> str:
    """Return what a page shows: the hidden field of its form."""
    (token,) = re.findall(r'name="seen" value="([^"]+)"', shop.page(f"/{name}", store=shop.store, **fields))
    return str(token)


def test_a_decision_gets_409_if_another_message_fails_since(shop: Shop) -> None:
    shop.send(("eu-2", 2, -6))
    shown = seen(shop, "group", group="eu-2")
    assert shop.decide(group="eu-2", action="drop", by="bob", seen=shown).status_code == 200
    shop.send()
    assert seen(shop, "group", group="eu-2") != shown, "revision 2 fails now"
    for action in ("drop", "resume", "give-up", "replace"):
        answer = shop.decide(group="eu-2", action=action, by="ann", seen=shown, content='{"amount": 1}')
        assert answer.status_code == 409
        assert "The group has changed since" in answer.text
        assert "the group is at revision 2, which is not the state that was shown" in answer.text
    with open_inspector(shop.store) as inspector:
        assert inspector.pending_decisions("eu-2") == []
    assert shop.decide(group="eu-2", action="drop", seen=seen(shop, "group", group="eu-2")).status_code == 200


def test_a_decision_gets_409_if_the_content_was_replaced_since(shop: Shop) -> None:
    shown = seen(shop, "group", group="eu-2")
    shop.decide(group="eu-2", action="replace", content='{"amount": -8}', by="bob", seen=shown)
    shop.send()
    assert shop.decide(group="eu-2", action="drop", by="ann", seen=shown).status_code == 409
    with open_inspector(shop.store) as inspector:
        assert inspector.held("eu-2")[0].content["amount"] == -8


def test_a_decision_after_an_unapplied_replacement_does_not_apply(shop: Shop) -> None:
    shown = seen(shop, "group", group="eu-2")
    shop.decide(group="eu-2", action="replace", content='{"amount": -8}', by="bob", seen=shown)
    answer = shop.decide(group="eu-2", action="drop", by="ann", seen=shown)
    assert answer.status_code == 200, "it is recorded, since nothing has moved yet"
    shop.send()
    assert "the content of the message was replaced" in shop.browser.get(answer.url).text
    with open_inspector(shop.store) as inspector:
        assert inspector.held("eu-2")[0].content["amount"] == -8


def test_an_invalid_decision_gets_400_rather_than_409(shop: Shop) -> None:
    shown = seen(shop, "group", group="eu-2")
    answer = shop.decide(group="eu-2", action="skip", seen=shown)
    assert (answer.status_code, "has no gap; it is failed" in answer.text) == (400, True)
    assert "The group has changed since" not in answer.text
    fields = {"store": shop.store, "action": "drop", "group": "eu-2"}
    preview = shop.browser.get("/api/preview", params=fields).json()
    assert preview["seen"] == shown, "of one group it is the same as on the group's page"
    assert shop.browser.post("/api/decide", json={**fields, "by": "ann", "seen": shown}).status_code == 200
    empty = seen_of_none(shop)
    answer = shop.decide(action="drop", error="KeyError*", seen=empty)
    assert (answer.status_code, "has no groups; open the list again" in answer.text) == (409, True)


def seen_of_none(shop: Shop) -> str:
    fields = {"store": shop.store, "action": "drop", "error": "KeyError*"}
    return str(shop.browser.get("/api/preview", params=fields).json()["seen"])


def test_a_give_up_gets_409_once_the_waiting_group_has_failed(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    order = inturn.Timestamp("at", lateness="5 minutes")

    def apply(state: Any, message: Any) -> tuple[Any, list[Any]]:
        if message["amount"] < 0:
            raise ValueError("below zero")
        return state, []

    times = inturn.Pipeline(name="ledger", group="account", id="id", order=order, handler=apply)

    def send(hour: int, amount: int = 1) -> None:
        with inturn.open(shop.path) as db:
            message = {"account": "g", "id": f"{hour}", "at": f"2026-01-01T{hour:02d}:00:00Z", "amount": amount}
            db.queue("payments").send(message, group="g")
            inturn.work(times, db.queue("payments"), until="empty")

    def decide(shown: str) -> int:
        fields = {"store": shop.store, "group": "g", "action": "give-up", "by": "ann", "seen": shown}
        return shop.browser.post("/api/decide", json=fields).status_code

    with shop.browser:
        send(0)
        first = seen(shop, "group", group="g")
        send(1, -1)
        assert seen(shop, "group", group="g") == first, "another message is held; it waits as before"
        send(2)
        assert decide(first) == 409, "now it has failed"
        assert decide(seen(shop, "group", group="g")) == 200


def test_a_later_message_does_not_invalidate_a_shown_decision(shop: Shop) -> None:
    shown, missing = seen(shop, "group", group="eu-2"), seen(shop, "group", group="us-1")
    shop.send(("eu-2", 2, 5), ("us-1", 3, 5))
    assert shop.decide(group="eu-2", action="drop", seen=shown).status_code == 200
    assert shop.decide(group="us-1", action="skip", seen=missing).status_code == 200


def test_a_bulk_decision_applies_only_to_the_groups_shown(shop: Shop) -> None:
    fields = {"action": "drop", "error": "ValueError*"}
    shown = seen(shop, "preview", **fields)
    shop.decide(group="eu-1", action="replace", content='{"amount": 5}', by="bob")
    shop.send(("new-1", 1, -5))
    answer = shop.decide(**fields, seen=shown)
    assert "1 group was left out" in answer.text
    shop.send()
    with open_inspector(shop.store) as inspector:
        assert {group.group: group.status for group in inspector.parked()} == {
            "eu-1": "waiting",
            "us-1": "waiting",
            "new-1": "failed",
        }, "eu-2 alone was dropped: eu-1 went on, and new-1 was not on the list"
    answer = shop.decide(**fields, seen=shown)
    assert (answer.status_code, "The groups have changed since" in answer.text) == (409, True)


def test_a_preview_list_is_valid_for_its_action_until_it_is_evicted(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"action": "drop", "error": "ValueError*"}
    shown = seen(shop, "preview", **fields)
    assert shop.decide(action="resume", seen=shown).status_code == 409
    assert shop.decide(action="drop", seen="unknown").status_code == 409
    monkeypatch.setattr("inturn.console.previewed_groups._MOST_GROUPS", 3)
    last = seen(shop, "preview", **fields)
    answer = shop.decide(**fields, seen=shown)
    assert (answer.status_code, "no longer stored; open the list again" in answer.text) == (409, True)
    assert shop.decide(**fields, seen=last).status_code == 200


def test_forms_with_text_fields_are_not_submitted_by_enter() -> None:
    forms = [
        (path.name, form)
        for path in Path(pages.__file__).parent.glob("*.j2")
        for form in re.findall(r"<form method=.post.*?</form>", path.read_text(), re.DOTALL)
        if re.search(r"<input (?!type=.hidden)|{{ (who|input)\(", form) and path.name != "login.html.j2"
    ]
    assert {name for name, _ in forms} >= {"group.html.j2", "preview.html.j2", "queue.html.j2", "sources.html.j2"}
    for name, form in forms:
        assert form.index("<button disabled hidden>") == form.index("<button"), f"{name}: the first button is pressed"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"group": "eu-1", "action": "replace", "content": "{"}, "is not JSON"),
        ({"group": "eu-1", "action": "replace", "content": "[]"}, "is not an object"),
        ({"group": "none", "action": "resume"}, "has no group"),
        ({"group": "eu-1", "action": "explode"}, "explode"),
        ({"action": "resume"}, "no group is selected"),
        ({"group": "us-2", "action": "resume"}, "holds no messages"),
    ],
)
def test_an_invalid_decision_gets_400_and_changes_nothing(shop: Shop, fields: dict[str, str], told: str) -> None:
    answer = shop.decide(**fields)
    assert answer.status_code == 400
    assert told in answer.text
    with open_inspector(shop.store) as inspector:
        assert [inspector.pending_decisions(name) for name in ("eu-1", "eu-2", "us-2")] == [[], [], []]


def test_an_unavailable_store_is_listed_and_its_pages_get_503_with_refresh(shop: Shop, tmp_path: Path) -> None:
    absent = str(tmp_path / "absent.db")
    with TestClient(console(absent, shop.path), base_url=HOST) as browser:
        page = browser.get("/").text
        assert "absent.db" in page
        assert "eu-1" in page
        away = browser.get("/group", params={"store": f"{absent}#ledger", "group": "a"})
        assert away.status_code == 503
    Path(shop.path).rename(tmp_path / "moved.db")
    with TestClient(console(shop.store), base_url=HOST) as browser:
        away = browser.get("/group", params={"store": shop.store, "group": "eu-1"})
        assert away.status_code == 503
        assert away.headers["refresh"] == "5"
        (tmp_path / "moved.db").rename(shop.path)
        assert browser.get("/group", params={"store": shop.store, "group": "eu-1"}).status_code == 200


def test_the_pages_work_mounted_in_a_starlette_application(shop: Shop) -> None:
    outer = Starlette(routes=[Mount("/inturn", console(shop.path))])
    with TestClient(outer, base_url=HOST) as browser:
        page = browser.get("/inturn/").text
        assert 'href="/inturn/group?' in page
        assert browser.get("/inturn/static/console.css").status_code == 200
        answer = browser.get("/inturn/group", params={"store": shop.store, "group": "eu-1"})
        assert 'action="/inturn/decide"' in answer.text


def test_the_api_returns_contents_as_json(shop: Shop) -> None:
    document: Any = shop.browser.get("/api/group", params={"store": shop.store, "group": "eu-1"}).json()
    assert document["group"]["state"] == {"balance": 7}
    assert document["held"][0]["content"]["amount"] == -5
    missing = shop.browser.get("/api/group", params={"store": shop.store, "group": "none"})
    assert (missing.status_code, "has no group" in json.dumps(missing.json())) == (400, True)


def test_a_console_without_stores_is_refused() -> None:
    with pytest.raises(InputError, match="at least one store"):
        console()


def test_the_queue_page_can_show_acknowledged_messages(shop: Shop) -> None:
    with inturn.open(shop.path) as db:
        queue = db.queue("texts")
        queue.send("the first", group="a")
        assert "Acknowledged messages too" not in shop.page("/queue", database=shop.path, queue="texts")
        queue.configure(keep_for="1 hour")
        queue.ack(queue.receive())
        queue.send("the second", group="a")
    plain = shop.page("/queue", database=shop.path, queue="texts")
    assert ("the first" in plain, "the second" in plain, "Acknowledged messages too" in plain) == (False, True, True)
    log = shop.page("/queue", database=shop.path, queue="texts", log="1")
    assert ("the first" in log, "the second" in log, ", acknowledged" in log) == (True, True, True)
