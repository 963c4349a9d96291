"""``inturn ingest rejected``, ``resend`` and ``purge`` as their users have them."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import inturn
from inturn.cli import app
from inturn.ingest import FolderSource, Ingest, MessageMapping, SourceControl, Webhook, WebhookApp
from inturn.store.sources import RejectedPlace
from inturn.store.sql.sources import SqlSources
from postgres_schemas import Schemas

CONFIG = """
[[sources]]
name = "bank"
kind = "folder"
queue = "shop.db#payments"
path = "drop"

[sources.mapping]
group = "body.GROUP"
revision = "body.n"
"""
BODIES = [b'{"account": "a", "n": 1}', b"\xff\xfe \\xff", b'{"account": "a", "n": 2}', b'{"account": "b", "n": "x"}']


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "240")
    Path("drop").mkdir()
    Path("drop/1.jsonl").write_bytes(b"\n".join(BODIES))
    Path("ingest.toml").write_text(CONFIG.replace("GROUP", "user"))
    assert (
        run("ingest", "run", "ingest.toml", "--until-caught-up").stdout == "bank: 0 received, 4 rejected, 0 ignored\n"
    )
    Path("ingest.toml").write_text(CONFIG.replace("GROUP", "account"))
    return tmp_path


def run(*arguments: object, answer: str | None = None) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=answer)


def said(*arguments: object) -> list[Any]:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def numbers() -> list[int]:
    return [row["number"] for row in said("ingest", "rejected", "shop.db#bank")]


def test_ingest_rejected_json_round_trips_any_bytes() -> None:
    rejected = said("ingest", "rejected", "shop.db#bank")
    assert [base64.b64decode(row["body_base64"]) for row in rejected] == BODIES
    assert [row["body"] for row in rejected] == [BODIES[0].decode(), None, BODIES[2].decode(), BODIES[3].decode()]
    assert {(row["key"], row["key_base64"]) for row in rejected} == {(None, None)}


def test_resend_dry_run_then_selected_records_then_all() -> None:
    dry = run("ingest", "resend", "shop.db#bank", "ingest.toml", "--all", "--dry-run").stdout.splitlines()
    assert dry[0] == "1 1.jsonl 1: send: group a, revision 1, id None"
    assert dry[1].startswith("2 1.jsonl 2: stay: the body is not JSON")
    assert dry[-1] == "resend, dry run: 2 records would be sent, 2 would stay rejected. Nothing was written."
    rows = said("ingest", "resend", "shop.db#bank", "ingest.toml", "--all", "--dry-run")
    assert [row["outcome"] for row in rows] == ["send", "stay", "send", "stay"]
    assert numbers() == [1, 2, 3, 4]
    done = run("ingest", "resend", "shop.db#bank", "ingest.toml", "--number", 3, "--number", 99)
    assert done.stdout == "resend: 1 record of bank sent; 0 stay rejected.\n"
    (counts,) = said("ingest", "resend", "shop.db#bank", "ingest.toml", "--partition", "1.jsonl")
    assert counts == {
        "source": "bank",
        "action": "resend",
        "sent": 1,
        "repeated": 0,
        "ignored": 0,
        "moved": 0,
        "stayed": 2,
    }
    with inturn.open("shop.db") as db:
        assert [message.revision for message in db.queue("payments").peek()] == [2, 1]
    ((status,),) = said("ingest", "status", "shop.db")
    assert (status["received"], status["rejected"], status["kept"], status["dropped"]) == (2, 4, 2, 0)


def test_resend_fails_on_a_full_queue_and_resumes_when_repeated() -> None:
    with inturn.open("shop.db") as db:
        db.queue("payments").configure(max_depth=1)
        first = run("ingest", "resend", "shop.db#bank", "ingest.toml", "--all")
        assert first.exit_code == 1
        assert "1 record already sent" in first.stderr
        assert [message.revision for message in db.queue("payments").peek()] == [1]
        db.queue("payments").purge()
        assert run("ingest", "resend", "shop.db#bank", "ingest.toml", "--all").exit_code == 0
        assert [message.revision for message in db.queue("payments").peek()] == [2]


def test_purge_asks_and_removes_the_selected_records() -> None:
    dry = run("ingest", "purge", "shop.db#bank", "--number", 2, "--dry-run")
    assert dry.stdout == "purge, dry run: 1 rejected record of bank, 9 bytes, would be removed. Nothing was written.\n"
    refused = run("ingest", "purge", "shop.db#bank", "--all", answer="n\n")
    assert refused.exit_code == 1
    assert "Remove 4 rejected records of bank permanently?" in refused.stdout
    assert numbers() == [1, 2, 3, 4]
    assert run("ingest", "purge", "shop.db#bank", "--number", 2, "--yes").exit_code == 0
    assert numbers() == [1, 3, 4]
    assert said("ingest", "purge", "shop.db#bank", "--all", "--yes") == [
        {"source": "bank", "action": "purge", "removed": 3}
    ]
    assert numbers() == []


@pytest.mark.parametrize(
    "selection", [["--partition", "1.jsonl"], ["--number", 2, "--partition", "1.jsonl"], ["--all"]]
)
def test_purge_reads_the_places_of_the_rejected_records_once(
    monkeypatch: pytest.MonkeyPatch, selection: list[object]
) -> None:
    reads = []
    read = SqlSources.rejected_places

    def counted(sources: SqlSources, source: str) -> list[RejectedPlace]:
        reads.append(source)
        return read(sources, source)

    monkeypatch.setattr(SqlSources, "rejected_places", counted)
    assert said("ingest", "purge", "shop.db#bank", "--yes", *selection)[0]["removed"] == (1 if 2 in selection else 4)
    assert reads == ["bank"]


def test_purge_of_a_partition_without_the_selected_numbers_removes_nothing() -> None:
    Path("drop/2.jsonl").write_bytes(b"1\n")
    assert run("ingest", "run", "ingest.toml", "--until-caught-up").exit_code == 0
    assert said("ingest", "purge", "shop.db#bank", "--yes", "--number", 1, "--partition", "2.jsonl")[0]["removed"] == 0
    assert numbers() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("resend", "shop.db#bank", "ingest.toml"), "--all"),
        (("purge", "shop.db#bank", "--yes"), "--all"),
        (("purge", "shop.db#bank", "--yes", "--all", "--number", 1), "--all"),
        (("purge", "shop.db#typo", "--yes", "--all"), "no source 'typo'"),
        (("rejected", "shop.db#typo"), "existing: bank"),
        (
            ("purge", "shop.db#bank", "--yes", "--partition", "2.jsonl"),
            "no partition '2.jsonl'; existing partitions: 1.jsonl",
        ),
        (
            ("resend", "shop.db#bank", "ingest.toml", "--partition", "%"),
            "no partition '%'; existing partitions: 1.jsonl",
        ),
        (("resend", "shop.db#other", "ingest.toml", "--all"), "existing sources: bank"),
        (("resend", "other.db#bank", "ingest.toml", "--all"), "another database"),
        (("resend", "shop.db", "ingest.toml", "--all"), "shop.db#bank"),
        (("resend", "shop.db#bank", "none.toml", "--all"), "none.toml"),
    ],
)
def test_an_invalid_selection_or_configuration_changes_nothing(arguments: tuple[Any, ...], text: str) -> None:
    done = run("ingest", *arguments)
    assert done.exit_code != 0
    assert text in done.stderr
    assert numbers() == [1, 2, 3, 4]


def test_rejected_webhook_requests_are_resent_with_the_server_config() -> None:
    webhook = Webhook(name="shop", queue="orders", signature="none", mapping=MessageMapping(group="body.user"))
    with inturn.open("shop.db") as db:
        WebhookApp(db, [webhook])
        db.writer.run(webhook.command({}, b'{"order": "o1"}', db.writer.clock()))
    rows = said("ingest", "status", "shop.db#shop")[0]
    assert [(row["partition"], row["kept"], row["status"]) for row in rows] == [("webhook", 1, "webhook")]
    place = "5 webhook: the record has no group"
    assert run("ingest", "rejected", "shop.db#shop").stdout == f'{place}: {{"order": "o1"}}\n'
    Path("server.toml").write_text(
        '[[webhooks]]\nname = "shop"\nqueue = "orders"\nsignature = "none"\nmapping = { group = "body.order" }\n'
    )
    dry = run("ingest", "resend", "shop.db#shop", "server.toml", "--all", "--dry-run").stdout
    assert dry.startswith("5 webhook: send: group o1, ")
    assert "existing webhooks: shop" in run("ingest", "resend", "shop.db#none", "server.toml", "--all").stderr
    assert run("ingest", "resend", "shop.db#shop", "server.toml", "--all").exit_code == 0
    with inturn.open("shop.db") as db:
        assert [message.group for message in db.queue("orders").peek()] == ["o1"]
        assert SourceControl(db, "shop").rejected_total() == (0, 0)


@pytest.mark.parametrize(
    "kind",
    [
        'kind = "folder"\npath = "gone"',
        'kind = "outbox"\ndatabase = "gone.db"\ntable = "outbox"',
        'kind = "rabbitmq"\nfrom_queue = "orders"',
    ],
)
def test_resend_does_not_need_the_source_settings(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INTURN_RABBITMQ_URL", raising=False)
    table = CONFIG.replace("GROUP", "account").replace('kind = "folder"', kind).replace('path = "drop"\n', "")
    Path("ingest.toml").write_text(table)
    assert said("ingest", "resend", "shop.db#bank", "ingest.toml", "--all")[0]["sent"] == 2


def test_resend_matches_the_source_by_its_exact_database_address(postgres_schemas: Schemas) -> None:
    first, second = postgres_schemas.new(), postgres_schemas.new()
    with inturn.open(second) as db:
        db.queue("payments")
        wrong = MessageMapping(group="body.none")
        Ingest(FolderSource("drop"), db.queue("orders"), wrong, name="bank").run(until="caught up")
    Path("two.toml").write_text(
        CONFIG.replace("shop.db", first).replace("GROUP", "user")
        + CONFIG.replace("shop.db#payments", f"{second}#orders").replace("GROUP", "account")
    )
    other = second.replace("postgresql://", "postgres://")  # the same database in another spelling
    refused = run("ingest", "resend", f"{other}#bank", "two.toml", "--all")
    assert refused.exit_code == 1
    schemas = [address.rpartition("%3D")[2] for address in (first, second)]
    assert all(text in refused.stderr for text in [*schemas, "write the address as there"])
    assert said("ingest", "resend", f"{second}#bank", "two.toml", "--all")[0]["sent"] == 2
    with inturn.open(second) as db:
        assert [message.revision for message in db.queue("orders").peek()] == [1, 2]
        assert not db.queue("payments").peek()


def test_ingest_status_shows_dropped_records_and_the_configured_limit() -> None:
    Path("small.toml").write_text(CONFIG.replace("path =", "max_rejected = 5\npath ="))
    Path("drop/2.jsonl").write_bytes(b"1\n2\n3\n")
    assert run("ingest", "run", "small.toml", "--until-caught-up").exit_code == 0
    (rows,) = said("ingest", "status", "shop.db#bank")
    assert [(row["partition"], row["kept"], row["dropped"]) for row in rows] == [
        ("1.jsonl", 4, 0),
        ("2.jsonl", 1, 2),
    ]
    assert "dropped" in run("ingest", "status", "shop.db").stdout
