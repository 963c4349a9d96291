"""Dead letters are summed up by why, chosen by patterns, and go back to their old place; contents can be searched."""

import re
from pathlib import Path
from typing import Any

import pytest
from console_shop import HOST, LEDGER, Shop
from starlette.testclient import TestClient

import inturn
from inturn.console import Account, ConsoleConfig, Role, console
from inturn.console.rates import QueueRates, svg_points
from inturn.core.queue.messages import QueueSettings


@pytest.fixture
def letters(shop: Shop) -> Shop:
    """The shop with a queue of which five of six messages are dead letters."""
    with inturn.open(shop.path) as db:
        db.queue("failed")
        queue = db.queue("letters", QueueSettings(dead_letter="failed", max_receives=1))
        for number in range(6):
            queue.send(
                {"secret": f"s{number}"}, group=f"eu-{number}" if number % 2 else f"us-{number}", dedup_id=f"l{number}"
            )
        for message in queue.receive(max_messages=5):
            number = int(message.body["secret"][1:])
            message.reject("TimeoutError: no answer" if number < 4 else f"ValueError: s{number}")
    return shop


def dead_letter_counts(shop: Shop, **fields: str) -> dict[str, Any]:
    (queue,) = shop.browser.get("/api/dead", params=fields).json()["queues"]
    return {reason["note"]: reason["messages"] for reason in queue["reasons"]}


def test_dead_letters_are_counted_by_reason(letters: Shop) -> None:
    assert dead_letter_counts(letters) == {"TimeoutError: no answer": 4, "ValueError: s4": 1}
    assert dead_letter_counts(letters, group="eu-*") == {"TimeoutError: no answer": 2}
    assert dead_letter_counts(letters, error="Value*", queue="failed") == {"ValueError: s4": 1}
    assert letters.browser.get("/api/dead", params={"queue": "letters"}).json()["queues"] == []


def test_selected_dead_letters_are_redriven_to_their_old_place(letters: Shop) -> None:
    form = {"database": letters.path, "queue": "failed", "group": "eu-*", "error": "Timeout*"}
    answer = letters.browser.post("/dead/redrive", data={"token": letters.token(), **form})
    assert answer.status_code == 200
    assert dead_letter_counts(letters) == {"TimeoutError: no answer": 2, "ValueError: s4": 1}
    with inturn.open(letters.path) as db:
        bodies = [message.body["secret"] for message in db.queue("letters").peek()]
    assert bodies == ["s1", "s3", "s5"], "ahead of what was sent after them"


@pytest.mark.parametrize("path", ["/dead/redrive", "/queue/redrive"])
def test_redrive_leaves_dead_letters_newer_than_the_page(letters: Shop, path: str) -> None:
    page = (
        letters.page("/dead")
        if path.startswith("/dead")
        else letters.page("/queue", database=letters.path, queue="failed")
    )
    (last,) = re.findall(r'name="last" value="([^"]+)"', page)
    with inturn.open(letters.path) as db:
        (late,) = db.queue("letters").receive()
        late.reject("TimeoutError: later")
    form = {"database": letters.path, "queue": "failed", "last": last}
    assert letters.browser.post(path, data={"token": letters.token(), **form}).status_code == 200
    assert dead_letter_counts(letters) == {"TimeoutError: later": 1}


def test_a_content_search_finds_every_kind_of_message(letters: Shop) -> None:
    with inturn.open(letters.path) as db:
        payments = db.queue("payments")
        payments.send({"amount": 9, "note": "a needle"}, group="us-2", revision=2)
        payments.send({"amount": -9, "note": "a needle"}, group="us-2", revision=3)
        payments.send({"note": "a needle"}, group=None)
        inturn.work(LEDGER, payments, until="empty")

    def places(text: str) -> list[tuple[str, str | None, str | None]]:
        document = letters.browser.get("/api/search", params={"q": text, "within": "contents"}).json()
        assert (document["cut"], document["unread"]) == ([], [])
        return [(message["where"], message["queue"], message["group"]) for message in document["messages"]]

    assert places("a needle") == [("held", None, "us-2"), ("rejected", None, None)]
    assert places("l3") == [("queue", "failed", "eu-3")]
    assert places("s5") == [("queue", "letters", "eu-5")]
    assert letters.browser.get("/api/search", params={"q": "s5"}).json()["messages"] == []


def test_a_viewer_cannot_search_or_see_masked_contents(letters: Shop, tmp_path: Path) -> None:
    people = [Account(name="vera", role=Role.VIEWER, token="v" * 20)]
    config = ConsoleConfig(people=people, mask=["secret"], actions_log=str(tmp_path / "log"))
    with TestClient(
        console(letters.path, config=config), base_url=HOST, headers={"authorization": "Bearer " + "v" * 20}
    ) as browser:
        assert browser.get("/api/search", params={"q": "s5", "within": "contents"}).status_code in {400, 403}
        assert browser.get("/api/search", params={"q": "eu-1"}).status_code == 200
        assert browser.get("/dead", params={"error": "ValueError*"}).status_code == 403
        for path in ("/dead", "/api/dead"):
            text = browser.get(path).text
            assert "eu-1" in text
            assert "s4" not in text
        page = browser.get("/group", params={"store": letters.store, "group": "eu-1"}).text
        assert "kind.amount" not in page, "the form would show what is masked"


def test_queue_rates_are_computed_between_two_reads() -> None:
    rates = QueueRates()
    assert rates.add("db", "q", 0.0, last=100, messages=10) == []
    assert rates.add("db", "q", 0.5, last=101, messages=10) == [], "a look right after the last adds nothing"
    (rate,) = rates.add("db", "q", 2.0, last=120, messages=14)
    assert (rate.sent, rate.done, rate.messages) == (10, 8, 14)
    _, other = rates.add("db", "q", 4.0, last=120, messages=20)
    assert (other.sent, other.done) == (0, 0), "what came back from elsewhere was not sent here"
    assert rates.add("other", "q", 4.0, last=1, messages=1) == []
    assert rates.add("db", "q", 6.0, last=5, messages=1) == [], "a queue that was made anew"
    assert len(rates.add("db", "q", 700.0, last=9, messages=1)) == 0, "older than ten minutes"
    assert svg_points([rate, other], 10, 12) == ["0.0,1.0 10.0,11.0", "0.0,3.0 10.0,11.0"]
