"""Rights: masks that hold on every route, the names of decisions, and a trusted proxy."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from console_shop import HOST, Shop
from guarded import CARD, Guarded
from starlette.testclient import TestClient

from inturn.cli.targets import open_inspector
from inturn.console import Account, ConsoleConfig, Role, TrustedProxy, console
from inturn.console.masks import HIDDEN, MaskRules, error_type
from inturn.console.routes import PAGES
from inturn.core.errors import InputError


@pytest.fixture
def guarded(shop: Shop, tmp_path: Path) -> Iterator[Guarded]:
    return Guarded(shop, tmp_path)


def test_no_route_shows_masked_fields_to_a_viewer(guarded: Guarded) -> None:
    viewer, operator = guarded.browser(Role.VIEWER), guarded.browser(Role.OPERATOR)
    seen = set()
    for page in PAGES:
        for path in (page.path, f"/api/{page.name}"):
            fields = guarded.fields_of(page.fields)
            search = {"q": CARD[:9], "within": "contents"}
            changes: list[dict[str, str]] = [{}, {"group": "eu-8"}, {"queue": "dead", "group": "t"}, search]
            for fields_now in (*(fields | change for change in changes), {}):
                known = {name: fields_now[name] for name in fields_now if name in fields}
                shown = viewer.get(path, params=known)
                assert CARD not in shown.text, path
                assert shown.status_code < 500, path
                if CARD in operator.get(path, params=known).text:
                    seen.add(path)
    pages = ("group", "queue", "sources", "dead", "search")
    assert seen == {"/", "/api/stuck", *(f"/{page}" for page in pages), *(f"/api/{page}" for page in pages)}
    assert CARD in operator.get("/queue", params={"database": guarded.shop.path, "queue": "texts"}).text
    assert CARD not in viewer.get("/queue", params={"database": guarded.shop.path, "queue": "texts"}).text
    assert CARD in operator.get("/").text, "the error quotes it"
    guess = viewer.get("/", params={"error": f"*{CARD[:4]}*"})
    assert guess.status_code == 403
    page = viewer.get("/group", params=guarded.fields).text
    assert HIDDEN in page
    assert '<form method="post" action="/decide"' not in page


def test_a_decision_records_the_name_of_the_logged_in_person(guarded: Guarded) -> None:
    done = guarded.browser(Role.OPERATOR).post(
        "/api/decide", json={"store": guarded.shop.store, "group": "eu-1", "action": "drop", "by": "somebody else"}
    )
    assert done.status_code == 200
    with open_inspector(guarded.shop.store) as inspector:
        assert [decision.by for decision in inspector.pending_decisions("eu-1")] == ["the operator"]
    lines = guarded.browser(Role.ADMIN).get("/api/actions").json()["actions"]
    assert [(entry["by"], entry["action"], entry["event"]) for entry in lines] == [
        ("the operator", "/decide", "done"),
        ("the operator", "/decide", "begins"),
    ]
    assert guarded.browser(Role.ADMIN).get("/actions").text.count("the operator") == 2


def test_a_decision_gets_503_if_the_actions_log_cannot_be_written(guarded: Guarded) -> None:
    (guarded.folder / "actions.jsonl").mkdir()
    fields = {"store": guarded.shop.store, "group": "eu-1", "action": "drop"}
    answer = guarded.browser(Role.OPERATOR).post("/api/decide", json=fields)
    assert (answer.status_code, "nothing was changed" in answer.json()["error"]) == (503, True)
    with open_inspector(guarded.shop.store) as inspector:
        assert inspector.pending_decisions("eu-1") == []


@pytest.mark.parametrize(
    ("headers", "address", "role"),
    [
        ({"x-user": "ann", "x-role": "operator"}, "10.0.0.9", Role.OPERATOR),
        ({"x-user": "ann"}, "10.0.0.9", Role.VIEWER),
        ({"x-user": "ann", "x-role": "king"}, "10.0.0.9", None),
        ({"x-user": "ann", "x-role": "admin"}, "10.0.0.8", None),
        ({"x-role": "admin"}, "10.0.0.9", None),
        ([("x-user", "ann"), ("x-user", "eve")], "10.0.0.9", None),
    ],
)
def test_user_headers_are_accepted_only_from_the_trusted_proxy(
    shop: Shop, tmp_path: Path, headers: Any, address: str, role: Role | None
) -> None:
    proxy = TrustedProxy(user_header="X-User", role_header="X-Role", addresses=["10.0.0.9"])
    app = console(shop.path, config=ConsoleConfig(proxy=proxy, actions_log=str(tmp_path / "a")))
    browser = TestClient(app, base_url=HOST, client=(address, 1))
    answer = browser.get("/", headers=headers)
    assert answer.status_code == (401 if role is None else 200)
    if role is not None:
        assert f"ann, {role}" in answer.text


@pytest.mark.parametrize(
    ("secrets", "told"),
    [
        ([{}], "no token is set; set one of token, token_env and token_file"),
        ([{"token": "x", "token_env": "Y"}], "token and token_env are set; set only one"),
        ([{"token": "short"}], "has 5 characters"),
        ([{"token_env": "NO_SUCH_VARIABLE"}], "variable that is not set"),
        ([{"token_file": "nowhere"}], "No such file"),
        ([{"token": "x" * 20}, {"token": "x" * 20}], "'b' and 'a' have the same token"),
    ],
)
def test_an_invalid_console_configuration_is_refused(secrets: list[dict[str, str]], told: str) -> None:
    with pytest.raises(InputError, match=told):
        console(
            "shop.db",
            config=ConsoleConfig(
                people=[
                    Account(name=name, role=Role.VIEWER, **secret) for name, secret in zip("ab", secrets, strict=False)
                ]
            ),
        )


def test_masks_apply_at_any_depth_and_in_json_texts() -> None:
    masks = MaskRules(["card.*", "*.iban", "phone"])
    message = {
        "Card": {"number": 1, "holder": {"name": "a"}},
        "items": [{"card": {"number": 2}}, {"iban": "x", "n": 3}],
        "phone": "1",
        "inner": '{"phone": "2", "n": 4}',
        "n": 5,
    }
    assert masks.payload(message) == {
        "Card": {"number": HIDDEN, "holder": HIDDEN},
        "items": [{"card": {"number": HIDDEN}}, {"iban": HIDDEN, "n": 3}],
        "phone": HIDDEN,
        "inner": f'{{"phone": "{HIDDEN}", "n": 4}}',
        "n": 5,
    }
    assert masks.payload("a text") == HIDDEN
    assert error_type("Traceback …\nValueError: 4111 is wrong") == f"ValueError: {HIDDEN}"
    with pytest.raises(InputError, match="is empty"):
        MaskRules([""])
