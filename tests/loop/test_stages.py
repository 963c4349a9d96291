"""The stages, held by a project that is broken on purpose: what each fault prints, and the exit code."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Final

import psutil
import pytest

from waiting import PROGRAM_S

pytestmark = pytest.mark.slow

STAGES: Final = Path(__file__).parents[2] / ".ci" / "stages.py"
COMMIT: Final = ("git", "-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-q", "--allow-empty")
PLUGINS: Final = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin,pytest_reportlog.plugin"}
OUTSIDE: Final = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")} | PLUGINS
COMPANY: Final = """
import os
def test_in_company():
    assert "PYTEST_XDIST_WORKER" not in os.environ, "{message}"
"""


class Ran:
    """A run of the stages."""

    def __init__(self, ran: "subprocess.CompletedProcess[str]") -> None:
        self.code = ran.returncode
        self.lines = ran.stdout.splitlines()
        self.last = self.lines[-1]

    def of(self, word: str) -> list[str]:
        """The lines that begin with a word, without it; not pytest's own."""
        return [line.removeprefix(word).strip() for line in self.lines if line.startswith(word) and " - " not in line]


class Project:
    """A project with tests of its own, under git."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ledger = root / "tests" / "unsteady.tsv"
        (root / ".ci").mkdir()
        (root / "tests").mkdir()
        (root / "pyproject.toml").write_text("[tool.pytest.ini_options]\nmarkers = ['soak: by chance']\n")
        self.stages('[first]\npytest = ["-n", "2", "tests"]\ntest_s = 60\nstage_s = 120\n')
        subprocess.run(["git", "init", "-q"], cwd=root, check=True, timeout=PROGRAM_S)

    def stages(self, text: str) -> None:
        (self.root / ".ci" / "stages.toml").write_text(text)

    def test(self, name: str, text: str, folder: str = "tests/old") -> None:
        path = self.root / folder / f"test_{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))

    def commit(self) -> None:
        """Commit all, so long ago that it is not the change."""
        subprocess.run(["git", "add", "-A"], cwd=self.root, check=True, timeout=PROGRAM_S)
        date = "2026-01-01T12:00:00Z"
        dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        subprocess.run([*COMMIT, "-m", "all"], cwd=self.root, check=True, env=OUTSIDE | dates, timeout=PROGRAM_S)

    def run(self, *arguments: str) -> Ran:
        command = [sys.executable, str(STAGES), *arguments]
        ran = subprocess.run(
            command, cwd=self.root, capture_output=True, text=True, check=False, timeout=300, env=OUTSIDE
        )
        print(ran.stdout[-4000:], ran.stderr[-4000:])
        return Ran(ran)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_stages_report_each_failure_and_all_stages_run(project: Project) -> None:
    project.stages("""
        [first]
        pytest = ["-n", "2", "tests/old"]
        test_s = 5
        stage_s = 200
        [late]
        pytest = ["tests/late"]
        test_s = 100
        stage_s = 3
        [last]
        pytest = ["tests/last"]
        test_s = 100
        stage_s = 100
        """)
    project.test("hangs", "import time\ndef test_hangs(): time.sleep(1000)")
    project.test("company", COMPANY.format(message="in company"))
    project.test("wrong", "def test_wrong(): assert 1 == 2")
    project.test(
        "third",
        """
        from pathlib import Path
        def test_each_third_time():
            runs = Path("runs.txt")
            runs.write_text((runs.read_text() if runs.exists() else "") + "x")
            assert len(runs.read_text()) % 3 != 1
        """,
    )
    project.test(
        "leaks",
        """
        import subprocess
        from pathlib import Path
        def test_leaks():
            server = subprocess.Popen(["sleep", "1000"], start_new_session=True)
            Path("pid.txt").write_text(str(server.pid))
        """,
    )
    project.test("late", "import time\ndef test_late(): time.sleep(90)", "tests/late")
    project.test("good", "def test_good(): pass", "tests/last")
    project.commit()
    ran = project.run()
    assert ran.of("UNSTEADY") == ["tests/old/test_company.py::test_in_company"]
    assert sorted(set(ran.of("FAILED tests/old/"))) == [
        "test_hangs.py::test_hangs",
        "test_third.py::test_each_third_time",
        "test_wrong.py::test_wrong",
    ]
    assert ran.of("FAILED stage") == ["late (exit code 124)"]
    assert (ran.last, ran.code) == ("4 failed, 1 unsteady", 1)
    assert ran.of("last: exit code 0")
    (leftover,) = [line for line in ran.of("LEFT RUNNING, ended:") if line.endswith("sleep 1000")]
    assert not psutil.pid_exists(int(leftover.split()[0]))
    assert leftover.split()[0] == (project.root / "pid.txt").read_text()


def test_stages_excuse_an_unsteady_test_twice_and_fail_the_third_time(project: Project) -> None:
    project.test("company", COMPANY.format(message="in company"))
    project.commit()
    for _ in range(2):
        ran = project.run()
        assert (ran.last, ran.code) == ("0 failed, 1 unsteady", 0)
    rows = [line.split("\t") for line in project.ledger.read_text().splitlines()]
    assert [(len(row), row[0]) for row in rows] == [(4, "tests/old/test_company.py::test_in_company")] * 2
    ran = project.run()
    assert (ran.last, ran.code) == ("1 failed, 0 unsteady", 1)
    assert "tests/unsteady.tsv has it 2 times already" in ran.of("not excused:")[0]


@pytest.mark.parametrize("message", ["3 messages lost", "m1 came twice", "m2 is out of order"])
def test_stages_never_excuse_an_anomaly(project: Project, message: str) -> None:
    project.test("company", COMPANY.format(message=message))
    project.commit()
    ran = project.run()
    assert (ran.last, ran.code) == ("1 failed, 0 unsteady", 1)
    assert "its message says" in ran.of("not excused:")[0]


def test_stages_never_excuse_a_soak_test(project: Project) -> None:
    project.test("company", "import pytest\npytestmark = pytest.mark.soak\n" + COMPANY.format(message="by chance"))
    project.commit()
    assert project.run().last == "1 failed, 0 unsteady"


def test_stages_never_excuse_a_test_in_a_changed_directory(project: Project) -> None:
    project.test("company", COMPANY.format(message="in company"))
    project.commit()
    project.test("other", "def test_other(): pass", "tests/new")
    assert project.run().last == "0 failed, 1 unsteady", "another folder"
    project.test("another", "def test_another(): pass")
    ran = project.run()
    assert ran.last == "1 failed, 0 unsteady"
    assert "the change touches tests/old/" in ran.of("not excused:")[0]


def test_stages_do_not_repeat_more_than_five_failures(project: Project) -> None:
    for number in range(6):
        project.test(f"company{number}", COMPANY.format(message="in company"))
    project.commit()
    ran = project.run()
    assert (ran.last, ran.code) == ("6 failed, 0 unsteady", 1)
    assert not ran.of("== repeat")


def test_stages_fail_on_an_import_error_or_a_stage_without_tests(project: Project) -> None:
    project.test("broken", "import no_such_module")
    project.commit()
    ran = project.run()
    assert ran.code == 1
    assert ran.of("FAILED") == ["tests/old/test_broken.py"]
    project.test("broken", "")
    project.commit()
    assert project.run().of("FAILED") == ["stage first (exit code 5)"]
    assert project.run("first", "--", "-k", "nothing").last == "0 failed, 0 unsteady", "the arguments chose none"


def test_stages_run_a_nightly_stage_if_its_files_changed(project: Project) -> None:
    project.stages("""
        [first]
        command = ["true"]
        stage_s = 60
        [image]
        command = ["false"]
        stage_s = 60
        when = ["deploy"]
        [by-hand]
        command = ["false"]
        stage_s = 60
        when = "named"
        """)
    project.commit()
    assert project.run().last == "0 failed, 0 unsteady"
    assert project.run("--nightly").of("FAILED") == ["stage image (exit code 1)"]
    (project.root / "deploy").mkdir()
    (project.root / "deploy" / "Dockerfile").write_text("FROM scratch")
    assert project.run().of("FAILED") == ["stage image (exit code 1)"]


def test_stages_terminated_early_print_the_known_failures_and_leave_no_process(project: Project) -> None:
    project.test("wrong", "def test_wrong(): assert 1 == 2")
    project.test("hangs", "import time\ndef test_hangs(): time.sleep(1000)", "tests/slow")
    project.stages("""
        [first]
        pytest = ["tests/old"]
        test_s = 60
        stage_s = 60
        [second]
        pytest = ["tests/slow"]
        test_s = 900
        stage_s = 900
        """)
    project.commit()
    run = subprocess.Popen(
        [sys.executable, str(STAGES)], cwd=project.root, stdout=subprocess.PIPE, text=True, env=OUTSIDE
    )
    assert run.stdout is not None
    seen = []
    for line in run.stdout:
        seen.append(line.strip())
        if seen[-1] == "== second":
            run.terminate()
    assert run.wait(60) == 1
    assert seen[-1] == "2 failed, 0 unsteady"
    assert "FAILED tests/old/test_wrong.py::test_wrong" in seen


def test_stages_with_starve_pause_the_tests_repeatedly(project: Project) -> None:
    project.test("steps", "import time\ndef test_steps():\n  for _ in range(200): time.sleep(0.001)")
    project.commit()
    assert project.run("--starve", "30/150").last == "0 failed, 0 unsteady"
