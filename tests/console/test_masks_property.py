"""Masks: whatever the rules and the messages, a viewer gets what a rule hides by no route."""

import datetime as dt
import json
import re
from fnmatch import fnmatchcase
from itertools import combinations, count
from pathlib import Path
from typing import Any

import pytest
from console_shop import AMOUNTS, HOST, Shop
from guarded import TOKENS, Guarded
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from inturn.console import ConsoleConfig, Role, console
from inturn.console.differences import FieldChange
from inturn.console.forms import FormField
from inturn.console.masks import HIDDEN, MaskRules
from inturn.console.routes import PAGES
from inturn.console.search import FoundMessage
from inturn.console.timeline_events import EventKind, TimeLineEvent
from inturn.console.views import to_json_value
from inturn.core.pipeline.inspection import GroupHistory
from inturn.core.pipeline.results import FailingDelivery, Output, RejectedMessage

NAMES = st.sampled_from(["card", "Card", "number", "iban", "customer", "items", "note", "a.b", "ключ", "é"])
RULES = st.sampled_from(
    ["card", "card.*", "*.iban", "customer.*.number", "*", "c?rd", "[ci]*", "items.0", "note", "ключ", "É", "a.b", "b"]
)
LEAVES = st.just("secret-0000-x")
CHANGES: list[dict[str, str]] = [
    {},
    {"group": "eu-8"},
    {"group": "t", "queue": "dead"},
    {"store": "none", "queue": "none"},
    {"q": "*"},
    {"q": "secret-", "within": "contents"},
]
"""Changes of the fields with which each route is asked."""


def payloads() -> st.SearchStrategy[Any]:
    """Return payloads: objects and lists at any depth, and texts that are JSON themselves, once or twice."""

    def wider(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.one_of(
            st.dictionaries(NAMES, inner, max_size=3),
            st.lists(inner, max_size=3),
            st.dictionaries(NAMES, inner, min_size=1, max_size=2).map(json.dumps),
            st.dictionaries(NAMES, inner, min_size=1, max_size=2).map(json.dumps).map(json.dumps),
            st.dictionaries(NAMES, inner, min_size=1, max_size=2).map(lambda payload: json.dumps(payload)[:-1]),
        )

    dictionaries = st.dictionaries(NAMES, st.recursive(LEAVES, wider, max_leaves=6), min_size=1, max_size=4)
    return dictionaries.map(numbered)


def numbered(payload: Any) -> Any:
    """Return a payload in which each leaf is another one."""
    numbers = count()
    return json.loads(re.sub("secret-0000-x", lambda _: f"secret-{next(numbers):04d}-x", json.dumps(payload)))


def hidden(value: Any, rules: list[str], path: tuple[str, ...] = ()) -> set[str]:
    """Return the leaves that a rule hides, told anew: some part of the path of a leaf or of what it is in fits."""
    if isinstance(value, dict):
        return set().union(*(hidden(item, rules, (*path, name.lower())) for name, item in value.items()))
    if isinstance(value, list):
        return set().union(*(hidden(item, rules, (*path, str(index))) for index, item in enumerate(value)))
    if isinstance(value, str) and not value.startswith("secret-"):
        try:
            return hidden(json.loads(value), rules, path)
        except ValueError:
            return set()  # hidden as a whole, which the shape of the answer shows
    parts = {".".join(path[begin:end]) for begin, end in combinations(range(len(path) + 1), 2)}
    return {value} if any(fnmatchcase(part, rule.lower()) for part in parts for rule in rules) else set()


@pytest.mark.soak
@given(payload=payloads(), rules=st.lists(RULES, min_size=1, max_size=3))
def test_mask_rules_remove_every_matching_value(payload: Any, rules: list[str]) -> None:
    secret = hidden(payload, rules)
    masked = json.dumps(MaskRules(rules).payload(payload), ensure_ascii=False)
    assert not [value for value in secret if value in masked]


@given(payload=payloads())
def test_mask_rules_keep_every_other_value(payload: Any) -> None:
    def is_whole(value: Any) -> bool:
        if isinstance(value, dict | list):
            return all(map(is_whole, value.values() if isinstance(value, dict) else value))
        if value.startswith("secret-"):
            return True
        try:
            return is_whole(json.loads(value))
        except ValueError:
            return False

    if is_whole(payload):
        masked = MaskRules(["no such field"]).payload(payload)
        assert json.dumps(masked, ensure_ascii=False).count("secret-") == json.dumps(payload).count("secret-")


@pytest.mark.parametrize("value", ["4111", "x{", 4111, 4.5, b"4111", '{"card": 4111', "[4111", '"4111"', "[" * 100_000])
def test_a_payload_without_fields_is_masked_as_a_whole(value: Any) -> None:
    assert "4111" not in json.dumps(MaskRules(["card"]).payload(value))
    assert MaskRules(["card"]).payload({"card": value}) == {"card": HIDDEN}


def test_rows_that_quote_messages_are_masked() -> None:
    at, card = dt.datetime.now(dt.UTC), {"card": {"number": "4111"}}
    rows = [
        FormField("card", "json", json.dumps(card["card"]), "JSON", ['"4111"']),
        FieldChange("card.number", "4111", 4111),
        FieldChange("card.number.0", "4111", "(absent)"),
        FieldChange("", card, "4111"),
        FoundMessage("shop", "queue", "payments", "eu-1", "message 1", None, card),
        TimeLineEvent(EventKind.HELD, "revision 1", content=card),
        GroupHistory(
            rejected=[RejectedMessage("eu-1", "invalid", "ValueError: 4111", json.dumps(card), at)],
            outputs=[Output("eu-1", 0, 1, None, 0, "eu-1/1/0", card)],
            delivery=FailingDelivery("eu-1", 1, 1, "ValueError: 4111", None),
        ),
    ]
    for row in rows:
        assert "4111" in json.dumps(to_json_value(row))
        assert "4111" not in json.dumps(to_json_value(MaskRules(["card"]).apply({"rows": [row]}))), row


def test_masking_a_value_of_an_unknown_type_raises_type_error() -> None:
    class Leaky:
        pass

    with pytest.raises(TypeError, match="a Leaky cannot be masked"):
        MaskRules(["card"]).apply({"stores": [Leaky()]})


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.thorough
@settings(max_examples=5, suppress_health_check=list(HealthCheck))
@given(payload=payloads(), rule=RULES)
def test_no_route_shows_a_masked_value_to_a_viewer(
    payload: Any, rule: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("masked")
    shop = Shop(folder)
    shop.send(*AMOUNTS)
    inner = {name: payload[name] for name in payload if name not in {"amount", "account", "revision"}}
    guarded = Guarded(shop, folder, inner, rule)
    secret = hidden(inner, [rule])
    viewer, operator = guarded.browser(Role.VIEWER), guarded.browser(Role.OPERATOR)
    shown = ""
    for page in PAGES:
        for path in (page.path, f"/api/{page.name}"):
            fields = guarded.fields_of(page.fields)
            for change in CHANGES:
                known = {name: (fields | change)[name] for name in fields}
                text = viewer.get(path, params=known).text
                assert not [value for value in secret if value in text], (path, known)
                shown += operator.get(path, params=known).text
    assert all(value in shown for value in secret), "an operator sees them"


def test_error_pages_show_no_masked_value_to_a_viewer(shop: Shop, tmp_path: Path) -> None:
    guarded = Guarded(shop, tmp_path)
    Path(shop.path).write_bytes(b"4111-1111-1111-1111" * 1000)
    for path in ("/", "/api/stuck", "/api/group", "/group", "/queues"):
        answer = guarded.browser(Role.VIEWER).get(
            path, params={"store": shop.store, "group": "eu-9"} if "group" in path else {}
        )
        assert "4111" not in answer.text
        assert answer.status_code in {200, 400, 503}


def test_without_mask_rules_viewers_see_contents(shop: Shop, tmp_path: Path) -> None:
    guarded = Guarded(shop, tmp_path)
    config = ConsoleConfig(people=guarded.config.people, actions_log=str(tmp_path / "log"))
    app = console(shop.path, config=config)
    viewer = TestClient(app, base_url=HOST, headers={"authorization": f"Bearer {TOKENS[Role.VIEWER]}"})
    assert "4111-1111" in viewer.get("/group", params={"store": shop.store, "group": "eu-9"}).text
