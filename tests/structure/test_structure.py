"""The house rules that can be counted: names, sizes, statements, and why each module exists; see CONTRIBUTING.md."""

import importlib.util
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location("structure", Path(__file__).parents[2] / "benchmarks" / "structure.py")
assert spec is not None and spec.loader is not None  # noqa: PT018 - one fact
structure = importlib.util.module_from_spec(spec)
spec.loader.exec_module(structure)

ALLOWED: dict[str, set[str]] = {}  # at most three in all, each with its reason


def test_each_house_rule_holds() -> None:
    figures = {rule: set(names) for rule, _, names in structure.figures()}
    broken = {rule: names - ALLOWED.get(rule, set()) for rule, names in figures.items()}
    assert not {rule: sorted(names) for rule, names in broken.items() if names}
    assert sum(map(len, ALLOWED.values())) <= 3
    assert all(names <= figures[rule] for rule, names in ALLOWED.items()), "an exception that nothing needs any more"


def test_each_house_rule_check_finds_its_violation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = "def long():\n" + "    x = 1\n" * 61
    (tmp_path / "one.py").write_text(f'class Twice:\n    """What it is."""\n{long}' + "\n" * 400)
    (tmp_path / "two.py").write_text('"""Two."""\nclass Twice: ...\n')
    (tmp_path / "queries.sql").write_text("-- name: unused\nselect 1;\n" * 2)
    monkeypatch.setattr(structure, "PACKAGE", tmp_path)
    counts = {rule: count for rule, count, _ in structure.figures()}
    assert all(counts.values()), counts
