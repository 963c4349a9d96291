"""The fuzzer's targets hold for its seeds and for all that it has ever found; they run here without atheris."""

import pytest
from fuzz_seeds import SEEDS
from fuzz_targets import TARGETS


@pytest.mark.parametrize(("target", "name"), [(target, name) for target, seeds in SEEDS.items() for name in seeds])
def test_what_the_fuzzer_begins_with_and_what_it_found(target: str, name: str) -> None:
    TARGETS[target](SEEDS[target][name])


def test_every_target_has_seeds() -> None:
    assert {*SEEDS} == {*TARGETS}
