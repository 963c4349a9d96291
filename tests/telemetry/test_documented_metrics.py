"""docs/telemetry.md lists every metric of the code with its type and its labels, and no other."""

import re
from collections.abc import Iterable
from pathlib import Path

import inturn
from composed import ROOT
from inturn.sqs.metrics import Metrics, RequestCounts
from inturn.telemetry import families
from inturn.telemetry.collector import metric
from inturn.telemetry.families import Family

Row = tuple[str, str, tuple[str, ...]]

ROW = re.compile(r"^\| `(inturn_\w+)` \| (\w+) \| ([^|]*) \|", re.MULTILINE)


def documented() -> list[list[Row]]:
    """The rows of the metrics of each page, and of those that only an endpoint has."""
    text = (ROOT / "docs" / "telemetry.md").read_text()
    every, own = text.split("### The endpoint")
    return [
        [(name, kind, tuple(re.findall(r"\w+", labels))) for name, kind, labels in ROW.findall(section)]
        for section in (every, own)
    ]


def shown(read: Iterable[Family]) -> list[Row]:
    """The rows of families, with the names that Prometheus shows."""
    rows = []
    for family in read:
        name = metric(family._replace(values={})).name
        rows.append((f"{name}_total" if family.kind == "counter" else name, family.kind, family.labels))
    return rows


def test_each_metric_is_documented_with_its_type_and_labels(tmp_path: Path) -> None:
    every, own = documented()
    assert sorted(shown(families.all_families({}, []))) == sorted(every)
    with inturn.open(tmp_path / "shop.db") as db:
        assert sorted(shown(Metrics(db, RequestCounts()).endpoint_families())) == sorted(own)


def test_metric_names_are_unique() -> None:
    names = [name for rows in documented() for name, *_ in rows]
    assert len(names) == len(set(names))
