"""Reports of an audit that are made by hand: an empty one, and one with every fault."""

import datetime as dt
from collections import Counter
from dataclasses import replace

from inturn.spark.audit.report import (
    AuditReport,
    ColumnRating,
    ConsumerCost,
    Distribution,
    FaultCount,
    FaultKind,
    GapSummary,
    GroupSizes,
    GroupTimeline,
    HistogramBar,
    Lateness,
    LogColumns,
    ProposedGrade,
    RevisionGap,
    TimelinePoint,
)

NOON_US = 1_709_294_400_000_000


def spread(*counts: int) -> Distribution:
    return Distribution(
        3,
        700,
        90_000,
        [
            HistogramBar(0 if exponent == 0 else 2.0 ** (exponent - 1), 2.0**exponent, n)
            for exponent, n in enumerate(counts)
        ],
    )


def line(group: str, *points: tuple[int, str | None, int], gaps: tuple[RevisionGap, ...] = ()) -> GroupTimeline:
    faults = Counter(kind for _, kind, _ in points if kind is not None)
    shown = [TimelinePoint(number, place, kind, epoch) for number, (place, kind, epoch) in enumerate(points, 1)]
    return GroupTimeline(group, len(points), dict(faults), shown, list(gaps))


def empty() -> AuditReport:
    return AuditReport(
        "orders", LogColumns("g", "o"), "as the rows stand", 0, 0, None, None, {}, {}, None, None, [], 0, None, [], None
    )


def full() -> AuditReport:
    lost, still = (
        RevisionGap("acct-1", 0, 3, 5, 40, 7_200.0, open=False),
        RevisionGap("acct-2", 1, 9, 9, 1, None, open=True),
    )
    copies = line("acct-1", (1, None, 0), (2, None, 0), (6, None, 0), (2, "duplicate", 0), (4, "late", 0), gaps=(lost,))
    conflicting = line("acct-2", (7, "conflict", 0), (8, "no-id", 1), (10, None, 1), gaps=(still,))
    counts = {kind: FaultCount(1_000 + index, 20 + index) for index, kind in enumerate(FaultKind)}
    at_noon = dt.datetime(2024, 3, 1, 12, tzinfo=dt.UTC)
    return replace(
        empty(),
        keys=LogColumns("account", "seq", id="event_id", time="received_at", start=1, ignore=("trace",)),
        messages=1_234_567,
        groups=8_901,
        began=at_noon,
        ended=at_noon + dt.timedelta(days=2),
        found=counts,
        samples={kind: [f"sample of {kind}"] for kind in FaultKind},
        gaps=GapSummary(
            12,
            3_456,
            1,
            1,
            1_800.0,
            "3 hours",
            [lost, still],
            [(HistogramBar(1.7e9, 1.8e9, 12), HistogramBar(1.7e9, 1.8e9, 1))],
            True,
        ),
        late=Lateness(spread(0, 5, 9), spread(3, *[2] * 20, 1), spread(0, 4)),
        epochs=2,
        sizes=GroupSizes(
            20,
            [("acct-1", 5_000), ("", 7)],
            0.25,
            spread(0, *[3] * 13).bars,
            [ConsumerCost(2, 1, 1.5), ConsumerCost(4, 1, 2)],
        ),
        columns=[ColumnRating("seq", "number", 1, 0.9, 0.8, 0, 1.01, None, "Gapless", "it counts")],
        grade=ProposedGrade("Gapless", ["It is so."], 'Pipeline(name="orders", handler=apply)', ["Needs a day off."]),
        worst=[copies, conflicting],
        files={"messages": "/out/messages", "gaps": "/out/gaps"},
        seconds=75,
    )
