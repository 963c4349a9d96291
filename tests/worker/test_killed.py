"""However often workers are killed, states and outputs are those of the replay, and each output was committed once."""

import json
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from lives import history_of
from worker.programs import crash_pipeline

pytestmark = [pytest.mark.slow, pytest.mark.soak]

KILLS = {"sqlite": 20, "postgres": 10}


@pytest.mark.parametrize("kind", KILLS)
def test_workers_killed_at_every_point_lose_nothing_and_commit_each_output_once(
    kind: str, tmp_path: Path, soak_seed: int, soak_times: int, request: pytest.FixtureRequest
) -> None:
    """More lives by hand: (cd tests; python -m worker.programs.crash_pipeline DIRECTORY 2000 SEED)."""
    kills = soak_times * KILLS[kind]
    arguments = [request.getfixturevalue("postgres_url")] if kind == "postgres" else []
    history = history_of("worker.programs.crash_pipeline", tmp_path, kills, soak_seed, *arguments)
    assert (history["sound"], history["messages"], history["left"]) == ([["ok"]], 0, 0)
    # What a life sent and did not live to note may be there too.
    seen = dict(history["sent"])
    assert sum(seen.values()) > kills, "too little was done to say anything"
    states = {g: (s, msgspec.msgpack.decode(bytes.fromhex(state))) for g, (s, state) in history["states"].items()}
    for group, (status, state) in states.items():
        if status == "open":
            reached = next(n for n in range(10**6) if n * (n + 1) // 2 == state.get("balance", 0))
            assert reached >= seen.get(group, 0), "lost"
            seen[group] = reached
        else:
            assert (group, status, state["balance"]) == (crash_pipeline.BAD[0], "failed", 780)
            held = [position for name, position in history["held"] if name == group]
            assert held == list(range(40, 40 + len(held)))
            seen[group] = held[-1]
    replay = crash_pipeline.LEDGER.replay(
        [crash_pipeline.message(g, n) for g, last in seen.items() for n in range(1, last + 1)]
    )
    assert {group: state for group, (_, state) in states.items()} == replay.states
    outputs = {output.effect_id: output.output for output in replay.outputs}
    assert Counter(effect for effect, _ in history["made"]) == Counter(outputs.keys()), "each was committed once"
    assert {effect: json.loads(output) for effect, output in history["made"]} == outputs
    assert dict(history["told"]) == outputs, "each was delivered"
    for group in replay.states:
        order = [output.effect_id for output in replay.outputs if output.group == group]
        firsts = [effect for effect in dict.fromkeys(effect for effect, _ in history["told"]) if effect in set(order)]
        assert firsts == order, "in order"
    counts = history["counts"]
    went = counts["applied"] + counts["duplicate"] + counts["stale"] + counts["held"] + sum(counts["rejected"].values())
    assert counts["received"] + counts["released"] == went
    assert counts["applied"] == replay.counts.applied
