"""The demo as one HTML page that opens without a network: the picture, the counts and some aircraft."""

import base64
from collections.abc import Sequence
from pathlib import Path

from inturn.demo.naive import LAST_WRITE, WITHOUT_COPIES
from inturn.demo.result import DISTINCT, NAIVE, PROCESS, REASONS, SPARK, DemoResult


def render(result: DemoResult, picture: bytes, hints: Sequence[str]) -> str:
    """Return the page.

    Args:
        result: result of the demo.
        picture: a PNG, which is embedded in the page.
        hints: commands to try next.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    folder = FileSystemLoader(Path(__file__).parent)
    environment = Environment(loader=folder, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["number"] = "{:,}".format
    return environment.get_template("page.html.j2").render(
        result=result,
        naive=result.wrong[NAIVE],
        distinct=result.wrong[DISTINCT],
        inturn=result.wrong[SPARK],
        engines={SPARK: result.spark, PROCESS: result.process},
        reasons=REASONS,
        last_write=LAST_WRITE,
        without_copies=WITHOUT_COPIES,
        picture=base64.b64encode(picture).decode(),
        hints=hints,
    )
