"""Nothing is lost and nothing is done twice, however often the process dies: the history of hundreds of lives."""

from itertools import groupby
from pathlib import Path

import pytest

from lives import history_of

pytestmark = [pytest.mark.slow, pytest.mark.soak]

KILLS = {"sqlite": 40, "postgres": 10}


@pytest.mark.parametrize("kind", KILLS)
def test_killed_processes_lose_no_message_and_process_each_once(
    kind: str, tmp_path: Path, soak_seed: int, soak_times: int, request: pytest.FixtureRequest
) -> None:
    """More lives by hand: (cd tests; python -m queues.programs.crash_worker DIRECTORY 5000 SEED)."""
    kills = soak_times * KILLS[kind]
    arguments = [request.getfixturevalue("postgres_url")] if kind == "postgres" else []
    history = history_of("queues.programs.crash_worker", tmp_path, kills, soak_seed, *arguments)
    assert history["sound"] == [["ok"]]
    applied = [(account, number) for account, number, _ in history["applied"]]
    answered = {(account, int(number)) for account, number in history["sent"]}
    assert len(answered) > kills / 10, "too little was done to say anything"
    assert len(applied) == len(set(applied)), "done twice"
    assert answered <= set(applied), "lost"
    for account, pairs in groupby(sorted(set(applied)), key=lambda pair: pair[0]):
        in_turn = [number for name, number in applied if name == account]
        assert in_turn == [number for _, number in pairs] == list(range(1, len(in_turn) + 1)), "out of order"
        receipts = [number for name, number in history["receipts"] if name == account]
        assert receipts == in_turn, "outputs do not belong to what was done"
