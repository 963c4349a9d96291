"""A writer that is killed at any moment, on an object store that lies about every seventh write."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from faulty_proxy import Fault, proxied
from programs import crash_steps
from programs.ledger import ledger

from inturn.core.pipeline.decision import Decision
from inturn.core.pipeline.replay import Replay
from inturn.spark.tables.manifest import SparkStore
from kernel_harness import Bench, expected

pytestmark = [pytest.mark.slow, pytest.mark.soak]

PROGRAM = Path(__file__).parent / "programs" / "crash_steps.py"
KILLS = 5
LIVES = 60  # so many, of which faults end some too, come to the end
FAULTS: tuple[Fault, ...] = (500, 503, 429, 408, "cut")


class Storm:
    """Kills the first lives after some requests, and answers every seventh write by a fault.

    Each request was carried out when this is asked, so a life dies between the store's deed and its answer.
    """

    def __init__(self, seed: int, kills: int) -> None:
        self._chance = random.Random(seed)
        self.kills, self.faults = kills, 0
        self._life, self._left = 0, 0

    def begin(self, life: int) -> None:
        """A life began, in this process."""
        self._life, self._left = life, self._chance.randint(20, 250) if self.kills else 0

    def __call__(self, method: str, path: str) -> Fault:
        """The fault of one request."""
        self._left -= 1
        if self._left == 0:
            self.kills -= 1
            os.kill(self._life, signal.SIGKILL)
        if method not in ("PUT", "DELETE") or self._chance.random() > 1 / 7:
            return None
        self.faults += 1
        return self._chance.choice(FAULTS)


def test_a_killed_writer_on_a_faulty_object_store_commits_everything_exactly_once(
    endpoint: str, bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, soak_seed: int, soak_times: int
) -> None:
    url, storm, events = f"{bucket}/storm-{soak_seed}", Storm(soak_seed, soak_times * KILLS), list[dict[str, Any]]()
    with proxied(endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        proxy.faults = storm
        command = [sys.executable, str(PROGRAM), url, str(soak_seed), str(soak_times * LIVES)]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            for line in program.stdout:
                events.append(json.loads(line))
                if "life" in events[-1]:
                    storm.begin(events[-1]["life"])
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        local = copied(url, tmp_path / "store")
    ends = [event["ended"] for event in events if "ended" in event]
    assert ends[-1] == 0, f"it did not come to its end: {events[-5:]}"
    assert ends.count(-signal.SIGKILL) > 1, "it was hardly killed"
    assert [event for event in events if "conflict" in event] == []
    with Bench(ledger, crash_steps.SCHEMA, root=local) as bench:
        replayed, parts = Replay(), crash_steps.parts(soak_seed)
        assert bench.store.steps() == list(range(1, len(parts) + 1)), "each part was a step, once"
        for step, messages in enumerate(parts, 1):
            manifest = bench.store.manifest(step)
            decisions = [decision_of(local, decision.name) for decision in manifest.decisions]
            replayed = ledger.replay(messages, now=crash_steps.now(step), after=replayed, decisions=decisions)
        assert bench.seen() == expected(replayed)
        stored = {path.stem for path in (local / "decisions").glob("*/*.json")}
        acknowledged = {event["decided"] for event in events if "decided" in event}
        assert acknowledged <= stored <= {event["deciding"] for event in events if "deciding" in event}
        applied = [decision.name for step in bench.store.steps() for decision in bench.store.manifest(step).decisions]
        assert len(applied) == len(set(applied)), "each was taken once"
    print(f"{ends.count(-signal.SIGKILL)} kills, {storm.faults} faults, {len(parts)} steps, {len(stored)} decisions")


def copied(url: str, to: Path) -> Path:
    """All files of the store, in a directory."""
    files = SparkStore(url).files
    for name in files.names(""):
        data = files.source(name).read_buffer() if name.startswith("data/") else files.read(name)
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        (to / name).write_bytes(data or b"")
    return to


def decision_of(store: Path, name: str) -> Decision:
    """A decision that a step took."""
    path, *_ = store.glob(f"decisions/*/{name}.json")  # of the last step it may be among the new ones still
    return msgspec.json.decode(path.read_bytes(), type=Decision)
