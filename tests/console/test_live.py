"""Many pages listen and ask at once: they hear of each change, are limited in number, and end with the console."""

import asyncio
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from console_shop import Shop
from console_started import Listener, started

import inturn
from inturn.console.live import ChangeMarker, StoreWatch
from inturn.core import limits
from waiting import DEADLINE_S, until


@pytest.mark.thorough
def test_twenty_listening_pages_and_four_browsers_are_served_at_once(shop: Shop) -> None:
    """Twenty pages listen, four browsers ask, and a worker goes on, all at once."""
    with started(shop.path) as console:
        pages = [Listener(console) for _ in range(20)]

        def asks(number: int) -> list[int]:
            group = f"eu-{1 + number % 2}"
            requests = [("/", {}), ("/group", {"store": shop.store, "group": group}), ("/queues", {})]
            return [console.get(path, **fields)[0] for _ in range(2) for path, fields in requests]

        with ThreadPoolExecutor(5) as browsers:
            answers = [browsers.submit(asks, number) for number in range(4)]
            shop.send(*((f"new-{number}", 1, -1) for number in range(20)))
            assert {status for answer in answers for status in answer.result()} == {200}
        until(lambda: all(page.heard for page in pages))
        assert {name for page in pages for name in page.heard} == {"changed"}
        assert len(console.api("/stuck")["stores"][0]["groups"]) == 23
        for page in pages:
            page.close()
        second = Listener(console)
        shop.send(("one-more", 1, -1))
        until(lambda: second.heard == ["changed"])


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_ends_listening_pages_without_errors(shop: Shop, number: signal.Signals) -> None:
    with started(shop.path) as console:
        pages = [Listener(console) for _ in range(5)]
        began = time.monotonic()
        assert console.stop(number) == 0
        assert time.monotonic() - began < 30, "it does not wait until the pages are closed"
        assert console.process.stderr is not None
        assert console.process.stderr.read() == ""
        assert all(page.is_over.wait(DEADLINE_S) for page in pages)


def test_listeners_over_the_limit_get_503(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONSOLE_LISTENERS", 0)
    answer = shop.browser.get("/live")
    assert (answer.status_code, "(the maximum); reload" in answer.json()["error"]) == (503, True)


def test_stores_are_not_polled_without_listeners(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inturn.console.live.POLL_S", 0.01)
    looks: list[str] = []
    now = ChangeMarker.current

    def noted(self: ChangeMarker) -> str:
        looks.append(current := now(self))
        return current

    monkeypatch.setattr(ChangeMarker, "current", noted)

    async def listen() -> None:
        watch = StoreWatch([shop.path])
        await asyncio.sleep(0.1)
        assert (watch.listeners, looks) == (0, [])
        pages = [watch.events() for _ in range(10)]
        assert {await anext(page) for page in pages} == {"retry: 3000\n\n"}
        assert watch.listeners == 10
        assert len(looks) < 10, "all pages share a look"
        with inturn.open(shop.path) as db:
            db.queue("payments").send({"amount": 1}, group="a", revision=1)
        assert {await anext(page) for page in pages} == {"event: changed\ndata: 1\n\n"}
        for page in pages:
            await page.aclose()  # type: ignore[attr-defined]
        assert watch.listeners == 0
        await asyncio.sleep(0.2)
        count = len(looks)
        await asyncio.sleep(0.2)
        assert len(looks) == count
        second = watch.events()
        await anext(second)
        assert len(looks) > count
        await watch.end()
        with pytest.raises(StopAsyncIteration):
            await anext(second)

    asyncio.run(listen())


def test_a_store_mark_changes_with_the_store_and_is_empty_while_unavailable(shop: Shop, tmp_path: Path) -> None:
    mark = ChangeMarker(shop.store)
    first = mark.current()
    assert first
    assert mark.current() == first
    shop.send(("new", 1, 1))
    assert mark.current() not in ("", first)
    Path(shop.path).rename(tmp_path / "away.db")
    assert mark.current() == ""
    assert ChangeMarker(str(tmp_path / "no-store")).current() == ""


@pytest.mark.postgres
def test_a_store_mark_uses_one_postgresql_connection(postgres_url: str) -> None:
    mark = ChangeMarker(postgres_url)
    with inturn.open(postgres_url) as db:
        db.queue("payments").send(1)
        first = until(mark.current)
        db.queue("payments").send(2)
        until(lambda: mark.current() != first)
        with db.transaction() as tx:
            sql = "select count(*) from pg_stat_activity where query like '%n_tup_ins%' and pid <> pg_backend_pid()"
            assert tx.execute(sql).fetchone() == (1,)
    mark.close()
