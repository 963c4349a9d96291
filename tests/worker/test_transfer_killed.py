"""However often the workers of the money transfer are killed, no money is lost and each payment arrives once."""

from pathlib import Path

import pytest

from lives import history_of

pytestmark = [pytest.mark.slow, pytest.mark.soak]

KILLS = {"sqlite": 10, "postgres": 6}
ACCOUNTS, FIRST = 6, 1_000


@pytest.mark.parametrize("kind", KILLS)
def test_killed_transfer_workers_neither_lose_nor_create_money(
    kind: str, tmp_path: Path, soak_seed: int, soak_times: int, request: pytest.FixtureRequest
) -> None:
    """More lives by hand: (cd tests; python -m worker.programs.crash_transfer DIRECTORY 2000 SEED)."""
    kills = soak_times * KILLS[kind]
    arguments = [request.getfixturevalue("postgres_url")] if kind == "postgres" else []
    history = history_of("worker.programs.crash_transfer", tmp_path, kills, soak_seed, *arguments)
    assert history["sums"] == [ACCOUNTS * FIRST], "at every moment"
    assert history["left"] == 0
    states, counts = history["states"].values(), history["counts"]
    assert sum(state["balance"] for state in states) == ACCOUNTS * FIRST
    declined = sum(state["declined"] for state in states)
    assert 0 < declined < history["payments"]
    assert counts["applied"] == ACCOUNTS + 2 * history["payments"] - declined, "each payment that was taken came once"
    assert counts["received"] == counts["applied"], "nothing came twice"
