"""A store that is away, locked or killed is told on the page and in /api, and comes back by itself."""

import signal
import sqlite3
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from console_shop import AMOUNTS, LEDGER, Shop
from console_started import Listener, StartedConsole, started

import inturn
import postgres_started
from inturn.core import limits
from inturn.core.errors import StoreError
from inturn.results.reading import open_reader
from waiting import until

pytestmark = pytest.mark.thorough
MOST_S = 4 * limits.CONSOLE_ANSWER_S
"""Far more than a request waits for a store, and far less than a lock is waited for elsewhere."""


def stuck(console: StartedConsole) -> Any:
    began = time.monotonic()
    answer = console.api("/stuck")
    assert time.monotonic() - began < MOST_S, "no request hangs"
    return answer


def groups(console: StartedConsole) -> int:
    return sum(len(store["groups"]) for store in stuck(console)["stores"])


def test_a_removed_database_file_is_reported_and_recovers(shop: Shop, tmp_path: Path) -> None:
    with started(shop.path) as console:
        page = Listener(console)
        assert groups(console) == 3
        files = list(Path(shop.path).parent.glob("shop.db*"))
        (tmp_path / "away").mkdir()
        for file in files:
            file.rename(tmp_path / "away" / file.name)
        until(lambda: page.heard == ["away"])
        answer = stuck(console)
        assert (answer["status_code"], answer["stores"]) == (200, [])
        assert "no database" in answer["unread"][0]["why"]
        status, text = console.get("/group", store=shop.store, group="eu-1")
        assert (status, "no database" in text) == (503, True)
        for file in files:
            (tmp_path / "away" / file.name).rename(file)
        until(lambda: page.heard == ["away", "changed"])
        assert groups(console) == 3
        assert console.get("/group", store=shop.store, group="eu-1")[0] == 200


def test_a_file_locked_by_a_long_transaction_is_still_shown(shop: Shop) -> None:
    """It is read all the same."""
    with started(shop.path) as console, closing(sqlite3.connect(shop.path, isolation_level=None)) as other:
        assert groups(console) == 3
        other.execute("begin immediate")
        other.execute("update inturn_group set held = held")
        assert groups(console) == 3
        assert console.get("/group", store=shop.store, group="eu-1")[0] == 200
        assert console.api("/queues")["unread"] == []
        assert console.get("/queue", database=shop.path, queue="payments")[0] == 200
        other.execute("rollback")


def test_a_decision_that_cannot_be_stored_gets_503_and_changes_nothing(shop: Shop) -> None:
    with closing(sqlite3.connect(shop.path, isolation_level=None)) as other:
        token = shop.token()
        other.execute("begin immediate")
        form = {"token": token, "store": shop.store, "group": "eu-1", "action": "drop"}
        answer = shop.browser.post("/decide", data=form)
        assert (answer.status_code, "nothing was changed" in answer.text) == (503, True)
        other.execute("rollback")
        assert shop.browser.get("/api/group", params={"store": shop.store, "group": "eu-1"}).json()["undecided"] == []
        assert shop.browser.post("/decide", data=form).status_code == 200


@pytest.mark.spark
def test_a_missing_spark_store_directory_is_reported(tmp_path: Path) -> None:
    golden = Path(__file__).parents[1] / "golden" / "files" / "spark.zip"
    with zipfile.ZipFile(golden) as packed:
        packed.extractall(tmp_path)
    store = tmp_path / "store"
    with started(str(store)) as console:
        page = Listener(console)
        assert groups(console) == 2
        store.rename(tmp_path / "moved")
        until(lambda: page.heard == ["away"])
        (unread,) = stuck(console)["unread"]
        assert str(store) in unread["why"]
        assert console.get("/group", store=str(store), group="failed")[0] == 503
        assert "Away" in console.get("/")[1] or str(store) in console.get("/")[1]
        (tmp_path / "moved").rename(store)
        until(lambda: page.heard == ["away", "changed"])
        assert groups(console) == 2


@pytest.fixture
def server() -> Iterator[Any]:
    """A server of its own, which may be killed."""
    with tempfile.TemporaryDirectory(prefix="inturn-postgres-", ignore_cleanup_errors=True) as directory:
        server = postgres_started.start(Path(directory) / "data")
        yield server
        server._cleanup()


@pytest.mark.postgres
@pytest.mark.slow
def test_a_killed_or_hanging_postgresql_server_is_reported_and_recovers(server: Any, shop: Shop) -> None:
    url = server.get_uri()
    with inturn.open(url) as db:
        payments = db.queue("payments")
        for account, revision, amount in AMOUNTS:
            payments.send({"amount": amount}, group=account, revision=revision)
        inturn.work(LEDGER, payments, until="empty")
    with started(url, shop.path) as console:
        page = Listener(console)
        assert groups(console) == 6
        postmaster = server.get_postmaster_info().process
        every = [postmaster, *postmaster.children(recursive=True)]

        for process in every:
            process.suspend()
        try:
            until(lambda: page.heard == ["away"])
            answer = stuck(console)
            assert len(answer["stores"]) == 1, "the other store is shown"
            assert len(answer["unread"]) == 1
            assert console.get("/group", store=shop.store, group="eu-1")[0] == 200
        finally:
            for process in every:
                with suppress(psutil.Error):
                    process.resume()
        until(lambda: page.heard == ["away", "changed"])
        assert groups(console) == 6

        postmaster.send_signal(signal.SIGQUIT)
        postmaster.wait(30)
        until(lambda: page.heard[2:] == ["away"])
        answer = stuck(console)
        assert (answer["status_code"], len(answer["stores"]), len(answer["unread"])) == (200, 1, 1)
        assert "password" not in answer["unread"][0]["why"]
        server.ensure_postgres_running()
        until(lambda: page.heard[2:] == ["away", "changed"])
        assert groups(console) == 6
        assert page.is_over.is_set() is False


@pytest.mark.postgres
def test_a_postgresql_read_times_out(postgres_url: str) -> None:
    with inturn.open(postgres_url) as db:
        db.queue("payments")
    reader = open_reader(postgres_url, 0.5)
    with pytest.raises(StoreError, match=r"did not answer within 0\.5 s"):
        reader.read(lambda store: store._wire.pg.exec_(b"select pg_sleep(30)") and store.names())  # type: ignore[attr-defined]
    reader.close()


def test_a_sqlite_read_times_out(shop: Shop) -> None:
    endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n"
    reader = open_reader(shop.path, 0.5)
    with pytest.raises(StoreError, match=r"did not answer within 0\.5 s"):
        reader.read(lambda store: store._statements.connection.execute(endless).fetchone())  # type: ignore[attr-defined]
    assert reader.read(lambda store: store.names()) == ["ledger"], "it can be read again"
    reader.close()
