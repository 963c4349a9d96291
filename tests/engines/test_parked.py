"""What people see of parked groups and what they decide: in a store, in the pure timeline, and on the command line."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from inturn import Gapless, Monotone, Pipeline, Wait
from inturn.cli import app
from inturn.core.errors import InputError, StoreError
from inturn.core.pipeline.decision import Decision, DecisionAction
from inturn.core.pipeline.order import Order
from inturn.core.pipeline.replay import Replay
from inturn.spark import advance
from inturn.spark.columns.hashing import group_hash
from inturn.spark.driver.inspection import SparkInspector
from kernel_harness import DAWN, Bench, Bounds, expected

SCHEMA = pa.schema({"account": pa.string(), "revision": pa.int64(), "amount": pa.int64()})
Row = dict[str, Any]


def post(state: Row, message: Row) -> tuple[Row, list[Any]]:
    state["balance"] = state.get("balance", 0) + message["amount"]
    if message["amount"] < 0:
        msg = f"amount {message['amount']} is below zero"
        raise ValueError(msg)
    return state, [message["amount"]]


def pipeline(order: Order | None = None, **more: Any) -> Pipeline:
    return Pipeline(name="ledger", group="account", order=order or Gapless("revision"), handler=post, **more)


def row(revision: int, amount: int = 1, account: str = "a") -> Row:
    return {"account": account, "revision": revision, "amount": amount}


def bench_at(path: Path | None, ledger: Pipeline, **more: Any) -> Bench:
    bench = Bench(ledger, SCHEMA, root=path, **more)
    bench.hash_of = group_hash  # type: ignore[method-assign]  # the true one: commands compute it too
    return bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return bench_at(tmp_path / "store", pipeline(on_gap=Wait("10 minutes")))


# -- the kernel decides as the pure timeline -------------------------------------------------------------------

HISTORY = st.lists(
    st.tuples(
        st.lists(st.builds(row, st.integers(1, 5), st.sampled_from([1, 1, 2, -1]), st.sampled_from("ab")), max_size=6),
        st.lists(st.tuples(st.sampled_from(DecisionAction), st.sampled_from("ab"), st.booleans()), max_size=3),
        st.integers(0, 8),
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("order", [Gapless("revision"), Monotone("revision")], ids=["gapless", "monotone"])
@given(history=HISTORY, levels=st.sampled_from([2, 8]), stale=st.booleans())
@pytest.mark.slow
def test_decisions_on_spark_equal_the_pure_timeline(order: Order, history: Any, levels: int, stale: bool) -> None:
    gaps = {"on_gap": Wait("10 minutes")} if isinstance(order, Gapless) else {}
    ledger = pipeline(order, **gaps)
    now, replayed, late = DAWN, Replay(), list[Decision]()
    with bench_at(None, ledger, bounds=Bounds(levels=levels)) as bench:
        for messages, actions, minutes in history:
            decisions = late
            late = []
            for action, group, later in actions:
                decision = made(bench, action, group)
                (late if later and stale else decisions).extend([decision] if decision else [])
            for decision in decisions:
                bench.store.decisions.append(decision)
            now += dt.timedelta(minutes=minutes)
            replayed = ledger.replay(messages, now=now, after=replayed, decisions=decisions)
            bench.step(messages, now=now)
            assert bench.seen() == expected(replayed)
            last = bench.store.latest()
            assert last is not None
            assert {decision.name.partition("-")[2]: decision.void for decision in last.decisions} == replayed.verdicts
            assert last.parked == sum(timeline.parked in ("gap", "failed") for timeline in replayed.timelines.values())
            assert last.held == len(replayed.held)
            for counted, reported_us in (
                (replayed.timelines, last.oldest_us),
                (unparked(replayed.timelines), last.waiting_us),
            ):
                times = [e.since_us for timeline in counted.values() for e in timeline.held.values()]
                assert reported_us == min((time_us for time_us in times if time_us is not None), default=None)
        assert bench.store.pending_decisions(bench.store.latest()) == {}
        taken = [name for name in bench.store.files.names("decisions") if "/taken/" in name]
        assert len(taken) == len(bench.store.files.names("decisions"))


def unparked(timelines: dict[str, Any]) -> dict[str, Any]:
    return {group: timeline for group, timeline in timelines.items() if not timeline.parked}


def made(bench: Bench, action: DecisionAction, group: str) -> Decision | None:
    try:
        inspector = SparkInspector(bench.root)
        new = {"amount": 7} if action is DecisionAction.REPLACE else None
        return inspector.decision(action, group, by="ann", new=new)
    except (InputError, StoreError):
        return None


# -- what is told ----------------------------------------------------------------------------------------------


def test_explain_describes_a_waiting_group(bench: Bench) -> None:
    bench.step([row(1), row(4), row(5), row(1, account="other")], now=dt.datetime.now(dt.UTC))
    explanation = SparkInspector(bench.root).explain("a")
    assert "Group a waits for revisions 2 to 3 since" in explanation
    assert "it has reached revision 1" in explanation
    assert "then the group is parked" in explanation
    assert "It holds 2 messages: revision 4, revision 5." in explanation
    assert 'state after step 1: {"balance": 1}' in explanation
    assert SparkInspector(bench.root).explain("other").startswith("Group other is open: nothing is held")
    with pytest.raises(InputError, match="has no group 'nobody'"):
        SparkInspector(bench.root).explain("nobody")


def test_explain_describes_a_parked_group(bench: Bench) -> None:
    bench.step([row(1), row(3)])
    bench.step([row(1, -5, "bad")], now=DAWN + dt.timedelta(minutes=11))
    inspector = SparkInspector(bench.root)
    assert "Group a is parked: it waited for revision 2 since" in inspector.explain("a")
    explanation = inspector.explain("bad")
    assert ": the handler raised on revision 1" in explanation
    assert "ValueError: amount -5 is below zero" in explanation
    assert sorted((status.group, status.status) for status in inspector.parked()) == [("a", "gap"), ("bad", "failed")]


def test_a_group_that_continues_is_no_longer_listed_as_parked(bench: Bench) -> None:
    bench.step([row(2), row(1, -1, "bad")])
    assert {status.group for status in SparkInspector(bench.root).parked()} == {"a", "bad"}
    bench.step([row(1)])
    assert {status.group for status in SparkInspector(bench.root).parked()} == {"bad"}


# -- the commands ----------------------------------------------------------------------------------------------

LEDGER = """
from inturn import Gapless, Pipeline, Wait

def post(state, message):
    if message["amount"] < 0:
        raise ValueError(f"amount {message['amount']} is below zero")
    return {"balance": state.get("balance", 0) + message["amount"]}, [message["amount"]]

ledger = Pipeline(
    name="ledger", group="account", order=Gapless("revision"), handler=post, on_gap=Wait("10 minutes")
)
"""


def command(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return done.exit_code, " ".join(done.output.split())


@pytest.fixture
def parked(bench: Bench) -> Path:
    """A store with a group that failed at revision 2, one that waits for revision 1, and one that is well."""
    bench.step([row(1), row(2, -5), row(3), row(2, account="early"), row(1, account="well")])
    return bench.root


@pytest.fixture
def definition(tmp_path: Path) -> str:
    (tmp_path / "ledger.py").write_text(LEDGER)
    return f"{tmp_path / 'ledger.py'}:ledger"


def test_parked_list_show_and_explain_commands(parked: Path) -> None:
    code, printed = command("parked", "list", parked, "--json")
    assert (code, [(group["group"], group["status"], group["held"]) for group in json.loads(printed)]) == (
        0,
        [("a", "failed", 2), ("early", "waiting", 1)],
    )
    code, printed = command("parked", "list", parked)
    assert "ValueError: amount -5" in printed
    code, printed = command("parked", "show", parked, "a", "--json")
    assert [message["content"]["revision"] for message in json.loads(printed)["messages"]] == [2, 3]
    assert command("explain", parked, "a")[1].startswith("Group a is parked since ")
    code, printed = command("explain", parked, "nobody")
    assert (code, "has no group 'nobody'" in printed) == (1, True)


def test_parked_list_is_sorted_by_wait_and_limited(bench: Bench) -> None:
    for minute, name in enumerate("cba"):
        bench.step([row(1, -5, name)], now=DAWN + dt.timedelta(minutes=minute))
    bench.step([row(2, account="early")], now=DAWN + dt.timedelta(minutes=4))
    code, printed = command("parked", "list", bench.root, "--limit", 2)
    assert (code, [name in printed for name in ("│ c │", "│ b │", "│ a │", "early")]) == (0, [True, True, False, False])
    assert printed.endswith("Shown: the first 2 of 4 groups; use --limit for more, or --json for all.")
    code, printed = command("parked", "list", bench.root, "--limit", 3, "--error", "Value*", "--json")
    assert [group["group"] for group in json.loads(printed)] == ["c", "b", "a"]
    code, printed = command("parked", "list", bench.root, "--error", "KeyError*", "--json")
    assert (code, printed) == (0, "[]")


@pytest.mark.parametrize(
    ("arguments", "status", "balance", "rejected"),
    [
        (["replace", "a", "--content", '{"amount": 5}', "--why", "a typing error"], "open", 7, []),
        (["drop", "a"], "open", 2, ["dropped"]),
        (["give-up", "a"], "given up", 1, ["given up"] * 2),
        (["resume", "a"], "failed", 1, []),
        (["skip", "early"], "failed", 1, []),
    ],
    ids=lambda value: value[0] if isinstance(value, list) and value else "",
)
def test_parked_commands_with_a_pipeline_apply_a_decision_at_once(
    parked: Path, definition: str, arguments: list[str], status: str, balance: int, rejected: list[str]
) -> None:
    verb, group, *options = arguments
    code, printed = command("parked", verb, parked, group, *options, "--by", "ann", "--pipeline", definition)
    assert (code, f"{verb}: done." in printed) == (0, True), printed
    inspector = SparkInspector(parked)
    assert inspector.group("a").status == status
    assert inspector.group("a").state["balance"] == balance
    [stored] = [json.loads(path.read_text()) for path in parked.glob("decisions/taken/*.json")]
    assert (stored["by"], stored["action"], stored["group"]) == ("ann", verb, group)
    assert inspector.last.counts["rejected"] == ({rejected[0]: len(rejected)} if rejected else {})
    if verb == "replace":
        assert (stored["old"]["amount"], stored["new"]["amount"], stored["why"]) == (-5, 5, "a typing error")
    if verb == "skip":
        assert inspector.group("early").skipped == [(1, 1)]


def test_a_decision_without_a_pipeline_is_applied_by_the_next_step(parked: Path, bench: Bench) -> None:
    code, printed = command("parked", "drop", parked, "a")
    assert (code, "the next step applies it" in printed) == (0, True)
    assert "not yet applied: drop." in SparkInspector(parked).explain("a")
    bench.step([row(4)])
    assert SparkInspector(parked).group("a").reached == 4


def test_a_decision_about_a_changed_group_is_void(parked: Path, bench: Bench, definition: str) -> None:
    for _ in range(2):
        command("parked", "skip", parked, "early")
    bench.step([])
    last = bench.store.latest()
    assert last is not None
    assert [bool(decision.void) for decision in last.decisions] == [False, True]
    code, printed = command("parked", "skip", parked, "early", "--pipeline", definition)
    assert (code, "has no gap" in printed) == (1, True)
    code, printed = command("parked", "drop", parked, "well", "--pipeline", definition)
    assert (code, "holds no messages" in printed) == (1, True)
    code, printed = command("parked", "replace", parked, "a", "--content", '{"revision": 9}', "--pipeline", definition)
    assert (code, "void" in printed, "cannot be replaced" in printed) == (1, True, True)
    code, printed = command("parked", "replace", parked, "a", "--content", '{"cents": 9}', "--pipeline", definition)
    assert (code, "void" in printed, "no field 'cents'" in printed) == (1, True, True)
    code, printed = command("parked", "replace", parked, "a", "--content", "{", "--pipeline", definition)
    assert (code, "is not JSON" in printed) == (1, True)


def test_a_crash_before_archiving_does_not_apply_a_decision_twice(bench: Bench) -> None:
    bench.step([row(2, account="early")])
    bench.store.decisions.append(SparkInspector(bench.root).decision(DecisionAction.SKIP, "early", by="ann"))
    manifest, _ = bench.prepare([])
    bench.store.commit(manifest)  # and dies here
    bench.step([row(3, account="early")])
    last = bench.store.latest()
    assert last is not None
    assert last.decisions == []
    assert SparkInspector(bench.root).group("early").reached == 3


def test_settle_ends_waits_without_messages(bench: Bench) -> None:
    bench.step([row(2)], now=DAWN)
    report = advance(bench.pipeline, store=bench.root, now=DAWN + dt.timedelta(minutes=11))
    assert (report.step, report.counts.received) == (2, 0)
    assert SparkInspector(bench.root).group("a").status == "gap"
    with pytest.raises(StoreError, match="is not a store"):
        advance(bench.pipeline, store=bench.root / "nowhere")


# -- what lies among the decisions and is none -------------------------------------------------------------------

WHOLE = {"id": "d1", "action": "resume", "group": "a", "by": "ann", "at_us": 1764000000000000}
NAME = "1764000000000000-d1.json"
STRAYS = {
    "README.txt": b"mine",
    "empty.json": b"",
    NAME: b"",
    f"{NAME}~": json.dumps(WHOLE).encode(),
    NAME.replace("d1", "d2"): json.dumps(WHOLE).encode(),
    NAME.replace("d1", "d3"): json.dumps(WHOLE | {"id": "d3"}).encode()[:40],
    NAME.replace("d1", "d4"): json.dumps(WHOLE | {"id": "d4", "action": "explode"}).encode(),
    NAME.replace("d1", "d5"): b"\xff\xfe{}",
    f"below/{NAME}": json.dumps(WHOLE).encode(),
}


@pytest.mark.parametrize("name", STRAYS)
def test_a_stray_file_among_the_decisions_does_not_block_a_step(
    parked: Path, bench: Bench, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    stray = parked / "decisions" / "new" / name
    stray.parent.mkdir(parents=True, exist_ok=True)
    stray.write_bytes(STRAYS[name])
    command("parked", "skip", parked, "early")
    bench.step([row(4, account="other")])
    last = bench.store.latest()
    assert last is not None
    assert [decision.void for decision in last.decisions] == [None], "the skip is taken, and nothing else"
    assert caplog.messages[0].startswith(f"{stray} is not a decision and is ignored: ")

    _, printed = command("parked", "list", parked)
    assert f"decisions/new/{name} is ignored: " in printed
    assert SparkInspector(parked).explain("a")
    _, printed = command("parked", "tidy", parked, "--json")
    assert [moved["path"] for moved in json.loads(printed)] == [f"decisions/new/{name}"]
    assert (parked / "decisions" / "aside" / stray.name).read_bytes() == STRAYS[name]
    assert not stray.exists()
    assert command("parked", "tidy", parked) == (0, "Nothing to move: the store has no such files.")


def test_a_decision_file_with_a_valid_name_is_applied_whoever_wrote_it(parked: Path, bench: Bench) -> None:
    path = parked / "decisions" / "new" / NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(WHOLE))
    bench.step([])
    last = bench.store.latest()
    assert last is not None
    assert [decision.name for decision in last.decisions] == [path.stem]
