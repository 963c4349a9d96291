"""How the tests start Java for Spark: quickly, and with the classes that Spark loads from an archive.

``python tests/spark_classes.py`` writes the archive from what a test loads, once for each environment: the
environment's path, Java and Spark are part of it. Java passes over an archive that does not fit, and starts as without.
"""

import os
import sys
from pathlib import Path
from typing import Final

ARCHIVE: Final = Path(sys.prefix) / "spark-classes.jsa"
QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A test run is over before the optimising compiler of Java has earned what it costs."""
INTERPRETED: Final = (
    "-Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN "
    "-Dspark.python.sql.dataFrameDebugging.enabled=false"
)
"""Spark interprets its plans, and notes of no column where Python made it: the rows of a test are few, its plans large.

A fifth of the CPU time of the tests that have a session. Those of each Spark version do without: there Spark is as
users have it.
"""
ROOT: Final = Path(__file__).parents[1]
TEST: Final = ROOT / "tests" / "spark" / "test_stream.py::test_an_expired_gap_wait_ends_at_the_next_run"
"""Loads nearly all that others load: with a batch and an audit beside it no test starts sooner."""
WRITING_S: Final = 120


def quick_java(*, interpreted: bool = False) -> str:
    """Return the options of a Java that runs Spark for a test; ``interpreted`` adds :data:`INTERPRETED`."""
    options = f"{QUICK} -XX:SharedArchiveFile={ARCHIVE} -Xlog:cds=off -Xlog:cds+dynamic=off"
    return f"{options} {INTERPRETED}" if interpreted else options


def main() -> None:
    """Run the test with a Java that writes the archive at its end; where it cannot, leave an empty file.

    Whether the test passes is not looked at here: it is run again, among the others.
    """
    import pytest  # here, since every test process has the options, and few have Spark
    from pyspark import SparkContext

    part = ARCHIVE.with_suffix(".part")
    os.environ["SPARK_SUBMIT_OPTS"] = f"{QUICK} -XX:ArchiveClassesAtExit={part} -Xlog:disable"
    pytest.main(["-q", "-n0", "-p", "no:cacheprovider", f"--rootdir={ROOT}", str(TEST)])
    if gateway := SparkContext._gateway:
        gateway.proc.stdin.close()  # at which it ends
        gateway.proc.wait(WRITING_S)
    part.touch()
    part.rename(ARCHIVE)


if __name__ == "__main__":
    main()
