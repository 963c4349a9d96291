"""The pictures of a report and of the demo: each text is within its picture, and no two of them touch."""

import re
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the audit is part of the extra [spark]")
pytest.importorskip("jinja2", reason="the page is filled in with jinja2, from the extra [spark]")

import inturn
from audit_reports import NOON_US, full, line
from inturn.pages.svg import Drawing, Plot
from inturn.spark.audit import page, pictures
from inturn.spark.audit.report import ConsumerCost, Distribution, GapSummary, GroupSizes, HistogramBar, RevisionGap
from svg_texts import SVG, check, parse


def sizes(*hashed: float) -> GroupSizes:
    costs = [ConsumerCost(2**power, max(1, cost / 3), cost) for power, cost in enumerate(hashed, 1)]
    return GroupSizes(1, [("a", 9)], 0.5, [HistogramBar(1, 2, 1)], costs)


SECONDS = Distribution(
    0.5,
    90_000,
    3e9,
    [HistogramBar(0 if power == 0 else 2.0 ** (power - 1), 2.0**power, 10**power) for power in range(10)],
)
WIDE = Distribution(3, 700, 10**9, [HistogramBar(2.0**power, 2.0 ** (power + 1), 1_234_567) for power in range(31)])
ONE = Distribution(1, 1, 1, [HistogramBar(1, 2, 5)])
OVER_YEARS = GapSummary(
    3,
    9,
    1,
    1,
    60,
    "",
    [],
    [(HistogramBar(0, 9e8, 99_999), HistogramBar(0, 9e8, 1)), (HistogramBar(9e8, 1.8e9, 0),) * 2],
    True,
)
OVER_LIFE = GapSummary(
    3,
    9,
    1,
    1,
    None,
    "",
    [],
    [(HistogramBar(0, 5, 3), HistogramBar(0, 5, 0)), (HistogramBar(95, 100, 0), HistogramBar(95, 100, 1))],
)
FAR = line("a", *((number, None, 0) for number in range(1, 41)), (1_000_000_000, None, 0), (3, "late", 0))
HOLES = line(
    "a",
    (1, None, 0),
    *((number, None, 0) for number in range(3, 99, 5)),
    gaps=(RevisionGap("a", 0, 2, 2, 9, None, False),),
)
BEFORE = line("a", (2, None, 0), gaps=(RevisionGap("a", 0, 1, 1, 1, None, True),))
FAR_CLOCK = GapSummary(
    1, 1, 0, 0, 60, "", [], [(HistogramBar(2.5e11, 2.5e11, 1), HistogramBar(2.5e11, 2.5e11, 0))], True
)
TIMED = line("a", *((NOON_US + 7_000_000 * number, None, 0) for number in range(30)), (NOON_US, "tie", 0))
DAYS = line("a", *((NOON_US + 7_000_000_000 * number, None, 0) for number in range(30)), (NOON_US, "late", 0))

PICTURES = {
    "seconds": pictures.histogram(
        SECONDS, {"half of them at most": 0.5, "the latest": 3e9}, "w", seconds=True, unit="s"
    ),
    "many bars": pictures.histogram(WIDE, {"half of them at most": 3, "99% at most": 700, "the latest": 10**9}, "w"),
    "one bar": pictures.histogram(
        ONE, {"half of them at most": 1, "99% at most": 1, "the latest": 1}, "w", unit="late"
    ),
    "no cost": pictures.consumer_costs(sizes(*[1] * 7), "w"),
    "great cost": pictures.consumer_costs(sizes(*(2**power for power in range(7))), "w"),
    "gaps by time": pictures.gaps(OVER_YEARS, (0, 1.8e9), "w"),
    "gaps by messages": pictures.gaps(OVER_LIFE, None, "w"),
    "far": pictures.timeline(FAR, "w", is_time=False),
    "holes": pictures.timeline(HOLES, "w", is_time=False),
    "the first is missing": pictures.timeline(BEFORE, "w", is_time=False),
    "a clock that stands": pictures.gaps(FAR_CLOCK, (2.5e11, 2.5e11), "w"),
    "seconds apart": pictures.timeline(TIMED, "w", is_time=True),
    "days apart": pictures.timeline(DAYS, "w", is_time=True),
    "one message": pictures.timeline(line("a", (7, "conflict", 0)), "w", is_time=False),
}


@pytest.mark.parametrize("name", PICTURES)
def test_picture_texts_neither_overlap_nor_leave_the_picture(name: str) -> None:
    assert check(PICTURES[name])


def test_page_pictures_have_no_overlapping_texts() -> None:
    svgs = re.findall(r'<svg[^>]*role="img".*?</svg>', page.render(full()), re.DOTALL)
    assert len(svgs) == 7
    for svg in svgs:
        assert check(svg)


def test_timeline_marks_are_at_the_coordinates_of_their_messages() -> None:
    late = line("a", (1, None, 0), (2, None, 0), (4, None, 0), (3, "late", 0))
    circles = parse(pictures.timeline(late, "w", is_time=False)).iter(f"{SVG}circle")
    dots = [(float(dot.get("cx", "")), float(dot.get("cy", ""))) for dot in circles]
    (x_1, y_1), (x_2, y_2), (x_3, y_3), (x_4, y_4) = sorted(dots)
    assert [x_3 - x_2, x_4 - x_3] == pytest.approx([x_2 - x_1] * 2, abs=0.02)
    assert [y_2 - y_4, y_4 - y_3] == pytest.approx([y_1 - y_2] * 2, abs=0.02)
    assert dots[-1] == (x_4, y_4), "late ones lie above the others"


def test_bar_heights_are_proportional_to_their_counts() -> None:
    values = Distribution(
        1, 1, 1, [HistogramBar(1, 2, 100), HistogramBar(2, 4, 25), HistogramBar(4, 8, 0), HistogramBar(8, 16, 1)]
    )
    svg = parse(pictures.histogram(values, {}, "w"))
    heights = [float(bar.get("height", "")) for bar in svg.iter(f"{SVG}rect")]
    assert heights[1] / heights[0] == pytest.approx(0.25, rel=0.01)
    assert heights[2] > 1, "one beside a hundred is still seen"


def test_axis_labels_are_below_the_legend() -> None:
    svg = parse(pictures.consumer_costs(sizes(1.5, 3, 4.9), "w"))
    heights = [float(text.get("y", "")) for text in svg.iter(f"{SVG}text") if text.get("text-anchor") == "end"]
    assert len(heights) > 2
    assert min(heights) > 36, "the plot begins below the legend"


def test_svg_text_is_escaped_and_an_unlabelled_svg_is_hidden() -> None:
    drawing = Drawing(50, 20)
    drawing.text((0, 10), "<a> & b", suffix=('"c"', 8.0, "#000", "bold"))
    svg = drawing.element('say "hi" <now>')
    root = parse(svg)
    assert "".join(root.itertext()).strip() == '<a> & b"c"'
    assert root.get("aria-label") == 'say "hi" <now>'
    assert 'aria-hidden="true"' in Drawing(1, 1).element()


def test_overlapping_axis_labels_are_left_out() -> None:
    drawing = Drawing(100, 100)
    things = [(number, f"{number} things") for number in range(0, 101, 10)]
    Plot.framed(drawing, (0, 100), (0, 100), things, [(number, str(number)) for number in range(101)])
    assert 3 <= len(check(drawing.element("w"))) < 20


def test_no_module_imports_matplotlib() -> None:
    package = Path(inturn.__file__).parent
    assert not [path for path in package.rglob("*.py") if "matplotlib" in path.read_text(encoding="utf-8")]
