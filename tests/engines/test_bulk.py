"""Decisions about many groups at once, and their dry runs: the same over both databases and on Spark."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stores import KINDS, InDatabase, OnSpark, StoredLedger, ledger, mended, post, row, stored, waiting

from inturn import Monotone, Pipeline
from inturn.core import limits
from inturn.core.errors import InputError, StoreMismatch
from inturn.core.pipeline.decision import Decision, DecisionAction, shortened
from inturn.core.pipeline.dry_run import DryRun, DryRunSummary
from inturn.core.pipeline.inspection import GroupStatus
from inturn.core.pipeline.selection import DecisionReport
from inturn.results.pipeline import PipelineResults
from inturn.spark.driver.inspection import SparkInspector
from inturn.spark.driver.step import Stepper
from inturn.worker import Worker


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoredLedger]:
    """Two groups that failed, one that a gap parked, one that waits, and one that is well."""
    with stored(request.param, tmp_path, lambda: request.getfixturevalue("postgres_url")) as opened:
        opened.receive(waiting(), [row("gap", 2)])
        opened.pass_time(11)
        failed = [row(name, revision, -1) for name in ("eu-1", "us-1") for revision in (1, 2)]
        failed[1]["amount"] = 5
        opened.receive(waiting(), [*failed, row("early", 3), row("well", 1)])
        yield opened


def report_of(store: StoredLedger, report: DecisionReport, handler: Any = mended) -> DecisionReport:
    inspector = store.look()
    store.settle(waiting(handler))
    return inspector.updated(report)


def statuses(store: StoredLedger) -> dict[str, str]:
    listed = store.look().statuses(["eu-1", "us-1", "gap", "early", "well"])
    return {name: status.status for name, status in listed.items()}


# -- selection -----------------------------------------------------------------------------------------------


def test_parked_groups_are_found_by_name_and_error(store: StoredLedger) -> None:
    inspector = store.look()
    assert sorted(parked.group for parked in inspector.parked()) == ["early", "eu-1", "gap", "us-1"]
    assert sorted(parked.group for parked in inspector.parked(error="ValueError*")) == ["eu-1", "us-1"]
    assert [parked.group for parked in inspector.parked(error="ValueError*", group="eu-*")] == ["eu-1"]
    assert sorted(parked.group for parked in inspector.parked(group=["eu-*", "g*"])) == ["eu-1", "gap"]
    assert [parked.group for parked in inspector.parked(error="*the wait has expired")] == ["gap"]


@pytest.mark.parametrize(
    ("action", "chosen"),
    [
        (DecisionAction.RESUME, ["eu-1", "gap", "us-1"]),
        (DecisionAction.GIVE_UP, ["eu-1", "gap", "us-1"]),
        (DecisionAction.SKIP, ["early", "gap"]),
        (DecisionAction.DROP, ["eu-1", "us-1"]),
    ],
)
def test_all_selects_the_groups_to_which_an_action_applies(
    store: StoredLedger, action: DecisionAction, chosen: list[str]
) -> None:
    drafted = store.look().prepare(action, all=True, by="ann")
    assert sorted(decision.group for decision in drafted.decisions) == chosen
    assert drafted.void == {}


def test_a_decision_without_an_author_is_refused(store: StoredLedger) -> None:
    results, before = PipelineResults(store.look()), store.content()
    with pytest.raises(InputError, match=r'by is missing; pass the name of the person who decides, such as by="alice"'):
        results.drop("eu-1")  # type: ignore[call-arg]
    with pytest.raises(InputError, match="by is 7; expected a text"):
        results.replace("eu-1", content={"amount": 1}, by=7)  # type: ignore[arg-type]
    assert store.content() == before


def test_a_decision_without_a_selection_is_refused(store: StoredLedger) -> None:
    before = store.content()
    with pytest.raises(InputError, match="no group is selected"):
        PipelineResults(store.look()).resume(by="ann")
    with pytest.raises(InputError, match="pass either names or these"):
        PipelineResults(store.look()).drop("eu-1", by="ann", all=True)
    assert store.content() == before


# -- the verbs -----------------------------------------------------------------------------------------------


def test_resume_applies_to_several_groups(store: StoredLedger) -> None:
    report = PipelineResults(store.look()).resume(error="ValueError*", by="ann", why="mended")
    assert (report.done, report.void, sorted(report.pending)) == ([], {}, ["eu-1", "us-1"])
    report = report_of(store, report)
    assert (sorted(report.done), report.void, report.pending) == (["eu-1", "us-1"], {}, {})
    assert statuses(store) == {"eu-1": "open", "us-1": "open", "gap": "gap", "early": "waiting", "well": "open"}
    assert store.look().updated(report) == report


def test_skip_drop_replace_and_give_up_apply_to_named_groups(store: StoredLedger) -> None:
    inspector = store.look()
    reports = [
        PipelineResults(inspector).skip("early", "gap", by="ann"),
        PipelineResults(inspector).drop("eu-1", by="ann"),
        PipelineResults(inspector).replace("us-1", content={"amount": 4}, by="ann", why="a typing error"),
        PipelineResults(inspector).give_up("well", by="ann"),
    ]
    store.settle(waiting())
    assert all(not (report := inspector.updated(recorded)).void and not report.pending for recorded in reports)
    assert statuses(store) == {"eu-1": "open", "us-1": "failed", "gap": "open", "early": "open", "well": "given up"}
    assert store.look().group("us-1").reached == 1, "its second amount is below zero too"


def test_groups_that_cannot_be_decided_are_void_and_others_pending(store: StoredLedger) -> None:
    report = PipelineResults(store.look()).skip("well", "gap", "nobody", "gap", by="ann")
    assert list(report.pending) == ["gap"]
    assert "has no gap; it is open" in report.void["well"]
    assert "has no group 'nobody'" in report.void["nobody"]
    report = report_of(store, report)
    assert (report.done, len(report.void)) == (["gap"], 2)


def test_a_decision_about_a_changed_group_is_void_and_others_apply(store: StoredLedger) -> None:
    inspector = store.look()
    first, second = (
        PipelineResults(inspector).resume("eu-1", by="ann"),
        PipelineResults(inspector).resume(all=True, by="bob"),
    )
    store.settle(waiting(mended))
    assert inspector.updated(first).done == ["eu-1"]
    report = inspector.updated(second)
    assert (sorted(report.done), list(report.void)) == (["gap", "us-1"], ["eu-1"])
    assert report.void["eu-1"] == "the group has changed in the meantime: the group is not parked"
    assert store.look().updated(second) == report, "a later view knows it too"


def test_if_revision_refuses_a_decision_about_another_revision(store: StoredLedger) -> None:
    first, second = PipelineResults(store.look()), PipelineResults(store.look())
    assert second.drop("eu-1", by="bob").pending
    store.receive(waiting(), [row("eu-1", 3, -1)])
    assert store.look().held("eu-1")[0].position == 3, "another message fails now"
    first = PipelineResults(store.look())
    for decide in (first.drop, first.resume, first.give_up):
        report = decide("eu-1", by="ann", if_revision=1)
        assert report.void == {
            "eu-1": "the group has changed in the meantime: the group is at revision 3, not at revision 1"
        }
        assert not report.pending
    report = first.replace("eu-1", content={"amount": 1}, by="ann", if_epoch=1, if_revision=3)
    assert report.void == {"eu-1": "the group has changed in the meantime: the group is at revision 3, not at epoch 1"}
    report = first.skip("gap", by="ann", if_revision=2)
    assert report.void == {
        "gap": "the group has changed in the meantime: the group waits for revision 1, not at revision 2"
    }
    with pytest.raises(InputError, match="pass the name of that group only"):
        first.drop("eu-1", "us-1", by="ann", if_revision=3)
    with pytest.raises(InputError, match="pass the name of that group only"):
        first.drop(all=True, by="ann", if_revision=3)
    report = report_of(store, first.drop("eu-1", by="ann", if_revision=3), post)
    assert report.done == ["eu-1"]


def test_a_second_decision_about_replaced_content_is_void(store: StoredLedger) -> None:
    results = PipelineResults(store.look())
    first = results.replace("us-1", content={"amount": -8}, by="bob")
    second = results.drop("us-1", by="ann")
    third = results.replace("us-1", content={"amount": 3}, by="cleo")
    store.settle(waiting(post))
    inspector = store.look()
    assert inspector.updated(first).done == ["us-1"]
    for late in (second, third):
        assert inspector.updated(late).void == {
            "us-1": "the group has changed in the meantime: the content of the message was replaced"
        }
    (head, _) = inspector.held("us-1")
    assert head.content == row("us-1", 1, -8)
    replaced = PipelineResults(inspector).replace("us-1", content={"amount": 3}, by="cleo", if_digest=head.digest)
    assert report_of(store, replaced, post).done == ["us-1"]
    assert PipelineResults(inspector).drop("us-1", by="ann", if_digest="0" * 64).pending == {}


@pytest.mark.parametrize("action", ["give_up", "resume"])
def test_a_decision_about_a_group_that_changed_while_being_read_is_void(store: StoredLedger, action: str) -> None:
    """Groups are read first, and then what they hold."""
    inspector = store.look()

    def went_on(names: Any) -> dict[str, Any]:
        return {}

    inspector.heads = went_on  # type: ignore[method-assign]
    report = getattr(PipelineResults(inspector), action)("gap", "early", by="ann")
    assert report.pending == {}
    assert "changed while it was read; decide again" in report.void["gap"]


def test_if_revision_if_epoch_and_if_digest_check_their_types(store: StoredLedger) -> None:
    results = PipelineResults(store.look())
    for name, value in (("if_revision", "1"), ("if_epoch", 0.5), ("if_digest", 7)):
        with pytest.raises(InputError, match=f"{name} is "):
            results.drop("eu-1", by="ann", **{name: value})  # type: ignore[arg-type]


def test_a_pending_decision_is_void_if_the_group_changes_first(store: StoredLedger) -> None:
    results = PipelineResults(store.look())
    earlier, later = results.drop("us-1", by="bob"), results.give_up("us-1", by="ann")
    report = report_of(store, later, post)
    assert store.look().updated(earlier).done == ["us-1"]
    assert report.void == {"us-1": "the group has changed in the meantime: another message is at the group's head"}
    assert statuses(store)["us-1"] == "failed"


# -- the dry run ---------------------------------------------------------------------------------------------


def test_dry_run_reports_the_outcome_and_changes_nothing(store: StoredLedger) -> None:
    drafted, before = store.look().prepare(DecisionAction.RESUME, "eu-1", "nobody", by="ann"), store.content()
    results = {result.group: result for result in store.dry_run(waiting(mended), drafted)}
    assert store.content() == before
    assert results["nobody"].outcome == "void"
    effect = results["eu-1"]
    assert (effect.outcome, effect.void, effect.outputs, effect.rejected) == ("open", None, [-1, 5], {})
    assert "Group eu-1 would be open: its state would change from" in str(effect)
    assert "2 outputs emitted\n    output -1\n    output 5" in str(effect)
    assert "has no group 'nobody'" in str(results["nobody"])

    (retried,) = store.dry_run(waiting(post), store.look().prepare(DecisionAction.RESUME, "eu-1", by="ann"))
    assert (retried.outcome, retried.outputs) == ("failed", [])
    assert str(retried).startswith("Group eu-1 would be parked (failed): its state would not change: ")
    assert "ValueError: amount -1 is below zero" in str(retried)
    assert json.loads(json.dumps(retried.to_dict()))["outcome"] == "failed"


def test_dry_run_of_replace_shows_outputs_failures_and_void_reasons(store: StoredLedger) -> None:
    def run(**content: Any) -> DryRun:
        drafted = store.look().prepare(DecisionAction.REPLACE, "eu-1", content=content, by="ann")
        (result,) = store.dry_run(waiting(), drafted)
        return result

    assert run(amount=7).outputs == [7, 5]
    assert run(amount=-3).outcome == "failed"
    assert "fields that place a message cannot be replaced" in (run(revision=9).void or "")
    assert "no field 'cents'" in (run(cents=9).void or "")


def test_dry_run_applies_pending_decisions_first(store: StoredLedger) -> None:
    inspector = store.look()
    PipelineResults(inspector).replace("eu-1", content={"amount": 7}, by="ann")
    (result,) = store.dry_run(waiting(), inspector.prepare(DecisionAction.RESUME, "eu-1", by="bob"))
    assert result.outputs == [7, 5]
    assert result.void == "the group has changed in the meantime: the group is not parked"


def test_dry_run_refuses_a_different_pipeline(store: StoredLedger) -> None:
    drafted = store.look().prepare(DecisionAction.RESUME, "eu-1", by="ann")
    other = Pipeline(name="ledger", group="account", order=Monotone("revision"), handler=mended)
    with pytest.raises(StoreMismatch):
        list(store.dry_run(other, drafted))
    named = Pipeline(name="other", group="account", order=waiting().order, handler=mended)
    with pytest.raises(StoreMismatch, match="other"):
        list(store.dry_run(named, drafted))


def test_dry_run_summary_keeps_a_sample_of_each_outcome() -> None:
    summary = DryRunSummary(2)
    summary.add(DryRun(f"g{n}", "void" if n % 3 else None, None, None if n % 3 else _status(n)) for n in range(9))
    assert summary.outcomes == {"open": 3, "void": 6}
    assert [group.group for group in summary.sample] == ["g0", "g1", "g2", "g3"]


def _status(number: int) -> GroupStatus:
    return GroupStatus(f"g{number}", "open", 0, 1, None, [], 0, None, None, 1, {})


HISTORY = st.lists(
    st.tuples(
        st.lists(
            st.builds(row, st.sampled_from("abc"), st.integers(1, 4), st.sampled_from([1, 2, -1, -2])), max_size=7
        ),
        st.sampled_from(DecisionAction),
        st.lists(st.tuples(st.sampled_from(DecisionAction), st.sampled_from("abc")), max_size=2),
        st.sampled_from([0, 5, 12]),
        st.booleans(),
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.soak
@pytest.mark.thorough
@pytest.mark.parametrize("order", ["gapless", "monotone"])
@pytest.mark.parametrize("kind", KINDS)
def test_dry_run_equals_the_applied_decision(kind: str, order: str, request: pytest.FixtureRequest) -> None:
    url: Callable[[], str] = (
        request.getfixturevalue("postgres_schemas").next if kind == "postgres" else lambda: ":memory:"
    )

    @given(history=HISTORY)
    @settings(max_examples=max(1, settings().max_examples * (8 if kind == "postgres" else 30) // 100))
    def same(history: Any) -> None:
        def made(handler: Any) -> Pipeline:
            return waiting(handler) if order == "gapless" else ledger(handler, order=Monotone("revision"))

        with stored(kind, None, url) as store:
            for messages, action, pending, minutes, settles in history:
                store.receive(made(post), messages)
                store.pass_time(minutes)
                if settles:  # else waits may be over that nobody has ended
                    store.settle(made(post))
                for earlier, group in pending:
                    drafted = store.look().prepare(earlier, group, by="ann", content=_content(earlier))
                    store.look().record(drafted)
                _check_same(store, action, made(mended))

    same()


def _content(action: DecisionAction) -> dict[str, Any] | None:
    return {"amount": 7} if action is DecisionAction.REPLACE else None


def _check_same(store: StoredLedger, action: DecisionAction, pipeline: Pipeline) -> None:
    """A dry run of an action about all groups tells what taking it then does."""
    inspector = store.look()
    drafted = inspector.prepare(action, "a", "b", "c", by="bob", content=_content(action))
    unchanged = store.content()
    predicted = {effect.group: effect for effect in store.dry_run(pipeline, drafted)}
    assert store.content() == unchanged
    outputs, rejected = store.outputs(), Counter(store.rejected())
    report = inspector.record(drafted)
    store.settle(pipeline)
    report = inspector.updated(report)
    assert not report.pending
    assert {name: effect.void for name, effect in predicted.items() if effect.void} == report.void
    assert sorted(report.done) == sorted(name for name, effect in predicted.items() if not effect.void)
    after = store.look().statuses(["a", "b", "c"])
    decided = {decision.group for decision in drafted.decisions}
    for name in decided & after.keys():
        assert _place(predicted[name].after) == _place(after[name])
        own_outputs = [output for group, output in store.outputs() if group == name]
        assert predicted[name].outputs == own_outputs[sum(group == name for group, _ in outputs) :]
        new = Counter(store.rejected()) - rejected
        assert predicted[name].rejected == {reason: count for (group, reason), count in new.items() if group == name}


def _place(status: GroupStatus | None) -> tuple[Any, ...]:
    assert status is not None
    return (status.status, status.epoch, status.reached, status.error, status.skipped, status.held, status.state)


# -- ten thousand --------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "count"), [("sqlite", 10_000), ("postgres", 2_000), ("spark", 10_000)])
def test_resume_of_thousands_of_groups_takes_one_step(
    kind: str, count: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with stored(kind, tmp_path, lambda: request.getfixturevalue("postgres_url")) as store:
        store.receive(ledger(), [row(f"g-{n:05d}", 1, -2 if n < 100 else -1) for n in range(count)])
        inspector = store.look()
        outcomes = DryRunSummary(1)
        outcomes.add(store.dry_run(ledger(mended), inspector.prepare(DecisionAction.RESUME, all=True, by="ann")))
        assert outcomes.outcomes == {"open": count - 100, "failed": 100}
        report = PipelineResults(inspector).resume(group="g-*", error="ValueError*", by="ann")
        assert len(report.pending) == count
        if isinstance(store, OnSpark):
            assert len(store.bench.store.files.names("decisions/new")) == 1
        store.settle(ledger(mended))
        report = inspector.updated(report)
        assert (len(report.done), report.void, report.pending) == (count, {}, {})
        assert sum(1 for _ in store.look().parked(error="KeyError*")) == 100
        assert sum(1 for _ in store.look().parked()) == 100
        if isinstance(store, OnSpark):
            last = store.bench.store.latest()
            assert last is not None
            assert (last.step, len(last.decisions), last.counts["released"]) == (2, 1, count - 100)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_concurrent_bulk_decisions_beside_a_running_worker_apply_once(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    count = 300
    with stored(kind, tmp_path, lambda: request.getfixturevalue("postgres_url")) as store:
        assert isinstance(store, InDatabase)
        store.receive(ledger(), [row(f"g-{n}", 1, -1) for n in range(count)])
        inspector = store.look()
        with Worker(ledger(mended), store.queue) as worker:
            reports = [PipelineResults(inspector).resume(all=True, by=name) for name in ("ann", "bob", "cleo")]
            while any(report.pending for report in reports):
                worker.check()
                reports = [inspector.updated(report) for report in reports]
        done = [group for report in reports for group in report.done]
        assert len(done) == len(set(done)) == count, "each group was resumed once, and else it was void"
        voids = [reason for report in reports for reason in report.void.values()]
        overtaken = (
            "the group has changed in the meantime: the group is not parked",
            "holds no messages",
        )
        assert all(reason.endswith(overtaken) for reason in voids)
        assert not list(store.look().parked())


# -- files with many decisions ---------------------------------------------------------------------------------


@pytest.fixture
def on_spark(tmp_path: Path) -> Iterator[OnSpark]:
    with stored("spark", tmp_path, str) as opened:
        assert isinstance(opened, OnSpark)
        opened.receive(ledger(), [row(name, 1, -1) for name in "abcde"])
        yield opened


def new_files(store: OnSpark) -> list[Path]:
    return sorted((store.bench.root / "decisions" / "new").iterdir())


def test_a_bulk_decision_file_is_refused_as_a_single_decision(on_spark: OnSpark) -> None:
    PipelineResults(on_spark.look()).resume(all=True, by="ann")
    (path,) = new_files(on_spark)
    document = json.loads(path.read_text())
    assert next(iter(document)) == "action"
    assert document["action"] == "many"
    assert path.name == f"{document['at_us']:016d}-{document['id']}.json"
    # A version that knows single decisions only refuses the file by name, and neither takes nor loses it.
    assert "many" not in tuple(DecisionAction)
    with pytest.raises(InputError, match="action='many'"):
        Decision(**{"by": "", "group": "", **{name: document[name] for name in ("id", "action", "at_us")}})


def test_a_damaged_bulk_decision_file_is_skipped(on_spark: OnSpark) -> None:
    PipelineResults(on_spark.look()).resume(all=True, by="ann")
    (path,) = new_files(on_spark)
    text = path.read_text()
    document = json.loads(text)
    for broken in (
        text[: len(text) // 2],
        json.dumps(document | {"decisions": []}),
        json.dumps(document | {"decisions": [{"action": "explode"}]}),
        json.dumps(document | {"id": "another"}),
    ):
        path.write_text(broken)
        assert [stray.path for stray in on_spark.bench.store.decisions.strays()] == [f"decisions/new/{path.name}"]
        assert on_spark.bench.store.pending_decisions(None) == {}
    path.write_text(text)
    assert len(on_spark.bench.store.pending_decisions(None)) == 5


def test_a_step_applies_whole_decision_files_up_to_a_limit(on_spark: OnSpark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DECISIONS_AT_ONCE", 2)
    inspector = on_spark.look()
    report = PipelineResults(inspector).resume(all=True, by="ann")
    assert len(new_files(on_spark)) == 3
    done = []
    for _ in range(3):
        on_spark.receive(ledger(mended), [])
        done.append(len(inspector.updated(report).done))
    assert done == [2, 4, 5]
    assert new_files(on_spark) == []
    assert SparkInspector(on_spark.at).updated(report) == inspector.updated(report)


def test_a_crash_before_archiving_does_not_apply_a_bulk_decision_twice(on_spark: OnSpark) -> None:
    inspector = on_spark.look()
    report = PipelineResults(inspector).resume(all=True, by="ann")
    on_spark.bench.pipeline = ledger(mended)
    manifest, _ = on_spark.bench.prepare([])
    on_spark.bench.store.commit(manifest)  # and dies here
    assert len(new_files(on_spark)) == 1
    assert len(inspector.updated(report).done) == 5
    on_spark.bench.step([])
    assert on_spark.bench.store.manifest(3).decisions == []
    assert new_files(on_spark) == []


def test_a_step_plan_contains_long_content_as_digests(on_spark: OnSpark) -> None:
    """It is sent to every task."""
    inspector = on_spark.look()
    (drop,) = inspector.prepare(DecisionAction.DROP, "a", by="ann").decisions
    inspector.decide(replace(drop, old={**(drop.old or {}), "note": "long " * 100}))
    PipelineResults(inspector).drop("b", by="ann")
    PipelineResults(inspector).replace("c", content={"amount": 3}, by="ann")
    every = on_spark.bench.store.pending_decisions(None).values()
    assert all(decision.old for decision in every)
    plan = Stepper(ledger(), on_spark.at, without_spark=True).plan(None, None, final=False)
    old = {decision.group: decision.old for decision in plan.decisions.values()}
    assert {name: message and message["amount"] for name, message in old.items()} == {"a": -1, "b": -1, "c": -1}
    assert old["a"] is not None
    assert re.fullmatch("sha256:[0-9a-f]{64}", old["a"]["note"])
    assert shortened(old["a"]) == old["a"]
