"""The fuzzer's targets hold for its seeds and for all that it has ever found; they run here without atheris."""

import pytest
from fuzz_seeds import SEEDS
from fuzz_targets import TARGETS


@pytest.mark.parametrize(("target", "name"), [(target, name) for target, seeds in SEEDS.items() for name in seeds])
def test_fuzz_targets_hold_for_every_stored_seed(target: str, name: str) -> None:
    TARGETS[target](SEEDS[target][name])


def test_every_fuzz_target_has_seeds() -> None:
    assert {*SEEDS} == {*TARGETS}
