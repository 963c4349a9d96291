"""Dry runs: what would come is shown and nothing is written; the process has no network, no secrets and little time."""

import shutil
import socket
import subprocess
from dataclasses import astuple
from pathlib import Path

import pytest
from console_shop import HOST, Shop
from starlette.testclient import TestClient

import inturn
from inturn.cli.targets import open_inspector
from inturn.console import ConsoleConfig, console
from inturn.console.differences import ABSENT, differences
from inturn.console.dry_run import dry_run
from inturn.console.dry_run_process import DryRunRequest
from inturn.core.pipeline.decision import DecisionAction
from inturn.definitions import load
from waiting import PROGRAM_S

HANDLER = """
import ctypes, os, resource, socket, struct, subprocess, sys
import inturn

PORT = 0

def apply(state, message):
    amount = message["amount"]
    print("a handler may print")
    if amount < 0:
        raise ValueError(f"amount {amount} is below zero")
    if amount == 1001:
        socket.create_connection(("127.0.0.1", 9))
    if amount == 1002:
        subprocess.run(["touch", sys.argv[0] + "-touched"])
    if amount == 1003:
        while True:
            pass
    if amount == 1004:
        os._exit(7)
    if amount == 1006:
        raise ValueError(open(f"/proc/{os.getppid()}/environ").read())
    if amount == 1007:
        libc = ctypes.CDLL(None, use_errno=True)
        there = struct.pack("=HH4s8x", socket.AF_INET, socket.htons(PORT), socket.inet_aton("127.0.0.1"))
        failed = libc.connect(libc.socket(socket.AF_INET, socket.SOCK_STREAM, 0), there, len(there))
        raise ValueError("no network: " + os.strerror(ctypes.get_errno()) if failed else "it is connected")
    if amount == 1008:
        limits = [resource.getrlimit(each)[0] for each in (resource.RLIMIT_CPU, resource.RLIMIT_FSIZE)]
        raise ValueError(f"limits {limits}")
    if amount == 1009:
        bytearray(2**40)
    if amount == 1005:
        raise ValueError(f"it sees {sorted(set(os.environ) & {'A_SECRET', 'PGPASSWORD', 'AWS_SECRET_ACCESS_KEY'})}")
    return {"balance": (state or {}).get("balance", 0) + amount}, [{"booked": amount}]

ledger = inturn.Pipeline(name="ledger", group="account", order=inturn.Gapless("revision"), handler=apply)
other = inturn.Pipeline(name="other", group="account", order=inturn.Gapless("revision"), handler=apply)
"""


@pytest.fixture
def module(tmp_path: Path) -> str:
    path = tmp_path / "mended_ledger.py"
    path.write_text(HANDLER)
    return str(path)


def request(
    store: str, module: str, amount: int = 5, group: str = "eu-2", names: str = "other ledger"
) -> DryRunRequest:
    return DryRunRequest(
        store=store,
        definitions=[f"{module}:{name}" for name in names.split()],
        action=DecisionAction.REPLACE,
        names=[group],
        marks={},
        selection={},
        content={"amount": amount},
        sample=3,
        most=100,
    )


def test_a_dry_run_shows_state_and_outputs_and_writes_nothing(shop: Shop, module: str) -> None:
    with open_inspector(shop.store) as inspector:
        before = inspector.group("eu-2")
    answer = dry_run(request(shop.store, module))
    assert (answer.error, answer.groups, answer.outcomes) == ("", 1, {"open": 1})
    (trial,) = answer.sample
    assert (trial["state_before"], trial["state"]) == (before.state, {"balance": 5})
    assert trial["outputs"] == [{"booked": 5}]
    with open_inspector(shop.store) as inspector:
        assert inspector.group("eu-2") == before
        assert inspector.pending_decisions("eu-2") == []


@pytest.mark.parametrize(
    ("amount", "told"),
    [
        (1001, "PermissionError: a dry run may not"),
        (1002, "PermissionError: a dry run may not start a program"),
        (1005, "ValueError: it sees []"),
        (1006, "PermissionError: a dry run may not read files of other processes"),
        (1008, f"ValueError: limits [10, {64 * 2**20}]"),
        (1009, "MemoryError"),
    ],
)
def test_a_dry_run_handler_cannot_reach_network_programs_or_secrets(
    shop: Shop, module: str, amount: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("A_SECRET", "PGPASSWORD", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    answer = dry_run(request(shop.store, module, amount))
    assert answer.outcomes == {"failed": 1}
    assert told in answer.sample[0]["error"]


def test_a_dry_run_has_no_network_in_the_kernel_namespace(shop: Shop, module: str) -> None:
    """A connection that Python does not see, to a server that is there."""
    unshare = shutil.which("unshare") or pytest.skip("there is no unshare, which tells whether the kernel does it")
    if subprocess.run(
        [unshare, "--user", "--net", "true"], check=False, capture_output=True, timeout=PROGRAM_S
    ).returncode:
        pytest.skip("the kernel gives this process no network namespace of its own")
    with socket.create_server(("127.0.0.1", 0)) as server:
        path = Path(module)
        path.write_text(path.read_text().replace("PORT = 0", f"PORT = {server.getsockname()[1]}"))
        answer = dry_run(request(shop.store, module, 1007))
    assert "no network: Network is unreachable" in answer.sample[0]["error"]


@pytest.mark.parametrize(("amount", "told"), [(1003, "took longer than 2 s"), (1004, "ended with code 7")])
def test_a_dry_run_handler_that_hangs_or_exits_is_reported(shop: Shop, module: str, amount: int, told: str) -> None:
    assert told in dry_run(request(shop.store, module, amount), timeout_s=2).error


def test_a_dry_run_with_a_wrong_pipeline_definition_is_reported(shop: Shop, module: str) -> None:
    assert "'other'" in dry_run(request(shop.store, module, names="other")).error
    assert "no pipeline 'none'" in dry_run(request(shop.store, module, names="none")).error


@pytest.mark.postgres
def test_a_dry_run_works_over_postgresql(postgres_url: str, module: str) -> None:
    with inturn.open(postgres_url) as db:
        payments = db.queue("payments")
        payments.send({"amount": 7}, group="a", revision=1)
        payments.send({"amount": -5}, group="a", revision=2)
        inturn.work(load(f"{module}:ledger"), payments, until="empty")
    store = f"{postgres_url}#ledger"
    (trial,) = dry_run(request(store, module, group="a", names="ledger")).sample
    assert (trial["state_before"], trial["state"]) == ({"balance": 7}, {"balance": 12})
    answer = dry_run(request(store, module, 1001, group="a", names="ledger"))
    assert "may not" in answer.sample[0]["error"], "the store's connection is there, and no other"


def test_the_dry_run_page_shows_differences_and_records_the_decision(shop: Shop, module: str, tmp_path: Path) -> None:
    config = ConsoleConfig(actions_log=str(tmp_path / "actions"))
    app = console(shop.path, by="ann", pipelines=[f"{module}:ledger"], config=config)
    with TestClient(app, base_url=HOST) as browser:
        page = browser.get("/group", params={"store": shop.store, "group": "eu-1"}).text
        assert "try replace" in page
        token = page.split('name="token" value="')[1].split('"')[0]
        form = {"token": token, "store": shop.store, "group": "eu-1", "action": "replace"}
        form |= {"field.amount": "5", "kind.amount": "json", "field.account": "eu-1", "kind.account": "text"}
        tried = browser.post("/try", data=form).text
        assert "Nothing was written" in tried
        assert "<del>-5</del>" in tried
        assert "<ins>5</ins>" in tried
        assert "booked" in tried
        wrong = browser.post("/try", data=form | {"field.amount": "five"})
        assert (wrong.status_code, "which is not JSON" in wrong.text) == (400, True)
        fields = {"token": token, "store": shop.store, "action": "drop", "error": "ValueError*"}
        assert "2 groups" in browser.post("/try", data=fields).text.lower()
    with open_inspector(shop.store) as inspector:
        assert inspector.pending_decisions("eu-1") == []


def test_a_dry_run_without_pipelines_gets_400(shop: Shop) -> None:
    answer = shop.browser.post("/api/try", json={"store": shop.store, "group": "eu-1", "action": "resume"})
    assert (answer.status_code, "--pipeline" in answer.json()["error"]) == (400, True)
    assert "try resume" not in shop.page("/group", store=shop.store, group="eu-1")


def test_a_dry_run_request_cannot_name_code(shop: Shop, module: str) -> None:
    fields = {"store": shop.store, "group": "eu-1", "action": "resume", "definitions": f"{module}:ledger"}
    answer = shop.browser.post("/api/try", json=fields)
    assert (answer.status_code, answer.json()["error"][:24]) == (400, "no field 'definitions'; ")
    answer = shop.browser.post("/try", data=fields | {"pipeline": f"{module}:ledger", "token": shop.token()})
    assert (answer.status_code, "start the console with --pipeline" in answer.text) == (400, True)


def test_state_differences_are_listed_by_field() -> None:
    old = {"a": 1, "b": {"c": [1], "d": "x"}, "e": 1}
    new = {"a": 1, "b": {"c": [2], "d": "x"}, "f": True}
    assert [astuple(change) for change in differences(old, new)] == [
        ("b.c", [1], [2]),
        ("e", 1, ABSENT),
        ("f", ABSENT, True),
    ]
    assert [astuple(change) for change in differences(1, True)] == [("", 1, True)]
    assert differences(None, None) == []
