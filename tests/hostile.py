"""Texts that break what is careless with texts: shared by the tests of stores, engines and commands."""

import asyncio
import re
from collections.abc import Callable
from typing import Final, NoReturn

from hypothesis import strategies as st

HOSTILE: Final = {
    "half a surrogate pair": "caf\udce9.txt",
    "the other half": "\ud83d",
    "a NUL": "a\0b",
    "nothing but a NUL": "\0",
    "nothing": "",
    "an escape sequence": "\x1b]0;owned\x07\x1b[31m",
    "a C1 control": "\x9b31m",
    "right to left": "\u202eabc\u2066",
    "closing markup": "[/x]",
    "markup": "[bold red]x[/]",
    "an emoji's name": ":boom:",
    "line ends": "a\nb\r\nc\td",
    "separators of Unicode": "a\u2028b\u2029c\x85d\u00a0e",
    "quotes": "'\"`\\ ${x} $y_1$ %s {} --",
    "a path": "../..#?&=a/b.c",
    "no character": "\uffff\ufeff",
    "beyond the first plane": "\U0001f600\U000e0041",
    "spaces": "  ",
    "HTML": "<script>alert(1)</script>&amp;",
    "what PostgreSQL is given for NUL": "\1\1\1\2",
    "a thousand wide ones": "字" * 1_000,
    "one too many": "x" * 1_001,
    "a megabyte": "m" * 1_000_000,
}
"""By what they are."""

NO_NAMES: Final = {
    "half a surrogate pair",
    "the other half",
    "a NUL",
    "nothing but a NUL",
    "nothing",
    "one too many",
    "a megabyte",
}
"""Those that are no names of groups and no ids."""

PIECES: Final = ["a", "\0", "\1", "\2", "\x1b", "\ud800", "\udfff", "é", "[/x]", "[b]", "\n", "\u2028", "\u202e", "\\"]
TEXTS: Final = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=5).map("".join),
    st.text(st.characters(categories=None), max_size=8),
    st.sampled_from(sorted(text for text in HOSTILE.values() if len(text) < 10_000)),  # which would be reported whole
)
"""Short hostile ones by chance, and the list without the longest."""


def is_name(text: str) -> bool:
    """Whether it can be the name of a group, said in another way than in core."""
    return 1 <= len(text) <= 1_000 and "\0" not in text and is_utf8(text)


def is_utf8(text: str) -> bool:
    """Whether UTF-8 can hold it, said in another way than in core."""
    return not re.search("[\ud800-\udfff]", text)


class Unspeakable(Exception):
    """An exception that raises wherever its text is asked for."""

    def __str__(self) -> NoReturn:
        raise RuntimeError("there is no text")

    __repr__ = __str__


class Unusual(BaseException):
    """An exception that ``except Exception`` does not catch."""


RAISED: Final[dict[str, Callable[[], BaseException]]] = {
    "no text": Unspeakable,
    "an argument without a text": lambda: ValueError(Unspeakable()),
    "a cause without a text": lambda: _caused(ValueError("refused"), Unspeakable()),
    "a cancellation": asyncio.CancelledError,
    "one of its own kind": lambda: Unusual("refused"),
    "several": lambda: ExceptionGroup("refused", [ValueError(1), Unspeakable()]),
}
"""What a handler may raise, by what is special about it."""


def _caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error
