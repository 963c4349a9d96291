"""Pictures as plain SVG: shapes, text and axes, in points from the top left corner of a drawing.

The reader's font is not known, so an upper bound of a text's width is used. Thus axes leave room for their labels, a
label that would touch another text can be left out, and no text leaves its drawing. Texts lie above all shapes.
"""

import html
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

INK, GREY, FAINT, WHITE = "#1c2530", "#5f6975", "#c9d0d8", "#ffffff"
Place = tuple[float, float]
Tick = tuple[float, str]
Icon = Callable[["Drawing", Place, Place], None]
"""A shape of a legend, which is drawn between two corners."""
_FONT: Final = "system-ui, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"
_NARROW, _WIDE = frozenset(" .,:;'|!()[]-ijltfrI·"), frozenset("mwMWOQ%@→…")
BESIDE: Final = 11
"""The distance of a label from the end of its curve."""
_EDGE: Final = 1.0
"""The minimum distance of a text from the edge of its drawing."""


def width_of(text: str, size: float) -> float:
    """Estimate the width of a text in a wide font, such as DejaVu Sans."""
    return size * sum(0.4 if letter in _NARROW else 1.0 if letter in _WIDE else 0.64 for letter in text)


class Drawing:
    """An SVG element that grows with each shape, later ones above earlier ones, and texts above all."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self._shapes, self._texts = list[str](), list[str]()
        self._taken: list[tuple[float, float, float, float]] = []

    def shape(self, tag: str, content: str = "", /, **attributes: float | str) -> None:
        """Add an element; underscores in attribute names become hyphens, and empty attributes are left out."""
        values = ((name.replace("_", "-"), value) for name, value in attributes.items() if value != "")
        texts = (f'{name}="{html.escape(_rounded(value))}"' for name, value in values)
        into = self._texts if tag == "text" else self._shapes
        into.append(f"<{tag} {' '.join(texts)}>{content}</{tag}>")

    def line(self, places: Iterable[Place], colour: str, width: float = 1, dash: str = "") -> None:
        """Draw straight lines from place to place; ``dash`` has the lengths of dashes and of the spaces between."""
        path = "L".join(f"{_rounded(x)} {_rounded(y)}" for x, y in places)
        self.shape("path", d=f"M{path}", fill="none", stroke=colour, stroke_width=width, stroke_dasharray=dash)

    def box(self, start: Place, end: Place, colour: str, **more: float | str) -> None:
        """Fill a rectangle between two corners."""
        (left, right), (top, bottom) = (sorted(pair) for pair in zip(start, end, strict=True))
        self.shape("rect", x=left, y=top, width=right - left, height=bottom - top, fill=colour, **more)

    def hatched(self, start: Place, end: Place, colour: str, edge: str) -> None:
        """Fill a rectangle, with a dashed edge and slanted lines in the colour of the edge."""
        self.box(start, end, colour, stroke=edge, stroke_width=0.8, stroke_dasharray="3 1.5")
        (left, right), (top, bottom) = (sorted(pair) for pair in zip(start, end, strict=True))
        width, height = right - left, bottom - top
        for offset in range(4, int(width + height), 5):
            begin = (left + max(0, offset - height), top + min(offset, height))
            self.line([begin, (left + min(offset, width), top + max(0, offset - width))], edge, 0.6)

    def dot(self, place: Place, size: float, colour: str, edge: str = "", width: float = 1) -> None:
        """Draw a disc of a diameter."""
        x, y = place
        self.shape("circle", cx=x, cy=y, r=size / 2, fill=colour, stroke=edge or colour, stroke_width=width)

    def text(
        self,
        place: Place,
        words: str,
        size: float = 9,
        colour: str = INK,
        anchor: str = "start",
        *,
        bold: bool = False,
        halo: bool = False,
        suffix: tuple[str, float, str, str] | None = None,
    ) -> None:
        """Write a text, centred vertically at a place; it is moved to stay inside of the drawing.

        Args:
            place: its beginning, middle or end, depending on ``anchor``.
            words: the text.
            size: size of the font.
            colour: colour of the text.
            anchor: ``start``, ``middle`` or ``end``.
            bold: whether it is bold.
            halo: whether a white edge separates it from shapes below it.
            suffix: text, size, colour and weight of a second text on the same line.
        """
        width = width_of(words, size) * (1.1 if bold else 1)
        before, start = self._fitted(place[0], width, anchor)
        self._taken.append((start, start + width, place[1], size))
        after = ""
        if suffix is not None:
            style = f'dx="{_rounded(size * 0.4)}" font-size="{suffix[1]}" fill="{suffix[2]}" font-weight="{suffix[3]}"'
            after = f"<tspan {style}>{html.escape(suffix[0])}</tspan>"
        self.shape(
            "text",
            html.escape(words) + after,
            x=start + before,
            y=place[1] + 0.35 * size,
            font_size=size,
            fill=colour,
            text_anchor="" if anchor == "start" else anchor,
            font_weight="bold" if bold else "",
            stroke=WHITE if halo else "",
            stroke_width=size / 3 if halo else "",
            paint_order="stroke" if halo else "",
        )

    def label(
        self, place: Place, words: str, size: float, colour: str, anchor: str, *, apart: float = 0, halo: bool = False
    ) -> bool:
        """Write a text unless it touches an earlier one, or is nearer to its side than ``apart``; return whether."""
        width, y = width_of(words, size), place[1]
        start = self._fitted(place[0], width, anchor)[1] - apart
        for low, high, other, height in self._taken:
            if start < high and low < start + width + 2 * apart and abs(y - other) < 0.58 * (size + height):
                return False
        self.text(place, words, size, colour, anchor, halo=halo)
        return True

    def _fitted(self, x: float, width: float, anchor: str) -> Place:
        """Return the part of a text before its place, and the left end at which it is inside of the drawing."""
        before = {"start": 0.0, "middle": width / 2, "end": width}[anchor]
        return before, max(_EDGE, min(x - before, self.width - _EDGE - width))

    def legend(self, place: Place, entries: Iterable[tuple[str, Icon]]) -> None:
        """Write the texts of a legend one below the other, each after its shape."""
        x, y = place
        for row, (words, draw) in enumerate(entries):
            draw(self, (x, y + 13 * row - 4), (x + 24, y + 13 * row + 4))
            self.text((x + 30, y + 13 * row), words)

    def element(self, words: str = "") -> str:
        """Return the element; ``words`` is its text alternative, without which screen readers ignore the drawing."""
        label = f'role="img" aria-label="{html.escape(words)}"' if words else 'aria-hidden="true"'
        size = f"0 0 {_rounded(self.width)} {_rounded(self.height)}"
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" font-family="{_FONT}" {label}>'
        return "\n".join([head, *self._shapes, *self._texts, "</svg>"])


def icons(entries: Iterable[tuple[str, Icon]]) -> list[tuple[str, str]]:
    """Return a legend beside a picture: a small drawing of each shape, and its text."""
    drawings = []
    for words, draw in entries:
        drawing = Drawing(30, 17)
        draw(drawing, (1.5, 4), (28.5, 15))
        drawings.append((drawing.element(), words))
    return drawings


@dataclass(frozen=True)
class Plot:
    """A part of a drawing with a scale on each axis; the ends of a scale are at the edges of the plot."""

    drawing: Drawing
    left: float
    top: float
    right: float
    bottom: float
    xs: Place
    ys: Place

    @classmethod
    def framed(
        cls,
        drawing: Drawing,
        xs: Place,
        ys: Place,
        x_ticks: Iterable[Tick] = (),
        y_ticks: Sequence[Tick] = (),
        names: tuple[str, str] = ("", ""),
        *,
        top: float = 8,
        size: float = 9,
    ) -> "Plot":
        """Draw the axes of a plot that fills the drawing below ``top``, except the room for its labels.

        Of ticks whose names would touch, only the earlier one in ``x_ticks`` or ``y_ticks`` is named.
        """
        bottom = drawing.height - 2.2 * size - (1.4 * size if names[0] else 0)
        left = max((width_of(name, size) for _, name in y_ticks), default=0) + (8 if y_ticks else 2)
        if names[1]:
            left += 1.5 * size
            x, y = 0.8 * size, (top + bottom) / 2
            turned = {"transform": f"rotate(-90 {_rounded(x)} {_rounded(y)})", "text_anchor": "middle"}
            drawing.shape("text", html.escape(names[1]), x=x, y=y + 0.3 * size, font_size=size, fill=GREY, **turned)
        plot = cls(drawing, left, top, drawing.width - 4, bottom, xs, ys)
        drawing.line([(left, bottom), (plot.right, bottom)], FAINT)
        for value, name in x_ticks:
            x = plot.at(value, 0)[0]
            drawing.line([(x, bottom), (x, bottom + 3)], FAINT)
            drawing.label((x, bottom + 1.2 * size), name, size, GREY, "middle", apart=size / 2)
        if names[0]:
            drawing.text(((left + plot.right) / 2, drawing.height - 0.7 * size), names[0], size, GREY, "middle")
        if y_ticks:
            drawing.line([(left, top), (left, bottom)], FAINT)
        for value, name in y_ticks:
            y = plot.at(0, value)[1]
            drawing.line([(left, y), (left - 3, y)], FAINT)
            drawing.label((left - 5, y), name, size, GREY, "end")
        return plot

    def at(self, x: float, y: float) -> Place:
        """Return the place of two values."""
        return (
            self.left + (x - self.xs[0]) / (self.xs[1] - self.xs[0]) * (self.right - self.left),
            self.bottom - (y - self.ys[0]) / (self.ys[1] - self.ys[0]) * (self.bottom - self.top),
        )

    def line(self, values: Iterable[Place], colour: str, width: float = 1, dash: str = "") -> None:
        """Draw straight lines from value to value."""
        self.drawing.line([self.at(*point) for point in values], colour, width, dash)

    def curve(self, values: Sequence[Place], colour: str, width: float, dash: str = "") -> Place:
        """Draw a line with a dot at each value; return the place of its end."""
        self.line(values, colour, width, dash)
        for value in values:
            self.drawing.dot(self.at(*value), 3.5, colour)
        return self.at(*values[-1])

    def name_ends(self, labels: Iterable[tuple[Place, str, str]], size: float = 9, *, halo: bool = False) -> None:
        """Write texts beside the ends of curves, in their colour, one above the other, with a thin line to each."""
        ordered, apart = sorted(labels, key=lambda label: (label[0][1], label)), 1.2 * size
        rows: list[float] = []
        for (_, y), _, _ in ordered:
            rows.append(max(y, rows[-1] + apart if rows else self.top))
        limit = self.bottom - 6
        for index in reversed(range(len(rows))):
            rows[index] = min(rows[index], limit)
            limit = rows[index] - apart
        for ((x, y), text, colour), row in zip(ordered, rows, strict=True):
            self.drawing.line([(x + 3, y), (x + BESIDE - 2, row)], colour, 0.6)
            self.drawing.text((x + BESIDE, row), text, size, colour, halo=halo)

    def box(self, start: Place, end: Place, colour: str) -> None:
        """Fill a rectangle between two corners, such as a bar."""
        self.drawing.box(self.at(*start), self.at(*end), colour, shape_rendering="crispEdges")  # no seams between bars


def _rounded(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")
