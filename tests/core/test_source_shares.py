"""Partitions are shared fairly, each has one owner at a time, and every claim has an epoch of its own."""

from hypothesis import given
from hypothesis import strategies as st

from inturn.core.source_shares import SourcePartition, share


def turn(partitions: dict[str, SourcePartition], live: set[str], me: str, now_ms: int) -> None:
    """One instance does what the rule says, as the store does it."""
    due = share(list(partitions.values()), live, me, now_ms)
    for name in due.kept:
        partitions[name] = partitions[name]._replace(until_ms=now_ms + 10)
    for name in due.claimed:
        assert not partitions[name].is_owned(now_ms) or partitions[name].owner == me, "taken from somebody"
        partitions[name] = partitions[name]._replace(owner=me, until_ms=now_ms + 10, epoch=partitions[name].epoch + 1)
    for name in due.given_up:
        partitions[name] = partitions[name]._replace(owner=None)


@given(
    st.integers(0, 30),
    st.lists(st.sampled_from("abcdef"), max_size=20),
    st.sets(st.sampled_from("abcdef"), min_size=1),
)
def test_every_partition_has_an_owner_within_its_quota_after_two_rounds(
    count: int, before: list[str], live: set[str]
) -> None:
    partitions = {f"p{number:02}": SourcePartition(f"p{number:02}") for number in range(count)}
    now = 0
    for me in before:  # some that die now, some that go on
        turn(partitions, {me}, me, now)
        now += 3
    now += 20  # the leases of all have ended
    for _ in range(2):
        for me in sorted(live):
            turn(partitions, live, me, now)
            now += 1
    owners = [partition.owner for partition in partitions.values()]
    loads = sorted(owners.count(me) for me in live)
    assert sum(loads) == count
    assert loads[-1] - loads[0] <= 1


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 15)), max_size=40))
def test_a_partition_epoch_never_has_two_owners(turns: list[tuple[str, int]]) -> None:
    partitions = {"p": SourcePartition("p"), "q": SourcePartition("q")}
    seen: dict[tuple[str, int], str] = {}
    now = 0
    for me, passes in turns:
        now += passes
        turn(partitions, {"a", "b", "c"}, me, now)
        for partition in partitions.values():
            if partition.owner is not None:
                assert seen.setdefault((partition.name, partition.epoch), partition.owner) == partition.owner
