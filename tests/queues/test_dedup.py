"""When a send is the same message again, for every store."""

import pytest
from store_harness import StoreHarness

from inturn.core import limits
from inturn.store.sqlite import SqliteStore


def test_a_send_with_the_same_dedup_id_returns_the_first_sequence_number(harness: StoreHarness) -> None:
    first, repeated, other = (harness.send("a1", dedup_id=name)[0] for name in ("x", "x", "y"))
    assert (first.duplicate, repeated.duplicate, other.duplicate) == (False, True, False)
    assert repeated.sequence_number == first.sequence_number < other.sequence_number
    assert harness.info().depth == 2


def test_send_many_detects_duplicates_within_the_batch(harness: StoreHarness) -> None:
    sent = harness.send("a1", "b1", "c1", dedup_id="x")
    assert [receipt.duplicate for receipt in sent] == [False, True, True]
    assert harness.take(10) == ["a1"]


def test_a_dedup_id_outlives_its_message_but_not_the_dedup_window(harness: StoreHarness) -> None:
    harness.send("a1", dedup_id="x")
    harness.ack(*harness.receive())
    harness.wait(299.999)
    assert harness.send("a2", dedup_id="x")[0].duplicate
    harness.wait(0.001)  # from the first send on, not from the last
    assert not harness.send("a3", dedup_id="x")[0].duplicate
    assert harness.send("a4", dedup_id="x")[0].duplicate


def test_dedup_window_none_never_ends(harness: StoreHarness) -> None:
    harness.make("q", dedup_window_s=None)
    harness.send("a1", dedup_id="x")
    harness.wait(86_400 * 365 * 10)
    assert harness.send("a2", dedup_id="x")[0].duplicate


def test_dedup_scope_group_compares_ids_per_group(harness: StoreHarness) -> None:
    harness.make("q", dedup_scope="group")
    sent = harness.send("a1", "b1", "a2", dedup_id="x")
    assert [receipt.duplicate for receipt in sent] == [False, False, True]


def test_content_dedup_applies_unless_a_dedup_id_is_given(harness: StoreHarness) -> None:
    harness.make("q", content_dedup=True)
    sent = [*harness.send("a1"), *harness.send("a1", dedup_id="x"), *harness.send("a1"), *harness.send("a1", group="b")]
    assert [receipt.duplicate for receipt in sent] == [False, False, True, True]
    assert harness.info().depth == 2


def test_dedup_ids_are_separate_per_queue(harness: StoreHarness) -> None:
    harness.make("other")
    harness.send("a1", dedup_id="x")
    assert not harness.send("a1", dedup_id="x", queue="other")[0].duplicate


@pytest.mark.thorough
def test_expired_dedup_ids_are_deleted(harness: StoreHarness) -> None:
    for number in range(500):
        harness.send("a1", dedup_id=f"{number * 7919 % 1000:03}")
        harness.wait(200)
    connection = getattr(harness.store, "connection", None)
    if connection is not None:  # the oracle keeps everything
        (row_count,) = connection.execute("select count(*) from inturn_dedup").fetchone()
        young = 1 + 3_900 // 200
        if isinstance(harness.store, SqliteStore):  # it sweeps; the other forgets with each send
            assert young <= row_count <= 2 * young + limits.SWEEP_ROWS
        else:
            assert row_count <= young
