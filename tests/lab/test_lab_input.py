"""The input of the lab: a user's log, what it is like, and messages of the same kind."""

import datetime as dt
from typing import Any

import pytest

from inturn import Gapless, Pipeline
from inturn.core.errors import InputError
from inturn.lab import Knobs, LabMessage, fitted, messages_of, profile_of, run
from inturn.lab.designs import design_named
from inturn.lab.draws import Draws
from inturn.lab.workload import Workload

NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
SECOND = dt.timedelta(seconds=1)


def at(*messages: tuple[int, str, int]) -> list[LabMessage]:
    return [LabMessage(at_us=when, group=group, revision=revision) for when, group, revision in messages]


def test_a_workload_finds_the_rank_and_the_duplicates_of_messages() -> None:
    load = Workload(at((5, "a", 30), (0, "a", 10), (9, "a", 20), (9, "b", 7), (12, "a", 10)))
    assert load.arrival_us == [0, 5, 9, 9, 12]
    assert load.rank == [0, 2, 1, 0, 0]
    assert load.first == [0, 1, 2, 3, 0]


def test_a_workload_with_a_start_revision_recognizes_gaps() -> None:
    messages = at((0, "a", 1), (1, "a", 3))
    assert Workload(messages).place == [0, 1]
    assert Workload(messages, start=1).place == [0, 2]
    with pytest.raises(InputError, match="a revision is 1; expected at least 2"):
        Workload(messages, start=2)


def test_commuting_messages_get_keys_of_their_own_when_split() -> None:
    messages = [LabMessage(at_us=n, group="a", revision=n, body=n % 2) for n in range(1, 6)]
    load = Workload(messages, commutes=bool, split=True)
    assert load.group == [0] * 5
    assert len(set(load.key)) == 4  # three keys of their own, and the group
    assert [load.key[n] for n in (1, 3)] == [0, 0]  # what is left is still in order
    assert [load.place[n] for n in (1, 3)] == [0, 1]


def test_a_log_with_nested_keys_times_and_durations_is_read() -> None:
    rows: list[dict[str, Any]] = [
        {"key": {"id": 7}, "rev": 2, "at": "2026-03-01T12:00:01Z", "took": 1.5},
        {"key": {"id": 7}, "rev": 1, "at": NOON, "took": None},
    ]
    late, early = messages_of(rows, group="key.id", order="rev", arrival="at", duration_ms="took")
    assert (late.at_us - early.at_us, late.group, late.revision, late.duration_us) == (1_000_000, "7", 2, 1500)
    assert (early.duration_us, early.body) == (None, rows[1])


def test_a_time_orders_a_log_without_revisions() -> None:
    first, second = messages_of([{"g": "a", "t": NOON}, {"g": "a", "t": NOON + SECOND}], group="g", order="t")
    assert second.revision - first.revision == 1_000_000
    assert second.at_us - first.at_us == 1000


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"rev": 1}, "row 1: g is None; expected a group; existing fields: rev"),
        ({"g": "a", "rev": "soon", "at": 1, "took": 0}, "row 1: rev is 'soon'; expected a number or a time"),
        ({"g": "a", "rev": 2, "at": None}, "row 1: at is None"),
        ({"g": "a", "rev": 2, "at": 5, "took": -1}, "row 1: took is -1; expected milliseconds"),
    ],
)
def test_an_unreadable_log_row_is_named_in_the_error(row: dict[str, Any], error: str) -> None:
    valid = {"g": "a", "rev": 1, "at": 0, "took": 0}
    with pytest.raises(InputError, match=error):
        messages_of([valid, row], group="g", order="rev", arrival="at", duration_ms="took")


def test_a_profile_has_the_shares_gaps_lateness_and_duplicates_of_a_log() -> None:
    messages = at((0, "a", 1), (10, "a", 3), (20, "b", 1), (25, "a", 2), (30, "a", 1))
    profile = profile_of(messages)
    assert profile.shares == (3, 1)
    assert profile.gaps_us == (10, 10)
    assert (profile.lateness_us, profile.late_share) == ((15,), 0.25)
    assert (profile.copies_us, profile.copy_share) == ((30,), 0.25)


def test_synthetic_messages_have_the_profile_of_the_log() -> None:
    log = [
        LabMessage(at_us=n * 1000 + (9000 if n % 10 == 0 else 0), group=f"g{n % 3 % 2}", revision=n, duration_us=n % 7)
        for n in range(3000)
    ]
    before, after = profile_of(log), profile_of(fitted(log, 6000, seed=1))
    assert sum(after.shares) == 6000
    assert after.shares[0] / 6000 == pytest.approx(before.shares[0] / 3000, rel=0.05)
    assert after.late_share == pytest.approx(before.late_share, rel=0.2)
    assert set(after.durations_us) == set(range(7))
    assert fitted(log, seed=1) == fitted(log, seed=1) != fitted(log, seed=2)


def test_a_profile_of_an_empty_log_is_refused() -> None:
    with pytest.raises(InputError, match="no messages"):
        profile_of([])


def test_random_draws_are_the_same_for_each_design() -> None:
    load = Workload(at(*((n, "a", n) for n in range(200))))
    first, other = (Draws(load, Knobs(failure_rate=0.2, poison_rate=0.1, crash_rate=0.1, seed=5)) for _ in range(2))
    assert (first.duration_us, first.planned_failures, first.poison) == (
        other.duration_us,
        other.planned_failures,
        other.poison,
    )
    assert first.poison
    assert first.planned_failures


@pytest.mark.parametrize(
    ("turned", "error"),
    [({"consumers": 0}, "consumers is 0"), ({"crash_rate": 2}, "from 0 to 1"), ({"restart_s": -1}, "restart_s is -1")],
)
def test_a_parameter_out_of_its_bounds_is_named_in_the_error(turned: dict[str, Any], error: str) -> None:
    with pytest.raises(InputError, match=error):
        Knobs(**turned)


def test_a_pipeline_handler_requires_message_bodies() -> None:
    pipeline = Pipeline(name="p", group="g", order=Gapless("rev"), handler=lambda state, _: (state, []))
    with pytest.raises(InputError, match="no body for the handler"):
        run(at((0, "a", 1)), pipeline=pipeline)


def test_a_handler_error_discards_state_changes_made_in_place() -> None:
    def handle(state: dict[str, Any], message: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
        state["seen"] = state.get("seen", 0) + message["n"]
        if message["n"] == 100:
            raise ValueError("no")
        return state, []

    pipeline = Pipeline(name="p", group="g", order=Gapless("rev"), handler=handle)
    bodies = [{"g": "a", "rev": rev, "n": n} for rev, n in ((1, 1), (2, 100), (3, 10))]
    messages = [
        LabMessage(at_us=at_us, group="a", revision=body["rev"], body=body)
        for at_us, body in zip((0, 9, 5), bodies, strict=True)
    ]
    result = run(messages, pipeline=pipeline, designs=[design_named("competing-classic")])
    assert result.designs[0].out_of_turn == 2
    assert result.designs[0].wrong_groups == 0  # 1 and 10, whatever raises between them
