"""The pipeline that an audit proposes, run on the same log, gives what the report says.

A log has some sixty groups, each with faults of its own, so that one audit looks at many small histories.
"""

import datetime as dt
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

import inturn
from inturn import Pipeline, Timestamp
from inturn.core.values.instant import instant_us, parsed
from inturn.spark import audit, batch
from inturn.spark.audit.report import AuditReport, FaultKind
from inturn.spark.audit.values import numbers_and_times, text_micros
from inturn.testing.replay_engine import in_list_order

Message = dict[str, Any]
NOON = dt.datetime(2014, 10, 22, 11, 15, tzinfo=dt.UTC)


def take(state: Message, message: Message) -> tuple[Message, list[Any]]:
    return state, [message["body"]]


def proposed(report: AuditReport) -> Pipeline:
    """The line as it is printed; only its handler is left to write."""
    assert report.grade is not None
    made: Pipeline = eval(report.grade.line, {**vars(inturn), "apply": take})  # noqa: S307 - that it runs is the point
    return made


class Story:
    """Makes a log with faults.

    Args:
        seed: decides everything.
        place: makes of a number, and a part of one, what says a message's place.
    """

    def __init__(self, seed: int, place: Callable[[int], Any], *, holes: bool = False) -> None:
        self.chance, self.place, self.holes = random.Random(seed), place, holes
        self.number = 0

    def message(self, group: str, at: int) -> Message:
        self.number += 1
        key = {"account": group, "version": self.place(at), "tx": f"t{self.number}"}
        return {"after": key, "body": self.chance.randrange(5), "kept.at": self.number % 2}

    def group(self, name: str) -> list[Message]:
        chance = self.chance
        steps = range(1, 14)
        history = [self.message(name, 10 * at if self.holes else at) for at in steps]
        if chance.random() < 0.3:
            del history[chance.randrange(1, len(history))]
        for _ in range(chance.randrange(4)):
            each = chance.choice(history)
            match chance.randrange(4):
                case 0 | 1:
                    other = each  # a copy
                case 2:
                    other = {**each, "body": 7}  # its place and its id again, and other content
                case _:
                    key = {**each["after"], "tx": f"u{self.number}{chance.random()}"}
                    other = {**each, "after": key, "body": 8}  # its place again, and an id of its own
            for _ in range(chance.randrange(1, 3)):
                history.insert(chance.randrange(len(history) + 1), other)
        for _ in range(chance.randrange(3)):
            late = history.pop(chance.randrange(len(history)))
            history.insert(chance.randrange(len(history) + 1), late)
        return history

    def log(self, groups: int = 60) -> list[Message]:
        """The groups side by side, and a few messages that have no place."""
        histories = [self.group(f"a{number}") for number in range(groups)]
        found = []
        while any(histories):
            found.append(self.chance.choice([each for each in histories if each]).pop(0))
        for name in ("account", "version"):
            each = self.chance.choice(found)
            found.insert(self.chance.randrange(len(found)), {**each, "after": {**each["after"], name: None}})
        return found


def frame(spark: SparkSession, log: list[Message], kind: str) -> DataFrame:
    ddl = f"after struct<account: string, version: {kind}, tx: string>, body bigint, `kept.at` bigint, came bigint"
    rows = [Row(Row(*each["after"].values()), each["body"], each["kept.at"], each.get("came")) for each in log]
    df = spark.createDataFrame(rows, ddl).coalesce(1)
    return df if "came" in log[0] else df.drop("came")


def check(report: AuditReport, log: list[Message]) -> None:
    """Hold what the report says of its line to what the pure timeline makes of the log."""
    assert report.grade is not None
    pipeline = proposed(report)
    pipeline = in_list_order(pipeline)
    result = pipeline.replay(log, final=isinstance(pipeline.order, Timestamp))
    counts = result.counts
    made = {
        "applied": counts.applied + counts.held,
        "duplicate": counts.duplicate + counts.stale,
        "conflict": counts.rejected.pop("conflict", 0),
        "invalid": counts.rejected.pop("invalid", 0),
    }
    assert counts.rejected == {}, "nothing else is refused: the lateness covers all that are late"
    assert report.grade.gives == made
    assert report.messages == len(log)


def gapless(at: int) -> int:
    return at


@pytest.mark.soak
def test_the_proposed_pipeline_for_revisions_gives_the_reported_counts(
    spark: SparkSession, tmp_path: Path, soak_seed: int
) -> None:
    log = Story(soak_seed, gapless).log()
    log.insert(5, {**log[9], "after": {"account": "a3", "version": -4, "tx": "below"}})
    report = audit(frame(spark, log, "bigint"), group="after.account", order="after.version")
    check(report, log)
    assert report.found[FaultKind.NO_ORDER].messages == 2, "one is null, and one below the first revision"
    arrived = [{**each, "came": at} for at, each in enumerate(log)]
    report = audit(frame(spark, arrived, "bigint"), group="after.account", order="after.version", arrival="came")
    check(report, arrived)
    df = frame(spark, arrived, "bigint").repartition(3)
    counts = batch(proposed(report), df, store=tmp_path / "out").counts
    assert report.grade is not None
    assert counts.applied + counts.held == report.grade.gives["applied"]
    assert counts.rejected == {name: report.grade.gives[name] for name in ("conflict", "invalid")}


@pytest.mark.soak
def test_the_proposed_pipeline_for_numbers_with_holes_is_monotone(spark: SparkSession, soak_seed: int) -> None:
    log = Story(soak_seed, gapless, holes=True).log()
    report = audit(frame(spark, log, "bigint"), group="after.account", order_by="after.version")
    assert report.grade is not None
    assert report.grade.name == "Monotone"
    check(report, log)


TIMES: dict[str, tuple[str, Callable[[int], Any]]] = {
    "times": ("timestamp", lambda at: NOON + dt.timedelta(seconds=at)),
    "text": ("string", lambda at: f"{NOON + dt.timedelta(seconds=at):%Y/%m/%d %H:%M:%S}.000"),
    "s": ("bigint", lambda at: int(NOON.timestamp()) + at),
    "ns": ("bigint", lambda at: int(NOON.timestamp()) * 10**9 + at * 10**6),
}


@pytest.mark.soak
@pytest.mark.parametrize(
    "form", ["ns", *(pytest.param(each, marks=pytest.mark.slow) for each in ("text", "times", "s"))]
)
def test_the_proposed_pipeline_for_times_has_the_measured_lateness(
    spark: SparkSession, form: str, soak_seed: int
) -> None:
    kind, place = TIMES[form]
    log = Story(soak_seed, place).log()
    if form == "text":
        log.append({**log[0], "after": {**log[0]["after"], "version": "soon"}})
    log = [rename(each) for each in log]
    df = spark.createDataFrame(
        [Row(Row(*each["after"].values()), each["body"], each["kept.at"]) for each in log],
        f"after struct<account: string, seen_at: {kind}, tx: string>, body bigint, `kept.at` bigint",
    ).coalesce(1)
    report = audit(df, group="after.account", order_by="after.seen_at", id="after.tx")
    check(report, log)
    assert report.late is not None
    order = proposed(report).order
    assert isinstance(order, Timestamp)
    # No lateness at all: what is late is turned away, and of what was turned away nobody knows a copy.
    assert FaultKind.ID_CONFLICT in report.found
    own = [each for each in log if each["body"] != 7]
    counts = replay_with(report, own, 0).counts
    again = audit(df.where("body <> 7"), group="after.account", order_by="after.seen_at", id="after.tx")
    late, copies = (again.found[kind].messages for kind in (FaultKind.LATE, FaultKind.DUPLICATE))
    assert counts.rejected["late"] + counts.duplicate == late + copies
    assert again.late is not None
    behind_us = round(again.late.behind.most * 1e6)
    assert "late" not in replay_with(again, own, behind_us).counts.rejected
    assert replay_with(again, own, behind_us - 1).counts.rejected["late"] >= 1


def rename(message: Message) -> Message:
    key = message["after"]
    return {**message, "after": {"account": key["account"], "seen_at": key["version"], "tx": key["tx"]}}


def replay_with(report: AuditReport, log: list[Message], lateness_us: int) -> Any:
    pipeline = in_list_order(proposed(report))
    assert isinstance(pipeline.order, Timestamp)
    order = Timestamp(pipeline.order.column, dt.timedelta(microseconds=lateness_us), pipeline.order.unit)
    return replace(pipeline, order=order).replay(log, final=True)


def test_nested_columns_are_rated_and_a_proposed_id_rejects_no_message(spark: SparkSession) -> None:
    first_ms = int(NOON.timestamp()) * 1_000
    log: list[Message] = [
        {
            "after": {"account": f"a{at % 5}", "seen_at": first_ms + at * 50 - at % 7 * 40, "tx": f"t{at}"},
            "body": at % 3,
        }
        for at in range(300)
    ]
    log[70]["after"]["tx"] = log[80]["after"]["tx"]  # nearly an id: two messages of one account share one
    rows = [
        Row(Row(*each["after"].values()), each["body"], f"row{at}", "EUR" if at else "USD", None)
        for at, each in enumerate(log)
    ]
    after = "after struct<account: string, seen_at: bigint, tx: string>"
    ddl = f"{after}, body bigint, `line.id` string, money string, none bigint"
    df = spark.createDataFrame(rows, ddl).coalesce(1)
    report = audit(df, group="after.account")
    assert report.grade is not None
    assert [(each.name, each.kind, each.grade) for each in report.columns if each.grade][:1] == [
        ("after.seen_at", "time", "Timestamp")
    ]
    assert 'id="`line.id`"' in report.grade.line
    assert 'unit="ms"' in report.grade.line
    assert {each.name: each.verdict for each in report.columns}["none"] == "no order: 100% of the messages lack it"
    messages = [{**each, "line.id": f"row{at}"} for at, each in enumerate(log)]
    check(report, messages)


def test_column_descriptions_match_the_data(spark: SparkSession) -> None:
    rows = [
        (f"g{at % 4}", at // 4, 5 if at % 40 else 4, 5, "7" if at % 5 == 0 else "much", None if at % 3 else at)
        for at in range(400)
    ]
    df = spark.createDataFrame(rows, "g string, n bigint, mostly bigint, same bigint, odd string, rare bigint")
    report = audit(df.withColumn("odd", df.odd).coalesce(1), group="g")
    said = {each.name: each.verdict for each in report.columns}
    assert said["same"] == "no order: has the same value in every message of a group"
    assert "repeat the greatest value" in said["mostly"]
    assert said["rare"] == "no order: 66.5% of the messages lack it"
    assert said["n"].startswith("counts: every value is present, 100% of the messages are one above")


def test_the_sample_distinguishes_clocks_from_counters(spark: SparkSession) -> None:
    rows = spark.range(200).selectExpr(
        "1413976541 + id as created_at",
        "1413976541 + id as lsn",
        "1413976541000 + id as msec",
        "1413976541000000 + id as x",
        "cast(1413976541000000000 + id as string) as ts_ns",
        "1500000000000000000 + id as snowflake",
        "'2014/10/22 11:15:41.000' as text",
        "named_struct('a', named_struct('lsn', id)) as source",
        "id as n",
    )
    assert numbers_and_times(rows) == {
        "created_at": "s",
        "lsn": "number",
        "msec": "ms",
        "x": "us",
        "ts_ns": "ns",
        "snowflake": "number",
        "text": "time",
        "source.a.lsn": "number",
        "n": "number",
    }


def test_time_texts_are_parsed_like_in_a_pipeline(spark: SparkSession) -> None:
    chance = random.Random(3)

    def text() -> str:
        mark = chance.choice("-/")
        day = f"{chance.randint(1, 9999):04d}{mark}{chance.randint(0, 13)}{mark}{chance.randint(0, 32):02d}"
        time = f"{chance.randint(0, 25)}:{chance.randint(0, 61):02d}"
        if chance.random() < 0.7:
            time += f":{chance.randint(0, 61):02d}"
            if chance.random() < 0.5:
                time += chance.choice(".,") + str(chance.randrange(10 ** chance.randint(1, 9)))
        zone = chance.choice(["", "", "Z", "z", "+02:00", "-0330", "+05", " +01:00", "+18:01", "CET"])
        return f"{day}{chance.choice('T t')}{time}{zone}"

    texts = ["", "2014-10-22", "2014-10-22 11:15 ", "0000-01-01 00:00:00", *(text() for _ in range(2_000))]
    texts += ["0001-01-01 00:00:00+18:00", "9999-12-31 23:59:59.999999-18:00", "2014-10-22 11:15:41."]
    rows = spark.createDataFrame([(each,) for each in texts], "x string").select("x", text_micros("x").alias("us"))
    read = {each: None if (moment := parsed(each)) is None else instant_us(moment) for each in texts}
    assert {row.x: row.us for row in rows.collect()} == read
    assert sum(us is not None for us in read.values()) > 1_000


def test_a_log_with_a_repeated_column_name_can_be_audited(spark: SparkSession) -> None:
    twice = spark.sql("select 'a' as g, id + 1 as n, id as g, 'x' as t from range(4)").coalesce(1)
    report = audit(twice, group="g", order="n")
    assert (report.messages, report.groups, report.found) == (4, 1, {})
