"""The audit finds each fault that was put into a log, and nothing else."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from programs.faulty import DDL, SPOILERS, Fault, spoiled
from pyspark.sql import DataFrame, SparkSession

from inturn.core.errors import InputError, PipelineError
from inturn.spark import audit
from inturn.spark.audit.report import FaultKind


def frame(spark: SparkSession, log: list[dict[str, Any]], ddl: str = DDL) -> DataFrame:
    """The log as rows in the order of arrival."""
    return spark.createDataFrame([tuple(message.values()) for message in log], ddl).coalesce(1)


def found_in(spark: SparkSession, out: Path) -> Counter[Fault]:
    """What the files of an audit say: (kind, group, place) of each message, and of each revision that is lost."""
    faults: Counter[Fault] = Counter()
    for row in spark.read.parquet(str(out / "messages")).collect():
        message = row.message
        faults[row.kind, message.account, message.revision] += 1
    if (out / "gaps").exists():
        for row in spark.read.parquet(str(out / "gaps")).where("not open").collect():
            faults.update(("gap", row.group, revision) for revision in range(row["first"], row["last"] + 1))
    return faults


@pytest.mark.slow
@pytest.mark.soak
def test_an_audit_finds_every_injected_fault_and_no_other(spark: SparkSession, tmp_path: Path, soak_seed: int) -> None:
    log, injected = spoiled(soak_seed)
    report = audit(frame(spark, log), group="account", order="revision", id="id", out=str(tmp_path / "report"))
    truth = {fault: kind for kind, faults in injected.items() for fault in faults}
    matrix: Counter[tuple[str, str]] = Counter()
    for fault, times in found_in(spark, tmp_path / "report").items():
        matrix[truth.get(fault, "nothing"), fault[0]] += times
    kinds = [kind for kind in SPOILERS if injected[kind]]
    assert matrix == Counter({(kind, kind): len(injected[kind]) for kind in kinds}), matrix
    assert {kind: report.found[FaultKind(kind)].messages for kind in kinds} == {
        kind: len(injected[kind]) for kind in kinds
    }
    assert set(report.found) == set(kinds)
    assert report.messages == len(log)
    assert report.groups == len({message["account"] for message in log} - {None})
    assert report.gaps is not None
    assert report.gaps.open == report.gaps.open_revisions == 4, "what may still be under way is not lost"


def test_an_audit_by_time_reports_ties_duplicates_and_lateness(spark: SparkSession) -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)

    def at(minutes: float) -> datetime:
        return noon + timedelta(minutes=minutes)

    log = [
        ("a", at(0), "first", 1),
        ("a", at(10), "second", 2),
        ("a", at(3), "late by 7 minutes", 3),
        ("a", at(10), "second", 2),
        ("a", at(10), "at the same time", 4),
        ("b", at(60), "first", 5),
        ("b", at(59.5), "late by half a minute", 6),
    ]
    df = spark.createDataFrame(log, "device string, seen timestamp, text string, n bigint").coalesce(1)
    report = audit(df, group="device", order_by="seen")
    assert {kind: (count.messages, count.groups) for kind, count in report.found.items()} == {
        FaultKind.DUPLICATE: (1, 1),
        FaultKind.TIE: (1, 1),
        FaultKind.LATE: (2, 2),
    }
    assert report.late is not None
    assert report.late.behind.most == 420
    assert report.late.positions.most == 1
    assert (report.began, report.ended) == (at(0), at(60))
    assert report.gaps is None
    assert report.grade is not None
    assert report.grade.line == (
        'Pipeline(name="messages", group="device", order=Timestamp("seen", lateness="10 minutes"), id="n", '
        "handler=apply)"
    )


def test_a_message_with_an_already_seen_time_is_counted_as_late(spark: SparkSession) -> None:
    log = [("a", 5, "1"), ("a", 9, "2"), ("a", 5, "3"), ("a", 9, "4"), ("a", 1, "5"), ("a", 1, "6")]
    df = spark.createDataFrame(log, "g string, s bigint, id string").selectExpr("g", "timestamp_seconds(s) as at", "id")
    report = audit(df.coalesce(1), group="g", order_by="at", id="id")
    assert {kind: count.messages for kind, count in report.found.items()} == {FaultKind.TIE: 3, FaultKind.LATE: 3}
    assert report.late is not None
    assert (report.late.positions.most, report.late.behind.most) == (5, 8), "since the first that overtook it"


@pytest.mark.slow
def test_lateness_and_gap_age_are_measured_by_the_time_column(spark: SparkSession) -> None:
    def row(group: str, revision: int, second: int) -> tuple[str, int, datetime]:
        return group, revision, datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second)

    log = [row("a", 1, 0), row("a", 3, 10), row("a", 4, 20), row("a", 2, 40), row("a", 5, 3600)]  # 2 is 30 s late
    log += [row("lost", 1, 0), row("lost", 3, 3000)]  # nothing came behind it, and yet too long ago
    log += [row("open", 1, 0), row("open", 3, 3580)]
    df = spark.createDataFrame(log, "g string, revision bigint, received_at timestamp").coalesce(1)
    report = audit(df, group="g", order="revision", out=None)
    assert report.keys.time == "received_at"
    assert report.late is not None
    assert report.late.seconds is not None
    assert (report.late.seconds.most, report.late.positions.most) == (30, 2)
    assert report.gaps is not None
    assert {gap.group: (gap.open, gap.age_s) for gap in report.gaps.largest} == {
        "lost": (False, 600),
        "open": (True, 20),
    }
    assert report.gaps.oldest_open_s == 20
    assert report.samples[FaultKind.LATE] == ["a at 2, 2 messages late (30 seconds)"]
    patient = audit(df, group="g", order="revision", patience="1 hour")
    assert patient.gaps is not None
    assert (patient.gaps.lost, patient.gaps.open) == (0, 2)
    assert patient.unexpected_faults() == [FaultKind.LATE]


@pytest.mark.slow
def test_a_delivery_column_that_makes_duplicates_differ_is_named(spark: SparkSession) -> None:
    log = [("a", 1, "x", 100), ("a", 2, "y", 101), ("a", 1, "x", 102), ("b", 1, "x", 103), ("b", 1, "x", 104)]
    df = spark.createDataFrame([*log, ("b", 1, "other", 105)], "g string, n int, says string, seq int").coalesce(1)
    report = audit(df, group="g", order="n")
    assert [(differing.columns, differing.part) for differing in report.differ] == [
        (["says", "seq"], 0.5),
        (["seq"], 0.5),
    ]
    assert report.grade is not None
    assert "50% of the contradicting messages differ only in seq: " in report.grade.needs[0]
    mended = audit(df, group="g", order="n", ignore=["seq"])
    assert {kind: count.messages for kind, count in mended.found.items()} == {
        FaultKind.DUPLICATE: 2,
        FaultKind.CONFLICT: 1,
    }
    assert [differing.columns for differing in mended.differ] == [["says"]]


@pytest.mark.slow
def test_epochs_given_by_a_column_are_not_faults(spark: SparkSession) -> None:
    log = [("a", 1, 1), ("a", 1, 2), ("a", 2, 1), ("a", 2, 3), ("b", 1, 1)]
    df = spark.createDataFrame(log, "g string, boot int, revision int").coalesce(1)
    report = audit(df, group="g", order="revision", epoch="boot")
    assert report.epochs == 1
    assert report.unexpected_faults() == []
    assert report.gaps is not None
    assert [(gap.group, gap.epoch, gap.first, gap.open) for gap in report.gaps.largest] == [("a", 2, 2, True)]
    blind = audit(df, group="g", order="revision")
    assert FaultKind.RESET not in blind.found, "one revision twice and a hole is too little to tell a reset by"
    assert set(blind.found) == {FaultKind.CONFLICT}


@pytest.mark.parametrize("start", [0, 1])
def test_a_group_without_its_first_revisions_has_a_gap(spark: SparkSession, start: int) -> None:
    log = [(g, start + n) for g in "abc" for n in range(8) if (g, n) not in {("b", 0), ("b", 1)}]
    df = spark.createDataFrame(log, "g string, revision bigint").coalesce(1)
    report = audit(df, group="g", order="revision")
    assert report.keys.start == start
    assert report.gaps is not None
    assert [(gap.group, gap.first, gap.last, gap.open) for gap in report.gaps.largest] == [
        ("b", start, start + 1, False)
    ]
    assert report.grade is not None
    order = 'Gapless("revision")' if start else 'Gapless("revision", start=0)'
    assert f"order={order}, on_gap=Wait(" in report.grade.line or report.grade.name == "Monotone"


@pytest.mark.parametrize(("first", "second"), [(-(2**63), 1 - 2**63), (2**63 - 2, 2**63 - 1)])
@pytest.mark.slow
def test_minimal_and_maximal_revisions_are_classified_like_others(spark: SparkSession, first: int, second: int) -> None:
    log = [("a", first, "x"), ("a", first, "x"), ("a", second, "y"), ("a", second, "y"), ("a", second, "z")]
    df = spark.createDataFrame(log, "account string, revision bigint, says string").coalesce(1)
    report = audit(df, group="account", order="revision")
    assert {str(kind): count.messages for kind, count in report.found.items()} == {"duplicate": 2, "conflict": 1}
    assert report.gaps is not None
    assert report.gaps.lost == report.gaps.open == 0


def test_a_log_truncated_at_its_beginning_has_no_initial_gap(spark: SparkSession) -> None:
    log = [(g, 500 + 7 * index + n) for index, g in enumerate("abc") for n in range(8)]
    report = audit(spark.createDataFrame(log, "g string, revision bigint").coalesce(1), group="g", order="revision")
    assert report.keys.start is None
    assert report.unexpected_faults() == []
    assert report.grade is not None
    assert report.grade.line.endswith('order=Gapless("revision", start="first"), handler=apply)')
    assert report.grade.gives["applied"] == 24


@pytest.mark.slow
def test_groups_starting_at_zero_and_at_one_have_no_faults(spark: SparkSession) -> None:
    log = [(g, start + n) for g, start in {"a": 1, "b": 1, "c": 1, "d": 0}.items() for n in range(8)]
    report = audit(spark.createDataFrame(log, "g string, n bigint").coalesce(1), group="g", order="n")
    assert report.unexpected_faults() == []
    assert report.grade is not None
    assert 'order=Gapless("n", start="first")' in report.grade.line
    assert report.grade.gives["applied"] == 32
    late = audit(spark.createDataFrame([*log[1:], log[0]], "g string, n bigint").coalesce(1), group="g", order="n")
    assert late.grade is not None
    assert 'order=Gapless("n", start=0), on_gap=Wait("10 minutes", then="skip")' in late.grade.line


def test_a_counter_that_falls_to_its_start_is_reported_as_reset(spark: SparkSession) -> None:
    log = [("device", n) for n in (*range(5000, 5020), *range(30))]
    report = audit(spark.createDataFrame(log, "g string, n bigint").coalesce(1), group="g", order="n", start=0)
    assert report.found[FaultKind.RESET].messages == 1
    assert FaultKind.LATE not in report.found


@pytest.mark.parametrize(
    ("rows", "messages", "groups"),
    [([], 0, 0), ([("a", 1)], 1, 1), ([(None, 1)], 1, 0), ([("a", None)], 1, 0)],
)
@pytest.mark.slow
def test_an_audit_of_an_empty_or_one_message_log_writes_a_report(
    spark: SparkSession, tmp_path: Path, rows: list[tuple[Any, ...]], messages: int, groups: int
) -> None:
    df = spark.createDataFrame(rows, "g string, revision bigint").coalesce(1)
    report = audit(df, group="g", order="revision", out=str(tmp_path / "report"))
    assert (report.messages, report.groups) == (messages, groups)
    assert (report.grade is not None) == bool(groups)
    assert (tmp_path / "report" / "report.html").read_text()


@pytest.mark.slow
def test_an_audit_without_an_order_rates_the_columns(spark: SparkSession) -> None:
    log = [
        (
            f"account {n % 7}",
            n // 7 + 1,
            1000 + 3 * n,
            (n * 7919) % 1000,
            "EUR",
            datetime.fromtimestamp(n, UTC),
            f"tx-{n}",
        )
        for n in range(700)
    ]
    columns = "account string, version bigint, position bigint, amount bigint, currency string, at timestamp, tx string"
    report = audit(spark.createDataFrame(log, columns).coalesce(1), group="account")
    assert [(column.name, column.grade) for column in report.columns] == [
        ("version", "Gapless"),
        ("at", "Timestamp"),
        ("position", "Monotone"),
        ("amount", None),
    ]
    assert report.keys.order == "version"
    assert report.found == {}
    nothing = audit(spark.createDataFrame(log, columns).select("account", "amount", "tx").coalesce(1), group="account")
    assert nothing.grade is not None
    assert nothing.grade.line == 'Pipeline(name="messages", group="account", order=Arrival(), id="tx", handler=apply)'


def test_a_null_in_another_column_makes_a_conflict(spark: SparkSession) -> None:
    df = spark.createDataFrame([("a", 1, "x", None), ("a", 1, None, "x")], "g string, n int, b string, c string")
    assert set(audit(df.coalesce(1), group="g", order="n").found) == {FaultKind.CONFLICT}


def test_nested_columns_and_names_with_dots_can_be_audited(spark: SparkSession) -> None:
    df = spark.sql("""select named_struct('id', 'a', 'n', n) as payload, array(n) as list, map('k', n) as more,
        n as `dotted.name` from values (1), (2), (3) as t(n)""").coalesce(1)
    report = audit(df, group="payload.id", order="payload.n")
    assert (report.messages, report.groups, report.found) == (3, 1, {})
    assert report.grade is not None
    assert report.grade.line.startswith('Pipeline(name="messages", group="payload.id", order=Gapless("payload.n")')
    assert report.grade.needs == []
    dotted = audit(df, group="payload.id", order="dotted.name")
    assert dotted.found == {}
    assert dotted.grade is not None
    assert 'Gapless("`dotted.name`")' in dotted.grade.line


def test_an_audit_reports_hot_groups_and_their_throughput_limit(spark: SparkSession) -> None:
    log = [("hot", n) for n in range(1, 901)] + [(f"cold {n}", 1) for n in range(100)]
    report = audit(spark.createDataFrame(log, "g string, n bigint").coalesce(1), group="g", order="n")
    assert report.sizes is not None
    assert report.sizes.largest[0] == ("hot", 900)
    assert report.sizes.share == 0.9
    assert sum(bar.count for bar in report.sizes.bars) == 101
    ten = {cost.consumers: cost for cost in report.sizes.consumers}[8]
    assert ten.free == 900 / 125, "eight consumers wait for the one that has the hot group"
    assert ten.hashed >= ten.free


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no such column": ({"group": "account"}, "no column 'account'; existing columns: g, n, at, more"),
    "two orders": ({"order": "n", "order_by": "at"}, "pass one"),
    "a time that counts": ({"order": "at"}, "'at' is a time, which is not a count; use --order-by"),
    "no number": ({"order": "more"}, "'more' is array<int>; expected whole numbers"),
    "no time": ({"order": "n", "time": "more"}, "'more' is array<int>; expected a time"),
}


@pytest.mark.parametrize("case", WRONG)
def test_invalid_audit_columns_are_refused_with_a_clear_message(spark: SparkSession, case: str) -> None:
    df = spark.sql("select 'a' as g, 1 as n, timestamp'2026-01-01' as at, array(1) as more")
    options, says = WRONG[case]
    with pytest.raises(InputError) as error:
        audit(df, **{"group": "g", **options})
    assert says in str(error.value)
    with pytest.raises(PipelineError, match="audit"):
        audit(df, group="g", order="n", patience="soon")


def test_a_stream_as_the_audit_input_is_refused(spark: SparkSession) -> None:
    with pytest.raises(InputError, match=r"spark\.read"):
        audit(spark.readStream.format("rate").load(), group="value")


def test_an_audit_leaves_no_cached_data_in_spark(spark: SparkSession) -> None:
    df = spark.createDataFrame([("a", 1), ("a", 3)], "g string, n bigint")
    audit(df, group="g", order="n")
    assert not spark.sparkContext._jsc.sc().getPersistentRDDs().size()
