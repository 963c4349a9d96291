"""The language rules of CONTRIBUTING.md that can be counted: no text that a user sees has a phrase of this list.

Texts are the string literals of the package, without docstrings, and the prose of the documents. The list grows when a
review finds another phrase that readers have to decode.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PHRASES = {
    r"(?<![Tt]here )\b(is|are|was|were) no (?!longer|more|less|fewer|later|earlier|greater)\w": "is not a …",
    r"\bany more\b": "no longer",
    r"\b(somebody|someone|whoever|whomever)\b": "another caller, process or user; the user who …",
    r"\bonce more\b": "again",
    r"\b(is|are|was|were) (not )?there( already)?(?=[.;:,]|$)": "exists, does not exist",
    r"\bthat (is|are) there\b": "existing",
    r"\bwhat (comes|came|becomes|became) (of|to)\b": "the result",
    r"\b(is|are|was|were|be) told\b": "is reported, is notified",
    r"\bonly so many\b": "at most N",
    r"\bput back\b": "restored; returned to its position",
    r"\bby itself\b": "automatically",
    r"\b[A-Z][a-z]+[A-Z]\w+ (many|much|long|often) ": "a class name in place of a word",
}
"""Phrases that users have to read twice, as patterns, each with a plain one."""


def texts_of(source: str) -> Iterator[tuple[int, str]]:
    """Return the string literals of a module with their lines, but docstrings."""
    tree = ast.parse(source)
    hidden = {
        id(node.value)
        for scope in ast.walk(tree)
        if isinstance(scope, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for node in scope.body
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            hidden |= {id(part) for part in node.values if isinstance(part, ast.Constant)}
            parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in hidden:
            yield node.lineno, node.value


def prose_of(document: str) -> Iterator[tuple[int, str]]:
    """Return the lines of a document with their numbers, but those of code blocks."""
    is_code = False
    for number, text in enumerate(document.splitlines(), 1):
        if text.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield number, text


def found_in(texts: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str, str]]:
    """Return the texts with a phrase of the list: their line, the phrase, and what to write instead."""
    for number, text in texts:
        for pattern, plain in PHRASES.items():
            if matched := re.search(pattern, text):
                yield number, text[max(0, matched.start() - 30) : matched.end() + 30], plain


def check(files: Iterable[Path], least: int, read: Callable[[str], Iterator[tuple[int, str]]]) -> None:
    """Check that no file has a phrase of the list in the texts that ``read`` finds in it."""
    known = sorted(files)
    assert len(known) > least
    faults = [
        f"{file.relative_to(ROOT)}:{number}: {part!r}; write: {plain}"
        for file in known
        for number, part, plain in found_in(read(file.read_text()))
    ]
    assert not faults, "\n".join(faults)


def test_no_string_of_the_package_contains_a_forbidden_phrase() -> None:
    check((ROOT / "src" / "inturn").rglob("*.py"), 300, texts_of)


def test_no_document_contains_a_forbidden_phrase() -> None:
    check([*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"], 30, prose_of)


@pytest.mark.parametrize(
    "text",
    [
        "'x' is no name",
        "the lease is not valid any more",
        "somebody has resumed it",
        "the file is there already",
        "DecisionOptions many groups are shown",
        "the console was told so",
    ],
)
def test_found_in_reports_a_forbidden_phrase(text: str) -> None:
    assert list(found_in(iter([(1, text)])))


@pytest.mark.parametrize("text", ["there is no queue 'x'", "the group is no longer parked", "it is no later than now"])
def test_found_in_does_not_report_a_plain_phrase(text: str) -> None:
    assert not list(found_in(iter([(1, text)])))


def test_texts_of_joins_f_string_parts_and_skips_docstrings() -> None:
    source = '"""Somebody."""\nx = f"a {x} b"\n\n\ndef f():\n    """Somebody."""\n    return "c"\n'
    assert sorted(text for _, text in texts_of(source)) == ["a … b", "c"]
