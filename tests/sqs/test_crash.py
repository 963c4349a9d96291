"""The server is killed again and again under 32 clients: nothing they were told turns out to be wrong."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from inturn.faults import OF_A_TRANSACTION
from inturn.testing.history import OK, UNASKED, UNKNOWN

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parent / "programs" / "crash.py"
KILLS = 12
LIMIT_S = 300


@pytest.mark.soak
def test_every_acknowledged_request_survives_repeated_server_kills(tmp_path: Path, soak_seed: int) -> None:
    """More kills by hand: python tests/sqs/programs/crash.py DIRECTORY 500 SEED."""
    done = subprocess.run(
        [sys.executable, PROGRAM, tmp_path / "run", str(KILLS), str(soak_seed)],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["faults"] == []
    assert report["left"] == 0, "messages that nobody is given"
    assert (report["last_status"], report["sound"], report["logged"]) == (0, [["ok"]], [])
    deaths, counts = report["deaths"], report["figures"]
    assert sum(deaths.values()) == KILLS
    assert not [death for death in deaths if death.startswith("otherwise")]
    assert {*OF_A_TRANSACTION} <= {*deaths}
    assert counts["messages"] > 100, "too little was done to say anything"
    assert min(counts["send unknown"], counts["delivered again"], counts["acknowledged again"]) > 0
    refused = {
        name
        for name in counts
        if name.rpartition(" ")[2] not in {OK, UNKNOWN, UNASKED, "again", "delivered", "messages"}
    }
    assert refused <= {
        "delete InvalidParameterValue",
        "nack InvalidParameterValue",
        "nack AWS.SimpleQueueService.MessageNotInflight",
    }
