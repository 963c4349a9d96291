"""The lab's page: what it says, that its pictures can be read, and that names of a log stay text."""

import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from shutil import which

import msgspec
import pytest

from hostile import HOSTILE, NO_NAMES
from inturn.lab import Knobs, LabMessage, LabResult, SweepResult, recommend, run, scenario, sweep
from inturn.lab.page import AuditLink, curves, lives, render, time_lines, words
from inturn.lab.page.validation import ValidationReport, validation_report
from svg_texts import check


class Page(HTMLParser):
    """The elements of a page that a browser would make of it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._hidden = 0
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._hidden += tag in ("style", "script")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("style", "script")

    def handle_data(self, data: str) -> None:
        if not self._hidden and data.strip():
            self.texts.append(data.strip())

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.texts))


@pytest.fixture(scope="module")
def transfers() -> LabResult:
    return scenario("transfers").run()


@pytest.fixture(scope="module")
def swept() -> list[SweepResult]:
    story = scenario("transfers")
    return [
        sweep(story.messages, over=over, values=values, seeds=2, pipeline=story.pipeline, knobs=story.knobs)
        for over, values in (("consumers", (1, 4)), ("failure_rate", (0, 0.05)))
    ]


@pytest.fixture(scope="module")
def html(transfers: LabResult, swept: list[SweepResult]) -> str:
    story = scenario("transfers")
    return render(
        transfers,
        title=story.title,
        description=story.description,
        sweeps=swept,
        recommendation=recommend(transfers, p99_s=5.0),
    )


def test_the_page_keeps_the_capitals_of_broker_names(html: str) -> None:
    assert "Validated against RabbitMQ" in Page(html).text


def test_the_table_lists_every_design_with_the_best_first(html: str, transfers: LabResult) -> None:
    table = html[html.index('<table class="main"') : html.index("</table>")]
    text = Page(table).text
    places = [text.index(f" {design.title} {design.standing} ") for design in words.ranked(transfers)]
    assert places == sorted(places)
    for design in transfers.designs:
        wrong = f"✗ {design.wrong_groups} of {transfers.input.groups}" if design.wrong_groups else "✓ none"
        figures = (wrong, words.span(design.latency.p99_us), words.rate(design.throughput_per_s))
        assert (
            f" {design.title} {design.standing} {' '.join(figures)} {words.share(words.wasted_share(design))}" in text
        )
    wrong_groups = [design.wrong_groups for design in words.ranked(transfers)]
    assert wrong_groups == sorted(wrong_groups)
    assert 0 in wrong_groups
    assert max(wrong_groups) > 0


def test_the_page_shows_the_reasons_and_wrong_states_of_failed_designs(html: str, transfers: LabResult) -> None:
    text = Page(html).text
    failed = [design for design in transfers.designs if design.reasons]
    assert failed
    for design in failed:
        for reason in design.reasons:
            assert words.sentence(reason) in text
        for wrong in design.wrong:
            assert wrong.expected in text
            assert wrong.got in text


def test_the_page_shows_the_recommendation_above_the_table(html: str, transfers: LabResult) -> None:
    advice = recommend(transfers, p99_s=5.0)
    assert advice.design is not None
    text = Page(html).text
    assert text.index(f"Recommended: {transfers.design(advice.design).title}") < text.index(
        "groups with a wrong state "
    )
    for refused in advice.refused:
        assert f"{transfers.design(refused.design).title} , with {refused.consumers} consumers: " in text
    nothing = render(transfers, recommendation=recommend(transfers, p99_s=1e-6))
    assert "No design meets the requirement" in Page(nothing).text


def test_every_link_has_a_target_and_the_page_loads_nothing_from_a_network(html: str) -> None:
    page = Page(html)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [attributes["href"] or "" for tag, attributes in page.tags if tag == "a"]
    assert len(links) > 15
    assert {link.removeprefix("#") for link in links} <= set(ids)
    assert not [tag for tag, attributes in page.tags if "src" in attributes or tag in ("link", "script")]
    assert set(re.findall(r"https?://[^\s\"<]+", html)) <= {"http://www.w3.org/2000/svg"}


def test_the_page_links_to_the_audit_report(transfers: LabResult) -> None:
    page = Page(render(transfers, audit=AuditLink("report.html", "<b>events</b>")))
    assert ("a", {"href": "report.html"}) in page.tags
    assert "The audit of <b>events</b>" in page.text


def test_every_picture_has_a_label_or_is_hidden_from_screen_readers(html: str) -> None:
    pictures = [attributes for tag, attributes in Page(html).tags if tag == "svg"]
    assert len(pictures) > 40
    named = [picture for picture in pictures if picture.get("role") == "img"]
    assert all(picture["aria-label"] for picture in named)
    assert all(picture.get("aria-hidden") == "true" for picture in pictures if picture not in named)


def test_every_colour_is_defined_in_the_light_and_the_dark_scheme(html: str) -> None:
    style = html[html.index("<style>") : html.index("</style>")]
    light, dark = style.split("@media (prefers-color-scheme: dark)")[0], style.split("prefers-color-scheme: dark")[1]
    used = set(re.findall(r"var\((--\w+)[,)]", html))
    assert {"--own", "--wrong", "--g0", "--c0", "--c1"} <= used
    for name in used:
        assert f"{name}: #" in light, name
        assert f"{name}: #" in dark, name


@pytest.mark.parametrize("name", ["transfers", "auctions", "hotel", "webhooks", "hot-group"])
def test_timeline_labels_neither_overlap_nor_leave_the_picture(name: str) -> None:
    result = scenario(name).run()
    assert result.followed is not None
    colours = time_lines.group_colours(result.designs, result.followed[0])
    count = 0
    for design in result.designs:
        if (picture := time_lines.time_lines(design, result.followed, colours)) is not None:
            check(picture)
            count += 1
    assert count == len(result.designs)


def test_curve_labels_neither_overlap_nor_leave_the_picture(swept: list[SweepResult]) -> None:
    for sweep_result in swept:
        for _, picture in curves.pictures(sweep_result):
            assert any(label.startswith("inturn") for label in check(picture))


def test_the_tables_of_curves_contain_every_value(swept: list[SweepResult]) -> None:
    figure = curves.FIGURES[0]
    rows = dict(curves.values(swept[0], figure))
    assert len(rows) == len(swept[0].curves)
    curve = next(curve for curve in swept[0].curves if curve.design == "competing-classic")
    assert [text.split()[0] for text in rows["competing-classic"]] == [
        figure.text(point.wrong_groups.mean) for point in curve.points
    ]


def test_a_timeline_picture_marks_out_of_order_messages() -> None:
    result = scenario("transfers").run()
    assert result.followed == ("acct-1", 12)
    colours = time_lines.group_colours(result.designs, "acct-1")
    overtaken = time_lines.time_lines(result.design("single-active-classic"), result.followed, colours)
    fine = time_lines.time_lines(result.design("inturn"), result.followed, colours)
    assert overtaken is not None
    assert fine is not None
    assert 'fill="var(--wrong)"' in overtaken
    assert "out of turn" in overtaken
    assert "var(--wrong)" not in fine


def test_the_events_of_a_message_are_listed_by_time_and_shortened_in_the_middle() -> None:
    result = scenario("transfers").run()
    life = result.design("roulette").life
    assert life is not None
    events = lives.life_events(life)
    assert events[0] == ("0", "arrived", False)
    assert events[-1][1].startswith("applied")
    long = msgspec.structs.replace(life, events=life.events[:1] + life.events[1:-1] * 20 + life.events[-1:])
    cut = lives.life_events(long)
    assert len(cut) == 7
    assert any("more events" in text for _, text, _ in cut)
    assert (cut[0], cut[-1]) == (events[0], events[-1])


def test_hostile_group_names_are_escaped_in_the_page() -> None:
    names = [text for name, text in HOSTILE.items() if name not in NO_NAMES]
    log = [
        LabMessage(at_us=number, group=name, revision=revision, body={"text": name})
        for number, name in enumerate(names)
        for revision in range(1, 8)
    ]
    result = run(log, knobs=Knobs(failure_rate=0.2), follow=(HOSTILE["HTML"], 3), scenario=HOSTILE["HTML"])
    html = render(result, description=HOSTILE["HTML"], audit=AuditLink("report.html", HOSTILE["HTML"]))
    page = Page(html)
    assert not [tag for tag, _ in page.tags if tag == "script"]
    assert HOSTILE["HTML"] in page.text
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", html)
    html.encode()


def test_the_page_is_rendered_for_a_single_message() -> None:
    result = run([LabMessage(at_us=5, group="only", revision=1)])
    html = render(result, sweeps=[sweep([LabMessage(at_us=5, group="only", revision=1)], values=(1, 2), seeds=1)])
    assert words.headline(result) == f"All {len(result.designs)} designs end with the right states"
    assert "Why designs failed" not in html
    for picture in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        if "<text" in picture:
            check(picture)


def test_the_page_reports_unapplied_messages_of_designs_without_a_wrong_state() -> None:
    log = [LabMessage(at_us=number, group="a", revision=1 + number) for number in range(50)]
    result = run(log, knobs=Knobs(poison_rate=0.2, max_attempts=2))
    held = [design for design in result.designs if not design.wrong_groups and words.left_out(design)]
    assert held
    text = Page(render(result)).text
    for design in held:
        assert words.left_out_words(design) in text


def test_the_page_shows_the_engine_measurements_including_mismatches(transfers: LabResult) -> None:
    row = {
        "design": "competing-classic",
        "engine": "RabbitMQ 3.10.8",
        "setup": "4 consumers, prefetch 10",
        "measure": "out_of_turn_share",
        "unit": "share",
        "engine_median": 0.255,
        "engine_low": 0.24,
        "engine_high": 0.27,
        "model_median": 0.214,
        "role": "held out",
        "holds": True,
        "more": "is ignored",
    }
    missed = row | {"measure": "p99_us", "unit": "us", "engine_median": 2_000, "model_median": 9_000, "holds": False}
    document = {"checked_on": "2026-11-25", "inturn": "0.1.0", "machine": "2 cores", "runs": 5, "rows": [row, missed]}
    report = msgspec.convert(document, ValidationReport)
    text = Page(render(transfers, checked=report)).text
    assert "Checked on 2026-11-25 with inturn 0.1.0, 2 cores" in text
    assert "RabbitMQ 3.10.8 4 consumers, prefetch 10 out of turn 26% (24% to 27%) 21% (-16%) held out" in text
    assert "9 ms (+350%) ✗" in text
    nothing = msgspec.structs.replace(report, rows=[])
    assert "no comparison of the models" in Page(render(transfers, checked=nothing)).text


def test_the_packaged_validation_report_is_readable() -> None:
    report = validation_report()
    if report is not None:
        assert report.rows
        assert {row.unit for row in report.rows} <= {"share", "us", "per_s", "count"}


@pytest.mark.parametrize(
    ("value_us", "text"),
    [
        (0, "0"),
        (7, "7 µs"),
        (1_234, "1.23 ms"),
        (45_000, "45 ms"),
        (1_500_000, "1.5 s"),
        (119_000_000, "119 s"),
        (360_000_000, "6 min"),
        (3 * 3_600_000_000, "3 h"),
    ],
)
def test_durations_are_formatted_with_a_short_unit(value_us: int, text: str) -> None:
    assert words.span(value_us) == text


@pytest.mark.slow
@pytest.mark.skipif(which("chromium") is None, reason="Chromium is not installed")
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_the_page_fits_the_browser_width_without_overflow(html: str, width: int, tmp_path: Path) -> None:
    from html import escape

    script = """
const frame = document.querySelector("iframe");
frame.onload = () => {
  const page = frame.contentDocument, over = [];
  for (const each of page.querySelectorAll("body *"))
    if (!each.closest("svg, details, .scroll") && each.getBoundingClientRect().right > innerWidthOf(frame) + 1)
      over.push(each.tagName + "." + each.className + " " + each.textContent.slice(0, 40));
  document.body.append("over:" + JSON.stringify(over) + ":" + page.documentElement.scrollWidth + ":end");
};
function innerWidthOf(frame) { return frame.contentWindow.innerWidth; }
"""
    frame = f'<iframe width="{width}" height="800" style="border:0" srcdoc="{escape(html)}"></iframe>'
    outer = f"{frame}<script>{script}</script>"
    (tmp_path / "outer.html").write_text(outer)
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    flags += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    command = [
        "chromium",
        *flags,
        f"--user-data-dir={tmp_path / 'profile'}",
        "--virtual-time-budget=4000",
        "--dump-dom",
    ]
    shown = subprocess.run(
        [*command, (tmp_path / "outer.html").as_uri()], capture_output=True, text=True, check=True, timeout=120
    ).stdout
    match_ = re.search(r"over:(\[.*\]):(\d+):end</body>", shown, re.DOTALL)
    assert match_, shown[-500:]
    assert match_[1] == "[]"
    assert int(match_[2]) <= width
