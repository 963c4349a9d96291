"""A handler that does not fit its pipeline is a type error in users' code, and one that fits is none."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from waiting import PROGRAM_S

ROOT = Path(__file__).parents[2]
CODE = Path(__file__).with_name("user_code.py")
WRONG = {number for number, line in enumerate(CODE.read_text().splitlines(), 1) if line.endswith("# error")}


def mypy(_folder: Path) -> set[int]:
    """Return the lines that mypy refuses, with the settings, and so with what it knows, of ``make lint``."""
    words = [sys.executable, "-m", "mypy", "--output", "json", str(CODE)]
    result = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT, timeout=PROGRAM_S)
    assert not result.stderr, result.stderr
    return {json.loads(line)["line"] for line in result.stdout.splitlines()}


def basedpyright(folder: Path) -> set[int]:
    """Return the lines that pyright refuses."""
    words = [sys.executable, "-m", "basedpyright", "--outputjson", "--level", "error", "--pythonpath", sys.executable]
    result = subprocess.run(
        [*words, str(CODE)], capture_output=True, text=True, check=False, cwd=folder, timeout=PROGRAM_S
    )
    return {diagnostic["range"]["start"]["line"] + 1 for diagnostic in json.loads(result.stdout)["generalDiagnostics"]}


@pytest.mark.thorough
@pytest.mark.parametrize("checker", [mypy, basedpyright])
def test_only_mismatching_handlers_are_type_errors(checker: Callable[[Path], set[int]], tmp_path: Path) -> None:
    assert len(WRONG) > 10
    assert checker(tmp_path) == WRONG
