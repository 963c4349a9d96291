"""The stories end as they are told."""

import pytest

from inturn.core.errors import InputError
from inturn.lab import SCENARIOS, LabResult, recommend, scenario

KEEPERS = ("roulette", "resequencer", "inturn")


@pytest.fixture(scope="module")
def transfers() -> LabResult:
    return scenario("transfers").run()


def test_transfers_requeue_revision_12_and_revision_13_overtakes_it(transfers: LabResult) -> None:
    for name in ("competing-classic", "competing-quorum", "single-active-classic"):
        figures = transfers.design(name)
        assert figures.wrong[0].group == "acct-1"
        assert "groups end with a wrong state; acct-1: revision 12 was requeued after 1" in figures.reasons[0]
        assert figures.wrong[0].expected != figures.wrong[0].got
    reason = transfers.design("single-active-classic").wrong[0].reason
    assert reason.startswith("revision 12 was requeued after 13, 14 and 15: at its original place")


def test_transfers_record_the_events_of_revision_12_in_each_design(transfers: LabResult) -> None:
    assert transfers.followed == ("acct-1", 12)
    for figures in transfers.designs:
        assert figures.life is not None
        kinds = [event.kind for event in figures.life.events]
        assert kinds[0] == "arrived"
        assert kinds.count("failed") == 2
        assert kinds.count("applied") == 1
        assert [event.at_us for event in figures.life.events] == sorted(event.at_us for event in figures.life.events)
        assert figures.window is not None
        assert ("acct-1", 12) in {(span.group, span.revision) for span in figures.window.spans}


def test_transfers_end_right_in_the_designs_that_use_revisions(transfers: LabResult) -> None:
    for name in KEEPERS:
        assert (transfers.design(name).wrong_groups, transfers.design(name).out_of_turn) == (0, 0)
    assert transfers.design("roulette").redeliveries > 100 * transfers.design("inturn").redeliveries


def test_hotel_duplicates_after_five_minutes_are_applied_twice_by_sqs_fifo() -> None:
    result = scenario("hotel").run()
    copies = result.input.copies
    assert result.design("competing-classic").applied_twice == copies
    assert 0 < result.design("sqs-fifo").applied_twice < copies
    assert result.design("sqs-fifo").wrong_groups == result.design("sqs-fifo").applied_twice
    for name in KEEPERS:
        assert result.design(name).wrong_groups == 0
        assert result.design(name).dispositions["duplicate"] == copies


def test_webhooks_end_right_only_with_inturn_and_the_phantom_record() -> None:
    result = scenario("webhooks").run()
    right = {"phantom", "inturn"}  # both with the handler for which order does not matter
    assert {design.design for design in result.designs if not design.wrong_groups} == right
    assert result.design("inturn").applied_twice == result.design("phantom").applied_twice == 0


def test_a_hot_group_bounds_every_design_until_its_commuting_messages_are_split() -> None:
    story = scenario("hot-group")
    bound, split = story.run(), story.run(split=True)
    for name in ("inturn", "key-parallel", "queue-per-group"):
        assert bound.design(name).throughput_per_s < bound.input.bound_per_s < split.design(name).throughput_per_s
    assert bound.design("inturn").wrong_groups == 0 < split.design("inturn").wrong_groups  # what it costs
    assert bound.design("competing-classic").wrong_groups > 0
    assert split.input.bound_per_s > 3 * bound.input.bound_per_s


@pytest.mark.slow
def test_flights_end_right_only_in_the_designs_that_use_revisions() -> None:
    pytest.importorskip("pyarrow")
    result = scenario("flights").run()
    assert result.input.messages > 25_000
    for figures in result.designs:
        assert (figures.wrong_groups == 0) == (figures.design in KEEPERS), figures.design
    assert recommend(result).design == "resequencer"  # inturn does the same, and takes a little longer


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in {"flights", "hot-group"}])
def test_each_scenario_gives_the_same_result_for_the_same_seed(name: str) -> None:
    first, other = scenario(name).run(seed=4), scenario(name).run(seed=4)
    assert first.to_json() == other.to_json()


def test_an_unknown_scenario_is_refused_with_the_known_names() -> None:
    with pytest.raises(InputError, match="'transfer'; expected one of transfers, auctions"):
        scenario("transfer")
