"""The wheel of this checkout, and clean environments that hold nothing but it with its extras."""

from collections.abc import Callable
from pathlib import Path

import pytest
from clean_environment import Environment

from environments import build_wheel, create


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the checkout."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Callable[[str], Environment]:
    """Make an environment with the wheel and some extras, ``"spark,java"``; ``""`` is the base alone."""

    def make(extras: str) -> Environment:
        folder = tmp_path / "project"
        folder.mkdir()
        create(tmp_path / "environment", f"{wheel}[{extras}]" if extras else wheel)
        return Environment(tmp_path / "environment", folder)

    return make
