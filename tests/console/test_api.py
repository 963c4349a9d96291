"""The JSON API against its OpenAPI document: requests of every kind, right and wrong, made by schemathesis."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
import schemathesis
from console_shop import AMOUNTS, Shop
from guarded import TOKENS, Guarded
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance
from served_console import served

from inturn.console import Role, openapi

OPERATIONS = [
    pytest.param(path, method, mode, id=f"{path}-{mode.value}")
    for path, item in openapi.document()["paths"].items()
    for method, operation in item.items()
    for mode in GenerationMode
    if mode is GenerationMode.POSITIVE or operation.get("parameters", True)  # what takes nothing takes nothing wrong
]
AS_ADMIN = {"Authorization": f"Bearer {TOKENS[Role.ADMIN]}"}
_HANDLER = """
import inturn
from typing import Any

def apply(state: Any, message: Any) -> Any:
    return {"last": message}, [message]

ledger = inturn.Pipeline(name="ledger", group="account", order=inturn.Gapless("revision"), handler=apply)
"""
_LEFT_OUT: list[Callable[..., Any]] = [
    positive_data_acceptance,  # which stores and groups there are no schema can say
    ignored_auth,  # its wrong tokens would soon be answered with 429; test_routes_and_roles.py holds it
]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, list[str]]]]:
    folder = tmp_path_factory.mktemp("api")
    shop = Shop(folder)
    shop.send(*AMOUNTS)
    guarded = Guarded(shop, folder)
    people = f'[[people]]\nname = "the admin"\nrole = "admin"\ntoken = "{TOKENS[Role.ADMIN]}"\n'
    (folder / "ledger.py").write_text(_HANDLER)
    (folder / "console.toml").write_text(f'actions_log = "actions.jsonl"\n{people}')
    hints = {
        "store": [shop.store], "database": [shop.path], "queue": ["payments", "texts", "dead"], "source": ["bank"],
        "group": ["eu-1", "eu-2", "eu-9", "us-1"], "action": ["resume", "drop", "skip", "replace", "give-up"],
        "like": ["*", "eu-*"], "error": ["*", "ValueError*"], "all": ["1"], "content": ['{"amount": 1}', "[]", "{"],
        "body": ["1", '{"a": [null]}', "NaN", '"\\ud800"', "[" * 100_000], "again": ["dead"], "to": ["payments"],
        "within": ["contents"],
        "position": ["null", "1", "1" * 5000, '"x"'], "partition": ["1.jsonl"], "q": ["eu-1", "*"],
    }  # fmt: skip
    options = ["--config", str(folder / "console.toml"), "--pipeline", f"{folder}/ledger.py:ledger"]
    with served(folder, [guarded.shop.path], *options) as url:
        yield url, hints


@pytest.fixture(scope="module")
def schema(address: tuple[str, dict[str, list[str]]]) -> Any:
    """The document as it is served, with values that exist among those that may be drawn."""
    url, hints = address
    document = httpx2.get(f"{url}/openapi.json", headers=AS_ADMIN).raise_for_status().json()
    assert document.pop("security") == [{"token": []}], "every request has the token, so that none is drawn"
    for item in document["paths"].values():
        for operation in item.values():
            for parameter in operation.get("parameters", ()):
                parameter["schema"] = _hinted(
                    parameter["name"], parameter["schema"], hints, is_needed=parameter["required"]
                )
            if "requestBody" in operation:
                body = operation["requestBody"]["content"]["application/json"]["schema"]
                fields = body["properties"]
                for name in fields:
                    fields[name] = _hinted(name, fields[name], hints, is_needed=name in body["required"])
    loaded = schemathesis.openapi.from_dict(document)
    loaded.config.update(base_url=url)
    return loaded


def _hinted(name: str, schema: dict[str, Any], hints: dict[str, list[str]], *, is_needed: bool) -> dict[str, Any]:
    """Return a schema by which values that there are may be drawn; of some fields these alone, to come further."""
    if name not in hints:
        return schema
    choices = {"enum": hints[name]}
    return (
        choices
        if is_needed and name in {"store", "database", "queue", "source", "action"}
        else {"anyOf": [choices, schema]}
    )


@pytest.mark.soak
@pytest.mark.thorough
@pytest.mark.parametrize(("path", "method", "mode"), OPERATIONS)
def test_api_responses_conform_to_the_openapi_document(
    schema: Any, path: str, method: str, mode: GenerationMode
) -> None:
    examples = settings.default.max_examples if settings.default else 100
    if path == "/api/try":
        examples //= 3  # each is a process

    @settings(
        max_examples=examples if examples > 100 else max(3, examples // 12), suppress_health_check=list(HealthCheck)
    )
    @given(case=schema[path][method].as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        case.call_and_validate(headers=AS_ADMIN, excluded_checks=_LEFT_OUT)

    check()


def test_the_openapi_document_is_valid_and_lists_every_error_status(schema: Any) -> None:
    schema.validate()
    for path, item in openapi.document()["paths"].items():
        for method, operation in item.items():
            answers = set(operation["responses"])
            assert {"200", "400", "401", "403", "429", "503"} <= answers, path
            assert {"408", "413", "415"} <= answers or method == "get", path
    assert openapi.document(has_log_in=False)["security"] == []


def test_each_api_response_conforms_to_its_schema(schema: Any, address: tuple[str, dict[str, list[str]]]) -> None:
    _, hints = address
    store, database = {"store": hints["store"][0]}, {"database": hints["database"][0]}
    decision = store | {"group": "eu-2", "action": "drop", "why": "a test"}
    requests: dict[str, dict[str, Any]] = {
        "stuck": store, "group": store | {"group": "eu-9"}, "preview": store | {"action": "drop", "error": "*"},
        "queues": {}, "queue": database | {"queue": "texts"}, "sources": {}, "steps": {},
        "search": {"q": "eu", "within": "contents"},
        "decide": decision, "decided": store | {"action": "drop", "first": "none", "count": 1}, "actions": {},
        "queue/send": database | {"queue": "dead", "body": "1", "group": "a", "revision": 1, "dedup_id": "x"},
        "queue/redrive": database | {"queue": "dead"}, "queue/resume": database | {"queue": "dead", "group": "a"},
        "queue/purge": database | {"queue": "dead", "again": "dead"}, "sources/pause": database | {"source": "bank"},
        "sources/resume": database | {"source": "bank"}, "sources/seek": database | {"source": "bank"},
        "try": decision, "dead": {}, "dead/redrive": database | {"queue": "dead"},
    }  # fmt: skip
    assert {f"/api/{path}" for path in requests} == set(openapi.document()["paths"])
    for name, fields in requests.items():
        item = schema[f"/api/{name}"]
        is_read = "get" in openapi.document()["paths"][f"/api/{name}"]
        asked_so = {"query": fields} if is_read else {"body": fields, "media_type": "application/json"}
        case = item["GET" if is_read else "POST"].Case(**asked_so)
        answer = case.call_and_validate(headers=AS_ADMIN, excluded_checks=_LEFT_OUT)
        assert answer.status_code == 200, (name, answer.text)
