"""The page of an audit's report: what a person reads there, from reports that are made by hand."""

import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser

import pytest

pytest.importorskip("pyspark", reason="the audit is part of the extra [spark]")
pytest.importorskip("jinja2", reason="the page is filled in with jinja2, from the extra [spark]")

from audit_reports import NOON_US, empty, full, line
from inturn.core.errors import SetupError
from inturn.spark.audit import page, pictures
from inturn.spark.audit.report import (
    ColumnRating,
    ConsumerCost,
    FaultCount,
    FaultKind,
    GapSummary,
    GroupSizes,
    HistogramBar,
    LogColumns,
    ProposedGrade,
    RevisionGap,
)

VOID = {"meta", "br", "link", "img"}
HOSTILE = "<script>alert(1)</script>\"'& $x_1$ \\frac \x00\x1b\u202e\ud800 \U000e0041 漢字"


class Page(HTMLParser):
    """A page as a browser sees it: its text, its pictures with theirs, and whatever it points to."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.words: list[str] = []
        self.labels: list[str] = []
        self.links: list[str] = []
        self.ids: Counter[str] = Counter()
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        if tag not in VOID:
            self.open.append(tag)
        attributes = dict(attrs)
        self.links += [
            attributes[name] or "" for name in ("href", "src", "xlink:href", "action", "data") if name in attributes
        ]
        self.links += [url for value in attributes.values() for url in re.findall(r"url\(([^)]*)\)", value or "")]
        self.ids.update([attributes["id"] or ""] if "id" in attributes else [])
        if tag == "svg" and "aria-label" in attributes:
            self.labels.append(attributes["aria-label"] or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(autouse=True)
def _silent(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Nothing is printed, and nothing warns: a page must not fill somebody's log."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
    assert capfd.readouterr() == ("", "")


@pytest.mark.thorough
def test_the_page_lists_every_fault_with_its_count() -> None:
    seen = Page(page.render(full()))
    assert "1,234,567 messages of 8,901 groups: 13 kinds of faults" in seen.text
    for index, kind in enumerate(FaultKind):
        assert f"{kind} {kind.meaning} {1_000 + index:,}" in seen.text
        assert f"sample of {kind}" in seen.text
    assert "messages/kind=two-writers" in seen.text
    assert "kind=gap" not in seen.text  # gaps are no messages; they have a folder of their own
    assert "kind=placeholder" not in seen.text
    for words in ("It is so.", 'Pipeline(name="orders", handler=apply)', "Needs a day off.", "it counts"):
        assert words in seen.text
    assert "acct-1 0 3 3 5 40 2 hours lost" in seen.text
    assert "acct-2 1 1 9 9 1 \N{EN DASH} may still arrive" in seen.text
    assert "3,456 revisions in 12 gaps never arrived. 1 revision in 1 gap may still arrive, the oldest" in seen.text
    assert "2024-03-01 12:00:00 to 2024-03-03 12:00:00 UTC" in seen.text


@pytest.mark.thorough
def test_the_pictures_have_descriptive_labels() -> None:
    seen = Page(page.render(full()))
    assert len(seen.labels) == 7  # late by positions and seconds, gaps, sizes, consumers, two groups
    clock = "How late messages are, by the clock: median 3 seconds, 99% at most 11.7 minutes, "
    assert clock + "maximum 25 hours" in seen.labels
    assert "Group acct-1 in order of arrival, 5 messages: duplicate 1, late 1" in seen.labels
    for words in (
        "exact copy",
        "the numbers start again",
        "3 missing",
        "1 may still arrive",
        "contradicts an earlier message",
    ):
        assert words in seen.text


@pytest.mark.thorough
def test_the_page_loads_no_external_resources_and_runs_no_scripts() -> None:
    html = page.render(full())
    seen = Page(html)
    assert "http" not in html.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not seen.links
    assert not seen.ids
    assert not {"script", "link", "img", "iframe", "object"} & set(seen.tags)
    assert page.render(full()) == html


def test_hostile_names_in_a_report_are_escaped() -> None:
    own = replace(full().worst[0], group=HOSTILE, gaps=[RevisionGap(HOSTILE, 0, 3, 5, 4, None, open=False)])
    report = replace(
        full(),
        source=HOSTILE,
        arrived=HOSTILE,
        keys=LogColumns(HOSTILE, HOSTILE, id=HOSTILE, ignore=(HOSTILE,)),
        samples={FaultKind.LATE: [HOSTILE]},
        gaps=GapSummary(1, 1, 0, 0, None, HOSTILE, own.gaps),
        sizes=GroupSizes(2, [(HOSTILE, 3), ("x" * 5_000, 2)], 0.5, [HistogramBar(2, 4, 2)], []),
        columns=[ColumnRating(HOSTILE, HOSTILE, 1, 1, 1, 1, 1, 1, HOSTILE, HOSTILE)],
        grade=ProposedGrade(HOSTILE, [HOSTILE], HOSTILE, [HOSTILE]),
        worst=[own, replace(own, group="  ")],
        files={"page": HOSTILE},
    )
    html = page.render(report)
    html.encode()  # as the folder writes it; a lone surrogate would not go
    seen = Page(html)
    assert "script" not in seen.tags
    assert "<script>alert(1)</script>\"'& $x_1$ \\frac \\x00\\x1b\\u202e\\ud800 \\U000e0041 漢字" in seen.text
    assert any(label.startswith("Group <script>alert(1)</script>\"'& $x_1$") for label in seen.labels)
    assert not re.search(r"[^\n -~\xa1-\uffff]", html)
    assert "x" * 61 not in html
    assert "…" in seen.text
    assert "'  '" in seen.words


def test_the_page_of_an_empty_log_says_no_messages() -> None:
    seen = Page(page.render(empty()))
    assert "No messages" in seen.text
    assert seen.tags["svg"] == 0
    assert not re.search(r"no faults|No fault|No revision|Gaps|None", seen.text)


def test_the_page_of_a_one_message_log_uses_the_singular() -> None:
    single = replace(
        empty(),
        messages=1,
        groups=1,
        gaps=GapSummary(0, 0, 0, 0, None, "1 message"),
        sizes=GroupSizes(1, [("a", 1)], 1.0, [HistogramBar(1, 2, 1)], [ConsumerCost(2, 2.0, 2.0)]),
        grade=ProposedGrade("Gapless", ["1 of 1 revisions are there (100%)."], "Pipeline()", []),
    )
    seen = Page(page.render(single))
    assert "1 message of 1 group: no faults" in seen.text
    assert "No revision is missing." in seen.text
    assert "still needs" not in seen.text
    alone = Page(
        page.render(
            replace(single, found={FaultKind.CONFLICT: FaultCount(1, 1)}, worst=[line("a", (7, "conflict", 0))])
        )
    )
    assert "1 message of 1 group: 1 kind of faults" in alone.text
    assert alone.labels == ["Group a in order of arrival, 1 message: conflict 1"]


@pytest.mark.thorough
def test_the_page_reports_open_gaps_and_missing_order_columns() -> None:
    still = replace(full(), found={}, gaps=GapSummary(0, 0, 2, 3, None, "2 messages of its group"))
    assert "no faults, but 3 revisions may still arrive" in Page(page.render(still)).text
    blind = replace(still, keys=LogColumns("g"), gaps=None, late=None)
    seen = Page(page.render(blind))
    assert "no faults, but no column gives their order" in seen.text
    assert "Missing messages cannot be detected" in seen.text
    assert "Lateness" not in seen.text


@pytest.mark.thorough
def test_an_order_by_time_has_a_time_axis() -> None:
    points = [(NOON_US + 60_000_000 * number, None, 0) for number in range(30)]
    timed = line("a", *points, (NOON_US, "late", 0), (NOON_US, "tie", 0))
    report = replace(full(), keys=LogColumns("g", order_by="ts"), gaps=None, grade=None, worst=[timed])
    seen = Page(page.render(report))
    assert "2024-03-01 UTC" in seen.text
    assert "12:10" in seen.text
    assert "1,709," not in seen.text
    counted = Page(page.render(replace(report, keys=LogColumns("g", order="ts"))))
    assert "1,709,294," in counted.text


def test_an_outlier_does_not_compress_the_scale_of_the_other_messages() -> None:
    scale = pictures._Scale.of([*range(1, 41), 1_000_000_000])
    assert scale.at(40) - scale.at(1) > 0.7
    assert scale.at(1_000_000_000) == pytest.approx(1)
    assert scale.cuts == [(40, 1_000_000_000)]
    far = line("a", *((number, None, 0) for number in range(1, 41)), (1_000_000_000, None, 0), (3, "late", 0))
    assert "axis cut: 999,999,960" in Page(pictures.timeline(far, "a", is_time=False)).text
    # Without a stretch that dwarfs the rest, places are where they are.
    assert pictures._Scale.of([10, 20, 30, 60]).at(35) == pytest.approx(0.5)


def test_a_missing_jinja2_is_reported_with_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(SetupError, match=r"needs jinja2; install it with: pip install 'inturn\[spark\]'"):
        page.render(empty())
