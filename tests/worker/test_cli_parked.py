"""The commands about parked groups serve a database as they serve a store of Spark's."""

import json
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from shop import row
from typer.testing import CliRunner

import inturn
from inturn.cli import app
from inturn.core.errors import DeliveryRefused, InputError, StoreError
from inturn.core.pipeline.decision import DecisionAction
from inturn.core.pipeline.inspection import GroupStatus
from inturn.database import Database
from inturn.queue import Queue
from inturn.results.inspection import DatabaseInspector
from inturn.worker import Worker
from inturn.worker.inspection import open_inspector
from waiting import DEADLINE_S

LEDGER = """
from inturn import Gapless, Pipeline

def post(state, message):
    if message["amount"] < 0:
        raise ValueError(f"amount {message['amount']} is below zero")
    return {"balance": state.get("balance", 0) + message["amount"]}, [message["amount"]]

ledger = Pipeline(name="ledger", group="account", order=Gapless("revision"), handler=post)
"""


def command(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return done.exit_code, " ".join(done.output.split())


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "ledger.py").write_text(LEDGER)


@pytest.fixture(params=["sqlite", "postgres"])
def at(request: pytest.FixtureRequest) -> str:
    """The pipeline, as commands are given it."""
    return f"{'shop.db' if request.param == 'sqlite' else request.getfixturevalue('postgres_url')}#ledger"


@pytest.fixture
def db(_folder: None, at: str) -> Iterator[Database]:
    """A group that failed at revision 2, one that waits for revision 1, and one that is well."""
    with inturn.open(at.removesuffix("#ledger"), durable=False) as db:
        every = [row(1), row(2, -5), row(3), row(2, account="early"), row(1, account="well")]
        work(db, every)
        yield db


def work(db: Database, messages: list[Any], **more: Any) -> Queue:
    queue = db.queue("q")
    for message in messages:
        queue.send(message, group=message["account"])
    inturn.work(definition(), queue, until="empty", **more)
    return queue


def definition() -> inturn.Pipeline:
    from inturn.definitions import load

    return load("ledger.py:ledger")


def test_parked_list_and_explain_show_the_groups_of_a_database(db: Database, at: str) -> None:
    code, output = command("parked", "list", at, "--json")
    groups = sorted((group["group"], group["status"], group["held"]) for group in json.loads(output))
    assert (code, groups) == (0, [("a", "failed", 2), ("early", "waiting", 1)])
    code, output = command("parked", "list", at)
    assert "ValueError: amount -5" in output
    assert "5 received + 0 released = 2 applied + 0 duplicate + 0 stale + 3 held" in output
    code, output = command("parked", "show", at, "a", "--json")
    assert [message["content"]["revision"] for message in json.loads(output)["messages"]] == [2, 3]
    code, output = command("explain", at, "a")
    assert output.startswith("Group a is parked since ")
    assert ": the handler raised on revision 2" in output
    assert "It holds 2 messages: revision 2, revision 3." in output
    assert "1 output of the group is not delivered." in output
    assert re.search(r'Its state after task \d: {"balance": 1}', output)
    code, output = command("explain", at, "early")
    assert output.startswith("Group early waits for revision 1")
    assert command("explain", at, "well")[1].startswith(
        "Group well is open: nothing is held; it has reached revision 1"
    )
    code, output = command("explain", at, "nobody")
    assert (code, "has no group 'nobody'" in output) == (1, True)


def test_a_missing_pipeline_or_database_is_named_with_the_existing_ones(db: Database, at: str) -> None:
    target = at.removesuffix("#ledger")
    assert "no pipeline 'legder'; existing pipelines: ledger" in command("parked", "list", f"{target}#legder")[1]
    assert "no database 'shup.db'" in command("parked", "list", "shup.db#ledger")[1]
    assert not Path("shup.db").exists()
    with pytest.raises(StoreError, match="existing pipelines: ledger"):
        open_inspector(target, "legder")


def test_errors_show_the_database_address_with_the_pipeline_and_without_the_password() -> None:
    code, output = command("parked", "list", "postgresql://ann:secret@127.0.0.1:1/shop")
    assert (code, "postgresql://ann@127.0.0.1:1/shop#PIPELINE" in output) == (1, True), output
    code, more = command("explain", "postgresql://ann:secret@127.0.0.1:1/shop#ledger", "a")
    assert (code, "postgresql://ann@127.0.0.1:1/shop: " in more) == (1, True), more
    assert "secret" not in output + more


@pytest.mark.parametrize(
    ("arguments", "status", "balance", "rejected"),
    [
        (["replace", "a", "--content", '{"amount": 5}', "--why", "a typing error"], "open", 7, {}),
        (["drop", "a"], "open", 2, {"dropped": 1}),
        (["give-up", "a"], "given up", 1, {"given up": 2}),
        (["resume", "a"], "failed", 1, {}),
        (["skip", "early"], "failed", 1, {}),
    ],
    ids=lambda value: value[0] if isinstance(value, list) and value else "",
)
@pytest.mark.parametrize("running", [True, False], ids=["taken by a worker", "taken at once"])
def test_a_decision_of_the_command_is_applied_with_or_without_a_running_worker(
    db: Database, arguments: list[str], status: str, balance: int, rejected: dict[str, int], running: bool, at: str
) -> None:
    verb, group, *options = arguments
    if running:
        with Worker(definition(), db.queue("q")):
            code, output = command("parked", verb, at, group, *options, "--by", "ann")
    else:
        code, output = command("parked", verb, at, group, *options, "--by", "ann", "--pipeline", "ledger.py:ledger")
    assert (code, f"{verb}: done." in output) == (0, True), output
    inspector = DatabaseInspector(db, "ledger")
    assert inspector.group("a").status == status
    assert inspector.group("a").state == {"balance": balance}
    assert inspector.counts().rejected == rejected
    assert inspector.counts().balanced
    if verb == "skip":
        assert inspector.group("early").skipped == [(1, 1)]
    if verb == "replace":
        with db.transaction() as tx:
            ((stored,),) = tx.execute("select decision from inturn_decision").fetchall()
        decided = json.loads(stored)
        assert (decided["by"], decided["old"]["amount"], decided["new"]["amount"]) == ("ann", -5, 5)
        assert decided["why"] == "a typing error"


def test_an_unapplied_decision_is_shown_and_applied_by_the_next_worker(db: Database, at: str) -> None:
    code, output = command("parked", "drop", at, "a", "--wait-s", "0")
    assert (code, "a worker applies it as soon as one runs" in output) == (0, True)
    assert "not yet applied: drop." in command("explain", at, "a")[1]
    work(db, [row(4)])
    assert DatabaseInspector(db, "ledger").group("a").reached == 4


def test_a_decision_is_void_if_the_group_has_changed_since(db: Database, at: str) -> None:
    inspector = DatabaseInspector(db, "ledger")
    with pytest.raises(InputError, match="has no gap"):
        inspector.decision(DecisionAction.SKIP, "well", by="ann")
    code, output = command("parked", "replace", at, "a", "--content", '{"cents": 9}', "--pipeline", "ledger.py:ledger")
    assert (code, "void" in output, "no field 'cents'" in output) == (1, True, True)
    for _ in range(2):
        command("parked", "skip", at, "early", "--wait-s", "0")
    work(db, [])
    with db.transaction() as tx:
        verdicts = [void for (void,) in tx.execute("select verdict from inturn_decision order by name").fetchall()]
    assert [bool(void) for void in verdicts] == [True, False, True]


def test_if_revision_and_if_digest_refuse_a_decision_about_a_changed_group(db: Database, at: str) -> None:
    take = ("--pipeline", "ledger.py:ledger")
    for verb in ("drop", "resume", "give-up"):
        code, output = command("parked", verb, at, "a", "--if-revision", 1, *take)
        assert (code, "the group is at revision 2, not at revision 1" in output) == (1, True), output
    code, output = command("parked", "replace", at, "a", "--content", "{}", "--if-revision", 2, "--if-epoch", 7, *take)
    assert (code, "the group is at revision 2, not at epoch 7" in output) == (1, True), output
    code, output = command("parked", "skip", at, "early", "--if-revision", 2, *take)
    assert (code, "the group waits for revision 1, not at revision 2" in output) == (1, True), output
    code, output = command("parked", "drop", at, "--all", "--if-revision", 2, *take)
    assert (code, "name that group alone" in output) == (1, True), output
    with db.transaction() as tx:
        assert tx.execute("select count(*) from inturn_decision").fetchall() == [(0,)], "nothing was recorded"
    code, output = command("parked", "drop", at, "a", "--if-digest", "0" * 64, *take)
    assert (code, "the group is at revision 2, not at the message 000" in output) == (1, True), output
    digest = json.loads(command("parked", "show", at, "a", "--json")[1])["messages"][0]["digest"]
    code, output = command("parked", "drop", at, "a", "--if-revision", 2, "--if-digest", digest, *take)
    assert (code, "drop: done." in output) == (0, True), output


def test_explain_reports_the_error_of_undelivered_outputs(db: Database, at: str) -> None:
    tried = threading.Event()

    def refuse(output: Any, effect_id: str) -> None:
        tried.set()
        msg = "the bank is closed"
        raise OSError(msg)

    with Worker(definition(), db.queue("q"), deliver=refuse, retry=inturn.Retry(1, "1 hour")):
        assert tried.wait(DEADLINE_S)
    output = command("explain", at, "well")[1]
    assert "1 output of the group is not delivered. deliver has failed 1 time: OSError: the bank is closed." in output


def test_a_refused_delivery_is_shown_and_delivered_again(db: Database, at: str) -> None:
    delivered: list[Any] = []

    def refuse(output: Any, effect_id: str) -> None:
        raise DeliveryRefused("no account of this name")

    work(db, [row(2, 7, "well")], deliver=refuse)
    assert "no further attempts: see inturn parked redeliver" in command("parked", "list", at)[1]
    listed = {group["group"]: group for group in json.loads(command("parked", "list", at, "--json")[1])}
    assert (listed["well"]["status"], listed["well"]["next_try"]) == ("refused", None)
    assert "The first was refused: " in (output := command("explain", at, "well")[1])
    assert "DeliveryRefused: no account of this name. Try again with `inturn parked redeliver`." in output
    assert [group.status for group in db.pipeline("ledger").failing()] == ["refused"] * 2
    assert command("parked", "list", at, "--limit", "9" * 20)[0] == 2
    output = command("parked", "list", at, "--limit", "1")[1]
    assert "Shown: the first 1 of 2 groups and the first 1 of 2 failing deliveries; use --limit for more" in output
    assert command("parked", "redeliver", at) == (
        1,
        "InputError: expected names of groups, or --all alone",
    )
    assert command("parked", "redeliver", at, "early", "--json") == (0, '{"groups": 0}')
    assert command("parked", "redeliver", at, "well")[1].startswith("1 group will be delivered again")
    assert db.pipeline("ledger").redeliver() == 1
    work(db, [], deliver=lambda output, effect_id: delivered.append(output))
    assert sorted(delivered) == [1, 1, 7]
    assert list(db.pipeline("ledger").failing()) == []


def test_listing_parked_groups_reads_the_states_in_small_batches(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """With those of all, a list of 100,000 groups took 40 seconds and 760 MB."""
    work(db, [row(1, -1, f"g{number}") for number in range(7)])
    monkeypatch.setattr("inturn.core.limits.RESULT_ROWS", 2)
    seen: list[int] = []

    class Counted(DatabaseInspector):
        def statuses(self, names: Sequence[str]) -> dict[str, GroupStatus]:
            seen.append(len(names))
            return super().statuses(names)

    inspector = Counted(db, "ledger")
    longest, total = inspector.longest_waits(inspector.briefs(), 3)
    assert (len([*longest]), total, seen) == (3, 9, [2, 1])
    longest, total = inspector.longest_waits(inspector.briefs())
    waits = [wait.oldest for wait in longest if wait.oldest]
    assert (waits, total) == (sorted(waits), 9)
    assert len(waits) == 9
