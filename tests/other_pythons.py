"""Run the tests that need neither Spark nor documents on each Python that is here, from the wheel.

``python tests/other_pythons.py`` looks for python3.11 to python3.14 on the PATH. Each gets an environment of its own
with all extras, and takes steps on Spark as well. The exit code is 0 if all passed; a Python that is not here is named.
"""

import os
import subprocess
import sys
from pathlib import Path

from caches import CACHE
from environments import ROOT, keep

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
EXTRAS = "demo,connect,objects,delta,server,postgres,redis"
CHOSEN = "not spark and not slow and not document and not thorough"
ON_SPARK = "tests/spark_versions/test_versions_batch.py"


def main() -> int:
    """Run the tests on each Python, and tell at the end how each went."""
    report, worst = [], 0
    for version in VERSIONS:
        name = f"python{version}"
        if not _runs(name):
            report.append(f"Python {version}: not here")
            continue
        print(f"== Python {version}", flush=True)
        group = f"{ROOT / 'pyproject.toml'}:dev"
        interpreter = keep(CACHE / "pythons" / version, EXTRAS, "--group", group, python=name)
        codes = [_pytest(interpreter, "-n", "2", "-m", CHOSEN, "tests"), _pytest(interpreter, ON_SPARK)]
        worst = max(worst, *codes)
        report.append(f"Python {version}: {'passed' if not any(codes) else 'FAILED'}")
    print("\n" + "\n".join(report))
    return worst


def _runs(name: str) -> bool:
    try:
        return (
            subprocess.run([name, "-c", "import venv"], capture_output=True, check=False, timeout=300).returncode == 0
        )
    except FileNotFoundError:
        return False


def _pytest(python: Path, *arguments: str) -> int:
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [python, "-m", "pytest", "-p", "no:cacheprovider", "--hypothesis-profile=quick", *arguments]
    return subprocess.run(command, cwd=ROOT, env=settings, check=False, timeout=1800).returncode


if __name__ == "__main__":
    sys.exit(main())
