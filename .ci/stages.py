"""Run the stages of the tests: all of them whatever fails; repeat alone what failed; print what was unsteady.

    python .ci/stages.py [--nightly] [--starve RUN_MS/STOP_MS] [STAGE …] [-- PYTEST'S ARGUMENTS …]

The stages are those of .ci/stages.toml. Each has a limit, and so has each of its tests; what a stage leaves running is
ended. Limits grow with the load that other work puts on the machine. No assertion depends on it.

A test that failed is repeated three times, alone, in a process of its own. It is excused, as UNSTEADY, only if it
passes all three and

- nothing in its message tells of an anomaly (ANOMALIES): what was wrong once is wrong;
- it is not drawn by chance (`soak`);
- its folder is not touched by the change;
- tests/unsteady.tsv does not have it twice already: the third time it is red until it is mended and its rows removed;
- at most EXCUSED tests failed.

The last line is `N failed, N unsteady`. Exit code 1: something failed that is not excused.
"""

import argparse
import ctypes
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import psutil

ROOT = Path.cwd()
STAGES = ROOT / ".ci" / "stages.toml"
OUT = ROOT / "build" / "ci"
LEDGER = ROOT / "tests" / "unsteady.tsv"
REPEATS = 3
REPEATS_S = 1200
"""Seconds that all repeats of a run may take together; what is not repeated by then is not excused."""
EXCUSED = 5
LEDGER_LIMIT = 2
ANOMALIES = ("lost", "twice", "out of order")
GRACE_S = 10
"""Seconds that processes of a stage have after its end, before they are ended."""
CHANGE_SINCE = "4 hours ago"
"""What was committed later is the change; a session of work is shorter."""
NONE_CHOSEN = 5
"""pytest's exit code when no test was selected."""
TIMED_OUT = 124
PR_SET_CHILD_SUBREAPER = 36
"""Of prctl(2): orphaned descendants become children of this process, so that it can find and end them."""


class Stage(NamedTuple):
    """A row of .ci/stages.toml."""

    name: str
    stage_s: int
    pytest: Sequence[str] = ()
    command: Sequence[str] = ()
    test_s: int = 0
    when: str | Sequence[str] = "always"


class Failure(NamedTuple):
    """A test, or a whole stage, that failed.

    Attributes:
        name: pytest's id of the test, or the stage.
        message: the last line of its traceback, with pytest's explanation.
        stage: where it failed.
    """

    name: str
    message: str
    stage: Stage


class Ended(NamedTuple):
    """How a stage, or a repeat, ended."""

    code: int
    failures: list[Failure]


def main() -> int:
    """Run the chosen stages; return the exit code."""
    arguments = sys.argv[1:]
    at = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(description="Run the stages of the tests.")
    parser.add_argument("stage", nargs="*", help="names from .ci/stages.toml (default: those of a change)")
    parser.add_argument("--nightly", action="store_true", help="also stages that nothing in the change asks for")
    parser.add_argument(
        "--starve", default="", metavar="RUN_MS/STOP_MS", help="stop the tests' processes again and again"
    )
    options = parser.parse_args(arguments[:at])
    stages = read_stages()
    if unknown := [each for each in options.stage if each not in stages]:
        parser.error(f"no stage {unknown[0]!r}; the stages are {', '.join(stages)}")
    change = changed_files()
    chosen = [stages[each] for each in options.stage] or [
        each for each in stages.values() if is_asked_for(each, None if options.nightly else change)
    ]
    adopt_orphans()
    signal.signal(signal.SIGTERM, _terminate)
    return Run(chosen, change, arguments[at + 1 :], options.starve).run()


class Run:
    """One run over some stages, with a temporary folder of its own, so that no other run has its locks and servers.

    Args:
        stages: which.
        change: the files that the change touches; None if nobody knows.
        more: arguments of every pytest.
        starve: ``RUN_MS/STOP_MS``: the tests' processes run, and stand still, for so long at a time; empty: never.
    """

    def __init__(self, stages: Sequence[Stage], change: Sequence[str] | None, more: Sequence[str], starve: str) -> None:
        self._stages = stages
        self._change = change
        self._more = more
        self._run_s, self._stop_s = (int(each) / 1000 for each in starve.split("/")) if starve else (0.05, 0.0)
        self._times: list[str] = []
        self._temporary = Path(tempfile.mkdtemp(prefix="inturn-"))
        self._temporary.chmod(0o755)  # PostgreSQL runs as another user if this one is root
        runtime = self._temporary / "runtime"
        runtime.mkdir(mode=0o700)
        self._environment = os.environ | {"TMPDIR": str(self._temporary), "XDG_RUNTIME_DIR": str(runtime)}
        OUT.mkdir(parents=True, exist_ok=True)

    def run(self) -> int:
        """Run all; print the summary, also of a run that is terminated; return the exit code."""
        failures: list[Failure] = []
        unsteady: list[Failure] = []
        try:
            for stage in self._stages:
                failures += self._stage(stage)
            unsteady = self._unsteady(failures)
        except SystemExit as terminated:
            failures.append(Failure(str(terminated), "", Stage("all", 0)))
            end_descendants(0)
        failed = [each for each in failures if each not in unsteady]
        for line in self._times:
            print(line)
        for each in unsteady:
            print(f"UNSTEADY {each.name}")
        for each in failed:
            print(f"FAILED {each.name}")
        if failures:
            print(f"what the tests left is in {self._temporary}")
        else:
            shutil.rmtree(self._temporary, ignore_errors=True)
        print(f"{len(failed)} failed, {len(unsteady)} unsteady")
        return int(bool(failed))

    def _stage(self, stage: Stage) -> list[Failure]:
        print(f"== {stage.name}", flush=True)
        began, cpu_s = time.monotonic(), children_cpu_s()
        code, failures = self._execute(
            stage, stage.name, [*stage.pytest, "--durations=30", "--durations-min=1", *self._more]
        )
        took = f"after {time.monotonic() - began:.0f} s, {children_cpu_s() - cpu_s:.0f} s of CPU"
        self._times.append(f"{stage.name}: exit code {code} {took}")
        print(self._times[-1], flush=True)
        if code == 0 or (code == NONE_CHOSEN and self._more):
            return []
        if code == 1 and failures:
            return failures
        return [*failures, Failure(f"stage {stage.name} (exit code {code})", "", stage)]

    def _execute(self, stage: Stage, name: str, pytest: Sequence[str]) -> Ended:
        """Run a stage's command, or pytest within its limits."""
        slower = slowness() * (self._run_s + self._stop_s) / self._run_s
        report = OUT / f"{name}.jsonl"
        report.unlink(missing_ok=True)
        command = list(stage.command)
        if stage.pytest:
            limits = [
                "-o",
                f"faulthandler_timeout={stage.test_s * slower:.0f}",
                "-o",
                "faulthandler_exit_on_timeout=true",
            ]
            cache = ["-o", f"cache_dir={OUT / 'cache' / name}", f"--report-log={report}"]
            command = [sys.executable, "-m", "pytest", *limits, *cache, *pytest]
        code = self._wait(command, stage.stage_s * slower)
        end_descendants(GRACE_S)
        return Ended(code, read_failures(report, stage))

    def _wait(self, command: Sequence[str], limit_s: float) -> int:
        """Run a command until it ends, or its limit is over; adopted processes that end meanwhile are waited for."""
        started = subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL, env=self._environment)
        ends = time.monotonic() + limit_s
        while time.monotonic() < ends:
            time.sleep(self._run_s)
            with suppress(ProcessLookupError):
                if self._stop_s:
                    os.killpg(started.pid, signal.SIGSTOP)
                    time.sleep(self._stop_s)
                    os.killpg(started.pid, signal.SIGCONT)
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == started.pid:
                    started.returncode = os.waitstatus_to_exitcode(ended[1])
                    return started.returncode
        print(f"the limit of {limit_s:.0f} s is over: {' '.join(command)}", flush=True)
        end_descendants(0)
        return TIMED_OUT

    def _unsteady(self, failures: Sequence[Failure]) -> list[Failure]:
        """Repeat what may be excused; note what is, and print why the rest is not."""
        ends = time.monotonic() + REPEATS_S
        noted = LEDGER.read_text().splitlines() if LEDGER.exists() else []
        unsteady = []
        for number, each in enumerate(failures):
            why = "too many failed to excuse one" if len(failures) > EXCUSED else self._blame(each, noted)
            if not why and time.monotonic() > ends:
                why = f"no time is left to repeat it ({REPEATS_S} s)"
            if not why and not self._is_steady(each, number):
                why = "it fails alone too"
            if why:
                print(f"not excused: {each.name}: {why}", flush=True)
            else:
                unsteady.append(each)
        with LEDGER.open("a") as ledger:
            for each in unsteady:
                row = (
                    each.name,
                    git("rev-parse", "--short", "HEAD"),
                    f"{datetime.now(UTC):%F}",
                    f"{os.getloadavg()[0]:.0f}",
                )
                ledger.write("\t".join(row) + "\n")
        return unsteady

    def _blame(self, failure: Failure, noted: Sequence[str]) -> str:
        """Say why a failure cannot be excused, whatever repeats give; empty if it may be."""
        folder = Path(failure.name.partition("::")[0]).parent
        if "::" not in failure.name:
            return "it is no test"
        if told := [each for each in ANOMALIES if each in failure.message]:
            return f"its message says {told[0]!r}"
        if self._change is None:
            return "nobody knows what the change touches: git has no answer"
        if any(Path(each).parent == folder for each in self._change):
            return f"the change touches {folder}/"
        if sum(each.partition("\t")[0] == failure.name for each in noted) >= LEDGER_LIMIT:
            return f"{LEDGER.relative_to(ROOT)} has it {LEDGER_LIMIT} times already; mend it, and remove its rows"
        return ""

    def _is_steady(self, failure: Failure, number: int) -> bool:
        """Return whether a test passes each time that it is run alone; one that is drawn by chance is never run."""
        path = failure.name.partition("::")[0]
        test = path if path.endswith(".md") else failure.name  # a block of a document needs those before it
        for again in range(1, REPEATS + 1):
            print(f"== repeat {again} of {failure.name}", flush=True)
            if self._execute(failure.stage, f"repeat-{number}-{again}", ["-n", "0", "-m", "not soak", test]).code:
                return False
        return True


def read_stages() -> dict[str, Stage]:
    """Read .ci/stages.toml."""
    return {name: Stage(name, **row) for name, row in tomllib.loads(STAGES.read_text()).items()}


def is_asked_for(stage: Stage, change: Sequence[str] | None) -> bool:
    """Return whether a run without names has it: always, or since the change touches its paths; None touches all."""
    if isinstance(stage.when, str):
        return stage.when == "always"
    return change is None or any(Path(each).is_relative_to(path) for each in change for path in stage.when)


def changed_files() -> list[str] | None:
    """List the files that the change touches, committed or not; None if git does not answer."""
    before = git("rev-list", "-1", f"--before={CHANGE_SINCE}", "HEAD") or git("rev-list", "--max-parents=0", "HEAD")
    if not before:
        return None
    return [*git("diff", "--name-only", before).splitlines(), *git("ls-files", "-o", "--exclude-standard").splitlines()]


def git(*arguments: str) -> str:
    """Return what git prints; empty if it fails."""
    ran = subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=ROOT, check=False)
    return ran.stdout.strip() if ran.returncode == 0 else ""


def children_cpu_s() -> float:
    """Return the CPU time of the processes that have ended and were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def slowness() -> float:
    """Return how much longer limits are on this machine now: 1 at rest, at most 4 beside other work."""
    return min(4.0, max(1.0, os.getloadavg()[0] / (2 * (os.cpu_count() or 1))))


def read_failures(report: Path, stage: Stage) -> list[Failure]:
    """Read the failed tests from pytest-reportlog's lines; a last line that is cut off is passed over."""
    found: dict[str, Failure] = {}
    for line in report.read_text().splitlines() if report.exists() else ():
        with suppress(ValueError):
            row = json.loads(line)
            if row.get("outcome") == "failed":
                found.setdefault(row["nodeid"], Failure(row["nodeid"], _message(row["longrepr"]), stage))
    return list(found.values())


def _message(longrepr: Any) -> str:
    return str(longrepr["reprcrash"]["message"]) if isinstance(longrepr, dict) and longrepr.get("reprcrash") else ""


def adopt_orphans() -> None:
    """Become the parent of descendants whose parents end: servers that a killed test leaves behind can be found so."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_descendants(grace_s: float) -> None:
    """Wait until no process of the stage is left; after the grace, kill what is, and print it."""
    ends = time.monotonic() + grace_s
    while left := _descendants():
        if time.monotonic() >= ends:
            for each in left:
                with suppress(psutil.NoSuchProcess):
                    print(f"LEFT RUNNING, ended: {each.pid} {' '.join(each.cmdline())[:200]}", flush=True)
                    each.kill()
        time.sleep(0.1)


def _descendants() -> list[psutil.Process]:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return [each for each in psutil.Process().children(recursive=True) if each.status() != psutil.STATUS_ZOMBIE]


def _terminate(*_: object) -> NoReturn:
    sys.exit("the run was terminated")


if __name__ == "__main__":
    sys.exit(main())
