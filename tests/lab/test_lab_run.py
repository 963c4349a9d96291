"""A run of the lab: the same seed gives the same bytes, and each message is in one place."""

import os
import random
import subprocess
import sys
from collections.abc import Iterator

import pytest

from inturn.core.errors import InputError
from inturn.lab import Knobs, LabMessage, run
from inturn.lab.designs import default_designs
from waiting import PROGRAM_S

NAMES = [design.name for design in default_designs()]


def messages(count: int = 300, groups: int = 5, seed: int = 1) -> Iterator[LabMessage]:
    chance, revisions = random.Random(seed), [0] * groups
    for number in range(count):
        group = chance.randrange(groups)
        revisions[group] += 1
        yield LabMessage(at_us=number * 500, group=f"g{group}", revision=revisions[group])


TROUBLED = Knobs(failure_rate=0.05, poison_rate=0.01, crash_rate=0.01, seed=3)


def test_the_same_seed_gives_the_same_result_bytes() -> None:
    assert run(messages(), knobs=TROUBLED).to_json() == run(messages(), knobs=TROUBLED).to_json()


@pytest.mark.thorough
def test_the_same_seed_gives_the_same_result_bytes_in_another_process() -> None:
    code = "import sys, test_lab_run as t; sys.stdout.buffer.write(t.run(t.messages(), knobs=t.TROUBLED).to_json())"
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=True,
            capture_output=True,
            timeout=PROGRAM_S,
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1] == run(messages(), knobs=TROUBLED).to_json()


@pytest.mark.parametrize("name", NAMES)
def test_every_message_has_exactly_one_disposition(name: str) -> None:
    result = run(messages(), knobs=TROUBLED)
    assert sum(result.design(name).dispositions.values()) == result.input.messages == 300


def test_a_run_without_messages_is_refused() -> None:
    with pytest.raises(InputError, match="expected at least one"):
        run([])
