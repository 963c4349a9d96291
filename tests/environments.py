"""The wheel of this checkout, and virtual environments that it is installed into."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from caches import INSTALL_S

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints.txt"


def build_wheel(folder: Path | None = None) -> Path:
    """Build the wheel, as it would be published, in a folder; by default a new one."""
    folder = folder or Path(tempfile.mkdtemp(prefix="inturn-wheel-"))
    command = [sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps", "--wheel-dir", folder, ROOT]
    subprocess.run(command, check=True, timeout=INSTALL_S)
    (wheel,) = folder.glob("inturn-*.whl")
    return wheel


def install(python: Path, *requirements: str | Path, constraints: Path = CONSTRAINTS) -> None:
    """Install into an environment, which need not have a pip of its own: this one's is used, as the machine has it."""
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "-qq", "--no-compile"]
    subprocess.run([*pip, "--constraint", constraints, *requirements], check=True, timeout=INSTALL_S)


def create(
    folder: Path, *requirements: str | Path, python: str = sys.executable, constraints: Path = CONSTRAINTS
) -> Path:
    """Make an environment that holds some packages and nothing else; return its Python."""
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True, timeout=INSTALL_S)
    interpreter = folder / "bin" / "python"
    install(interpreter, *requirements, constraints=constraints)
    return interpreter


def keep(
    folder: Path, extras: str, *requirements: str | Path, python: str = sys.executable, constraints: Path = CONSTRAINTS
) -> Path:
    """Make an environment with the wheel once, and renew only the wheel later; return its Python.

    Args:
        folder: where it is, from one run to the next.
        extras: those of the wheel, such as ``"spark,audit"``.
        requirements: other packages; if these, the extras or the constraints change, it is made anew.
        python: the interpreter that it is made with.
        constraints: the versions of packages.
    """
    wheel = build_wheel()
    contents = "\n".join([python, extras, *map(str, requirements), constraints.read_text()])
    interpreter, ready = folder / "bin" / "python", folder / "ready.txt"
    if ready.exists() and ready.read_text() == contents:
        install(interpreter, "--force-reinstall", "--no-deps", wheel)
    else:
        create(folder, f"{wheel}[{extras}]" if extras else wheel, *requirements, python=python, constraints=constraints)
        ready.write_text(contents)
    return interpreter
