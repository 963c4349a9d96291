"""The systemd units are valid, confined, and stop as inturn does."""

import re
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from composed import DEPLOY
from inturn.core import limits
from inturn.sqs import limits as server_limits
from waiting import PROGRAM_S

UNITS = sorted((DEPLOY / "systemd").iterdir())
INSTALLED = Path("/opt/inturn/bin/inturn")
ANALYZE = shutil.which("systemd-analyze") or ""
needs_systemd = pytest.mark.skipif(not ANALYZE, reason="systemd-analyze is not there; `make services` installs it")


@needs_systemd
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_analyze_verifies_each_unit(unit: Path, tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("inturn")
    copy = tmp_path / unit.name.replace("@", "@ledger")
    copy.write_text(unit.read_text().replace(str(INSTALLED), str(program)))
    result = subprocess.run(
        [ANALYZE, "verify", "--man=no", copy], capture_output=True, text=True, check=False, timeout=60
    )
    about = [line for line in result.stderr.splitlines() if copy.name in line]
    assert (result.returncode, about) == (0, [])


@needs_systemd
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_each_unit_has_a_low_security_exposure(unit: Path) -> None:
    """The exposure that systemd computes, of 10: that of a unit without any of the settings is above 9."""
    command = [ANALYZE, "security", "--offline=true", "--no-pager", "--threshold=20", unit]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stdout[-1_000:]


@pytest.mark.thorough
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_stop_timeout_of_a_unit_exceeds_the_grace_time(unit: Path) -> None:
    parser = ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # systemd tells case apart
    parser.read_string(unit.read_text())
    service = parser["Service"]
    grace_s = limits.WORKER_GRACE_S if "worker" in unit.name else server_limits.GRACE_S
    assert int(service["TimeoutStopSec"]) > grace_s
    kinds = (service["Type"], service["Restart"], service["KillMode"], service["DynamicUser"])
    assert kinds == ("exec", "on-failure", "mixed", "yes")
    (program, command, *_) = re.split(r"\s+", service["ExecStart"])
    assert Path(program) == INSTALLED
    options = subprocess.run(
        [sys.executable, "-m", "inturn", command, "--help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=PROGRAM_S,
    ).stdout
    assert all(option in options for option in re.findall(r"--[a-z-]+", service["ExecStart"]))
