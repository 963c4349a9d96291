"""The console in other applications: FastAPI, Django, a path of a server, and of an open database."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from console_shop import HOST, Shop
from guarded import PEOPLE, TOKENS, form_token
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

import inturn
from inturn.cli.targets import open_inspector
from inturn.console import ConsoleConfig, Role, console
from inturn.core.errors import InputError
from inturn.database import Database


def guarded(shop: Shop, tmp_path: Path) -> Starlette:
    return console(shop.path, config=ConsoleConfig(people=PEOPLE, actions_log=str(tmp_path / "actions.jsonl")))


def in_fastapi(app: Starlette) -> Any:
    from fastapi import FastAPI

    outer = FastAPI()
    outer.get("/")(lambda: {"own": True})
    outer.mount("/inturn", app)
    return outer


def in_django(app: Starlette) -> Any:
    """Return Django's ASGI application, beside which a path is the console's."""
    django = pytest.importorskip("django", reason="the console is mounted beside Django, from PyPI")
    from django.conf import settings
    from django.core.asgi import get_asgi_application
    from django.http import JsonResponse
    from django.urls import path

    if not settings.configured:
        settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1"], SECRET_KEY="x" * 50)
        django.setup()
    settings.ROOT_URLCONF, settings.ALLOWED_HOSTS = __name__, ["127.0.0.1"]  # others may have configured it
    urlpatterns[:] = [path("", lambda _request: JsonResponse({"own": True}))]
    return Starlette(routes=[Mount("/inturn", app), Mount("/", get_asgi_application())])


def by_hand(app: Starlette) -> Any:
    """Return an application that hands requests of a path on, as Django's documents do for web sockets."""

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/inturn"):
            await app({**scope, "root_path": "/inturn"}, receive, send)
        elif scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b'{"own": true}'})

    return outer


urlpatterns: list[Any] = []


@pytest.mark.parametrize("mounted", [in_fastapi, in_django, by_hand])
def test_the_console_works_mounted_below_a_path(shop: Shop, tmp_path: Path, mounted: Any) -> None:
    browser = TestClient(mounted(guarded(shop, tmp_path)), base_url=HOST, follow_redirects=False)
    assert browser.get("/").json() == {"own": True}, "the application's own routes are there still"
    page = browser.get("/inturn/")
    assert page.status_code == 401
    assert page.headers["x-frame-options"] == "DENY"
    form = {"token": form_token(page.text), "secret": TOKENS[Role.OPERATOR]}
    entered = browser.post("/inturn/login", data=form, headers={"origin": HOST})
    assert (entered.status_code, entered.headers["location"]) == (303, "/inturn/")
    assert "Path=/inturn;" in entered.headers["set-cookie"], "other paths of the host do not get it"
    page = browser.get("/inturn/").text
    for path in ("/inturn/group?", "/inturn/queues", "/inturn/static/console.css", "/inturn/live"):
        assert path in page
    assert browser.get("/inturn/static/console.css").status_code == 200
    ask = {"store": shop.store, "group": "eu-1", "action": "drop", "token": form_token(page)}
    done = browser.post("/inturn/decide", data=ask, headers={"origin": HOST})
    assert (done.status_code, done.headers["location"][:16]) == (303, "/inturn/decided?")
    assert "recorded" in browser.get(done.headers["location"]).text
    assert browser.get("/inturn/api/queues").json()["databases"]
    answer = browser.post("/inturn/logout", data={"token": form_token(page)})
    assert answer.headers["location"] == "/inturn/login"
    assert browser.get("/inturn/").status_code == 401


def test_the_console_uses_the_root_path_of_the_server(shop: Shop) -> None:
    with TestClient(console(shop.path), base_url=HOST, root_path="/ops") as browser:
        page = browser.get("/ops/").text
        assert 'href="/ops/group?' in page
        assert browser.get("/ops/static/console.css").status_code == 200


@pytest.fixture(params=["open", "closed"])
def database(shop: Shop, request: pytest.FixtureRequest) -> Iterator[Database]:
    db = inturn.open(shop.path)
    if request.param == "closed":
        db.close()
    yield db
    db.close()


def test_console_accepts_an_open_database(shop: Shop, database: Database) -> None:
    with TestClient(console(database, by="ann"), base_url=HOST) as browser:
        assert "eu-1" in browser.get("/").text
        assert browser.get("/api/queues").json()["databases"][0]["title"] == shop.path


def test_console_accepts_a_path(shop: Shop) -> None:
    with TestClient(console(Path(shop.path)), base_url=HOST) as browser:
        assert "eu-1" in browser.get("/").text


@pytest.mark.postgres
def test_console_accepts_an_open_postgresql_database(postgres_url: str) -> None:
    with inturn.open(postgres_url) as db:
        db.queue("payments").send(1)
        with TestClient(console(db), base_url=HOST) as browser:
            (shown_database,) = browser.get("/api/queues").json()["databases"]
            assert (shown_database["title"], shown_database["queues"][0]["queue"]) == (db.name, "payments")


def test_console_refuses_a_database_in_memory() -> None:
    with inturn.open(":memory:") as db, pytest.raises(InputError, match="database in memory"):
        console(db)


def test_applying_decisions_requires_pipelines(shop: Shop) -> None:
    with pytest.raises(InputError, match="pipelines is empty"):
        console(shop.path, apply_decisions=True)


@pytest.mark.thorough
def test_the_console_applies_decisions_if_configured(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "other_ledger.py").write_text(_HANDLERS)
    places = [f"{tmp_path}/other_ledger.py:{name}" for name in ("other", "ledger")]
    config = ConsoleConfig(actions_log=str(tmp_path / "log"))
    app = console(shop.path, by="ann", pipelines=places, apply_decisions=True, config=config)
    with TestClient(app, base_url=HOST) as browser:
        for name in ("eu-1", "eu-2"):
            ask = {"store": shop.store, "group": name, "action": "drop"}
            assert browser.post("/api/decide", json=ask).status_code == 200
        until = time.monotonic() + 60
        while "failed" in {group["status"] for group in browser.get("/api/stuck").json()["stores"][0]["groups"]}:
            assert time.monotonic() < until
            time.sleep(0.2)
    with open_inspector(shop.store) as inspector:
        assert {group.group: group.status for group in inspector.groups()}["eu-2"] == "open"


_HANDLERS = """
from typing import Any
import inturn
from inturn.database import Database

def apply(state: Any, message: Any) -> Any:
    return {"balance": state.get("balance", 0) + message["amount"]}, []

other = inturn.Pipeline(name="other", group="account", order=inturn.Gapless("revision"), handler=apply)
ledger = inturn.Pipeline(name="ledger", group="account", order=inturn.Gapless("revision"), handler=apply)
"""
