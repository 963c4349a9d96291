"""The colours of families of designs and of groups; the page defines them for the light and the dark scheme."""

from collections.abc import Iterable
from typing import Final

OWN, WRONG, INK, GREY, LINE, BACK = (f"var(--{name})" for name in ("own", "wrong", "ink", "grey", "line", "back"))
GROUPS: Final = tuple(f"var(--g{number})" for number in range(6))
"""Colours of all groups except the followed one."""
_FAMILIES: Final = {
    "inturn": 0,
    "competing": 1,
    "roulette": 2,
    "single": 3,
    "consistent": 4,
    "queue": 4,
    "kafka": 5,
    "key": 5,
    "sqs": 6,
    "sessions": 6,
    "resequencer": 7,
    "phantom": 7,
}
_DASHES: Final = ("", "5 3", "1.5 2.5", "8 3 1.5 3")


def line_styles(designs: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return a colour and a dash for each design; those of one family differ in the dash."""
    seen: dict[int, int] = {}
    styles = {}
    for design in designs:
        family = _FAMILIES.get(design.partition("-")[0], 7)
        number = seen.setdefault(family, 0)
        styles[design] = (f"var(--c{family})", _DASHES[number % len(_DASHES)])
        seen[family] += 1
    return styles
