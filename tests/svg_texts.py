"""The texts of a picture in SVG: whether each is inside, as boxes are, and no two of them touch."""

import math
from collections.abc import Iterator
from itertools import combinations
from xml.etree import ElementTree

SVG = "{http://www.w3.org/2000/svg}"
Box = tuple[float, float, float, float, str]
# The widths of the glyphs of DejaVu Sans, the widest font that a browser takes for system-ui, in parts of its size.
GLYPHS = {
    " ": 0.32,
    ".": 0.32,
    ",": 0.32,
    "i": 0.28,
    "l": 0.28,
    "t": 0.39,
    "f": 0.35,
    "r": 0.41,
    "m": 0.97,
    "w": 0.82,
    "-": 0.36,
}


def parse(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)  # noqa: S314 - our own picture


def texts(svg: str) -> Iterator[Box]:
    """The boxes of the level texts: left, top, right, bottom, and the text."""
    for element in parse(svg).iter(f"{SVG}text"):
        if element.get("transform"):
            continue
        size, x, y = (float(element.get(name, "nan")) for name in ("font-size", "x", "y"))
        assert not math.isnan(size + x + y)
        words = "".join(element.itertext())
        width = size * sum(GLYPHS.get(letter, 0.637) for letter in words)
        left = x - width * {"middle": 0.5, "end": 1}.get(element.get("text-anchor", "start"), 0)
        yield left, y - 0.73 * size, left + width, y, words


def check(svg: str) -> list[str]:
    _, _, right, bottom = (float(number) for number in parse(svg).get("viewBox", "").split())
    boxes = list(texts(svg))
    for box in boxes:
        assert box[0] >= 0, box
        assert box[1] >= 0, box
        assert box[2] <= right, box
        assert box[3] <= bottom, box
    for rect in parse(svg).iter(f"{SVG}rect"):
        x, y, width, height = (float(rect.get(name, "0")) for name in ("x", "y", "width", "height"))
        assert x >= 0, (x, y, width, height)
        assert y >= 0, (x, y, width, height)
        assert x + width <= right, (x, y, width, height)
        assert y + height <= bottom, (x, y, width, height)
    for first, other in combinations(boxes, 2):
        apart = first[2] <= other[0] or other[2] <= first[0] or first[3] <= other[1] or other[3] <= first[1]
        assert apart, (first, other)
    return [box[4] for box in boxes]
