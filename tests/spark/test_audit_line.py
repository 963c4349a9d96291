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
    pipeline: Pipeline = eval(report.grade.line, {**vars(inturn), "apply": take})  # noqa: S307 - that it runs is the point
    return pipeline


class Story:
    """Makes a log with faults.

    Args:
        seed: decides everything.
        place: makes of a number, and a part of one, what says a message's place.
    """

    def __init__(self, seed: int, place: Callable[[int], Any], *, holes: bool = False) -> None:
        self.chance, self.place, self.holes = random.Random(seed), place, holes
        self.number = 0

    def message(self, group: str, step: int) -> Message:
        self.number += 1
        key = {"account": group, "version": self.place(step), "tx": f"t{self.number}"}
        return {"after": key, "body": self.chance.randrange(5), "kept.at": self.number % 2}

    def group(self, name: str) -> list[Message]:
        chance = self.chance
        steps = range(1, 14)
        history = [self.message(name, 10 * step if self.holes else step) for step in steps]
        if chance.random() < 0.3:
            del history[chance.randrange(1, len(history))]
        for _ in range(chance.randrange(4)):
            original = chance.choice(history)
            match chance.randrange(4):
                case 0 | 1:
                    other = original  # a copy
                case 2:
                    other = {**original, "body": 7}  # its place and its id again, and other content
                case _:
                    key = {**original["after"], "tx": f"u{self.number}{chance.random()}"}
                    other = {**original, "after": key, "body": 8}  # its place again, and an id of its own
            for _ in range(chance.randrange(1, 3)):
                history.insert(chance.randrange(len(history) + 1), other)
        for _ in range(chance.randrange(3)):
            late = history.pop(chance.randrange(len(history)))
            history.insert(chance.randrange(len(history) + 1), late)
        return history

    def log(self, groups: int = 60) -> list[Message]:
        """The groups side by side, and a few messages that have no place."""
        histories = [self.group(f"a{number}") for number in range(groups)]
        messages = []
        while any(histories):
            messages.append(self.chance.choice([history for history in histories if history]).pop(0))
        for name in ("account", "version"):
            message = self.chance.choice(messages)
            messages.insert(
                self.chance.randrange(len(messages)), {**message, "after": {**message["after"], name: None}}
            )
        return messages


def frame(spark: SparkSession, log: list[Message], kind: str) -> DataFrame:
    ddl = f"after struct<account: string, version: {kind}, tx: string>, body bigint, `kept.at` bigint, came bigint"
    rows = [
        Row(Row(*message["after"].values()), message["body"], message["kept.at"], message.get("came"))
        for message in log
    ]
    df = spark.createDataFrame(rows, ddl).coalesce(1)
    return df if "came" in log[0] else df.drop("came")


def check(report: AuditReport, log: list[Message]) -> None:
    """Hold what the report says of its line to what the pure timeline makes of the log."""
    assert report.grade is not None
    pipeline = proposed(report)
    pipeline = in_list_order(pipeline)
    result = pipeline.replay(log, final=isinstance(pipeline.order, Timestamp))
    counts = result.counts
    expected = {
        "applied": counts.applied + counts.held,
        "duplicate": counts.duplicate + counts.stale,
        "conflict": counts.rejected.pop("conflict", 0),
        "invalid": counts.rejected.pop("invalid", 0),
    }
    assert counts.rejected == {}, "nothing else is refused: the lateness covers all that are late"
    assert report.grade.gives == expected
    assert report.messages == len(log)


def gapless(number: int) -> int:
    return number


@pytest.mark.soak
def test_the_proposed_pipeline_for_revisions_gives_the_reported_counts(
    spark: SparkSession, tmp_path: Path, soak_seed: int
) -> None:
    log = Story(soak_seed, gapless).log()
    log.insert(5, {**log[9], "after": {"account": "a3", "version": -4, "tx": "below"}})
    report = audit(frame(spark, log, "bigint"), group="after.account", order="after.version")
    check(report, log)
    assert report.found[FaultKind.NO_ORDER].messages == 2, "one is null, and one below the first revision"
    arrived = [{**message, "came": index} for index, message in enumerate(log)]
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
    "times": ("timestamp", lambda number: NOON + dt.timedelta(seconds=number)),
    "text": ("string", lambda number: f"{NOON + dt.timedelta(seconds=number):%Y/%m/%d %H:%M:%S}.000"),
    "s": ("bigint", lambda number: int(NOON.timestamp()) + number),
    "ns": ("bigint", lambda number: int(NOON.timestamp()) * 10**9 + number * 10**6),
}


@pytest.mark.soak
@pytest.mark.parametrize(
    "form", ["ns", *(pytest.param(unit, marks=pytest.mark.slow) for unit in ("text", "times", "s"))]
)
def test_the_proposed_pipeline_for_times_has_the_measured_lateness(
    spark: SparkSession, form: str, soak_seed: int
) -> None:
    kind, place = TIMES[form]
    log = Story(soak_seed, place).log()
    if form == "text":
        log.append({**log[0], "after": {**log[0]["after"], "version": "soon"}})
    log = [rename(message) for message in log]
    df = spark.createDataFrame(
        [Row(Row(*message["after"].values()), message["body"], message["kept.at"]) for message in log],
        f"after struct<account: string, seen_at: {kind}, tx: string>, body bigint, `kept.at` bigint",
    ).coalesce(1)
    report = audit(df, group="after.account", order_by="after.seen_at", id="after.tx")
    check(report, log)
    assert report.late is not None
    order = proposed(report).order
    assert isinstance(order, Timestamp)
    # No lateness at all: what is late is turned away, and of what was turned away nobody knows a copy.
    assert FaultKind.ID_CONFLICT in report.found
    own = [message for message in log if message["body"] != 7]
    counts = replay_with(report, own, 0).counts
    cleaned = audit(df.where("body <> 7"), group="after.account", order_by="after.seen_at", id="after.tx")
    late, copies = (cleaned.found[kind].messages for kind in (FaultKind.LATE, FaultKind.DUPLICATE))
    assert counts.rejected["late"] + counts.duplicate == late + copies
    assert cleaned.late is not None
    behind_us = round(cleaned.late.behind.most * 1e6)
    assert "late" not in replay_with(cleaned, own, behind_us).counts.rejected
    assert replay_with(cleaned, own, behind_us - 1).counts.rejected["late"] >= 1


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
            "after": {
                "account": f"a{number % 5}",
                "seen_at": first_ms + number * 50 - number % 7 * 40,
                "tx": f"t{number}",
            },
            "body": number % 3,
        }
        for number in range(300)
    ]
    log[70]["after"]["tx"] = log[80]["after"]["tx"]  # nearly an id: two messages of one account share one
    rows = [
        Row(Row(*message["after"].values()), message["body"], f"row{number}", "EUR" if number else "USD", None)
        for number, message in enumerate(log)
    ]
    after = "after struct<account: string, seen_at: bigint, tx: string>"
    ddl = f"{after}, body bigint, `line.id` string, money string, none bigint"
    df = spark.createDataFrame(rows, ddl).coalesce(1)
    report = audit(df, group="after.account")
    assert report.grade is not None
    assert [(column.name, column.kind, column.grade) for column in report.columns if column.grade][:1] == [
        ("after.seen_at", "time", "Timestamp")
    ]
    assert 'id="`line.id`"' in report.grade.line
    assert 'unit="ms"' in report.grade.line
    assert {entry.name: entry.verdict for entry in report.columns}["none"] == "no order: 100% of the messages lack it"
    messages = [{**message, "line.id": f"row{number}"} for number, message in enumerate(log)]
    check(report, messages)


def test_column_descriptions_match_the_data(spark: SparkSession) -> None:
    rows = [
        (
            f"g{number % 4}",
            number // 4,
            5 if number % 40 else 4,
            5,
            "7" if number % 5 == 0 else "much",
            None if number % 3 else number,
        )
        for number in range(400)
    ]
    df = spark.createDataFrame(rows, "g string, n bigint, mostly bigint, same bigint, odd string, rare bigint")
    report = audit(df.withColumn("odd", df.odd).coalesce(1), group="g")
    verdicts = {column.name: column.verdict for column in report.columns}
    assert verdicts["same"] == "no order: has the same value in every message of a group"
    assert "repeat the greatest value" in verdicts["mostly"]
    assert verdicts["rare"] == "no order: 66.5% of the messages lack it"
    assert verdicts["n"].startswith("counts: every value is present, 100% of the messages are one above")


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
    rows = spark.createDataFrame([(text,) for text in texts], "x string").select("x", text_micros("x").alias("us"))
    read = {text: None if (moment := parsed(text)) is None else instant_us(moment) for text in texts}
    assert {row.x: row.us for row in rows.collect()} == read
    assert sum(us is not None for us in read.values()) > 1_000


def test_a_log_with_a_repeated_column_name_can_be_audited(spark: SparkSession) -> None:
    df = spark.sql("select 'a' as g, id + 1 as n, id as g, 'x' as t from range(4)").coalesce(1)
    report = audit(df, group="g", order="n")
    assert (report.messages, report.groups, report.found) == (4, 1, {})
