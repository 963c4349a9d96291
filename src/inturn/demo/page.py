"""The demo as one HTML page that opens without a network: the picture, the counts and some aircraft."""

from collections.abc import Sequence
from pathlib import Path

from inturn.demo import picture
from inturn.demo.naive import LAST_WRITE, WITHOUT_COPIES
from inturn.demo.result import DISTINCT, NAIVE, PROCESS, REASONS, SPARK, DemoResult
from inturn.pages.template import environment, markup


def draw_result(result: DemoResult) -> str:
    """Return the picture with its text alternative."""
    sample, wrong = result.sample, {name: f"{result.wrong[name].aircraft}" for name in (NAIVE, DISTINCT, SPARK)}
    return picture.draw(
        result,
        f"Left: the {len(sample.labels)} messages of aircraft {sample.tail} as they happened, as they arrived (out of "
        f"order, some twice) and as inturn applies them (in order). Right: aircraft with a wrong answer: "
        f"{wrong[NAIVE]} if the last write wins, {wrong[DISTINCT]} after dropDuplicates, {wrong[SPARK]} with inturn. "
        "Below: the activity of each process, in seconds, with the kill, and the counts of both engines.",
    )


def render(result: DemoResult, picture: str, hints: Sequence[str]) -> str:
    """Return the page.

    Args:
        result: result of the demo.
        picture: the picture, from :func:`drawn`.
        hints: commands to try next.
    """
    return (
        environment(Path(__file__).parent, "demo")
        .get_template("page.html.j2")
        .render(
            result=result,
            naive=result.wrong[NAIVE],
            distinct=result.wrong[DISTINCT],
            inturn=result.wrong[SPARK],
            engines={SPARK: result.spark, PROCESS: result.process},
            reasons=REASONS,
            last_write=LAST_WRITE,
            without_copies=WITHOUT_COPIES,
            picture=markup(picture),
            hints=hints,
        )
    )
