"""However often the workers of the money transfer are killed, no money is lost and each payment arrives once."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.soak]

PROGRAM = Path(__file__).parent / "programs" / "crash_transfer.py"
KILLS = {"sqlite": 60, "postgres": 30}
ACCOUNTS, FIRST = 6, 1_000


@pytest.mark.parametrize("kind", KILLS)
def test_money_is_never_lost_and_never_made(
    kind: str, tmp_path: Path, soak_seed: int, request: pytest.FixtureRequest
) -> None:
    """More lives by hand: python tests/worker/programs/crash_transfer.py DIRECTORY 2000 SEED."""
    at = [request.getfixturevalue("postgres_url")] if kind == "postgres" else []
    done = subprocess.run(
        [sys.executable, PROGRAM, tmp_path, str(KILLS[kind]), str(soak_seed), *at],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    history = json.loads(done.stdout)
    assert history["killed"] == KILLS[kind], f"lives that ended otherwise: {done.stderr}"
    assert history["sums"] == [ACCOUNTS * FIRST], "at every moment"
    assert history["left"] == 0
    states, counts = history["states"].values(), history["counts"]
    assert sum(each["balance"] for each in states) == ACCOUNTS * FIRST
    declined = sum(each["declined"] for each in states)
    assert 0 < declined < history["payments"]
    assert counts["applied"] == ACCOUNTS + 2 * history["payments"] - declined, "each payment that was taken came once"
    assert counts["received"] == counts["applied"], "nothing came twice"
