"""How a user works in a virtual environment that holds the wheel with some extras and nothing else."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from environments import ROOT

PASTE = Path(__file__).with_name("paste.py")


@dataclass
class Environment:
    """A clean virtual environment, and a folder to work in."""

    path: Path
    folder: Path

    def run(self, *command: str | Path, env: dict[str, str] | None = None, activated: bool = False) -> str:
        """Run one of the environment's programs in the folder; return its standard output.

        Nothing of this checkout is on its path. ``activated`` puts the environment first on the PATH.
        """
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))
        }
        if activated:
            clean["PATH"] = f"{self.path / 'bin'}{os.pathsep}{clean['PATH']}"
        program, *rest = command
        ran = subprocess.run(
            [self.path / "bin" / program, *rest],
            cwd=self.folder,
            env=clean | (env or {}),
            capture_output=True,
            text=True,
            check=False,
            timeout=500,
        )
        assert ran.returncode == 0, f"{program} {rest} ended with {ran.returncode}:\n{ran.stdout}{ran.stderr}"
        return ran.stdout

    def paste(self, document: str, blocks: int | None = None) -> str:
        """Run the code of a document as a reader pastes it, with the environment activated."""
        number = [] if blocks is None else [str(blocks)]
        return self.run("python", PASTE, ROOT / document, *number, activated=True)
