"""Numbers that the queue gives: gapless per group, over every store; the rules are in core/queue/numbering.py."""

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_harness import StoreHarness

import inturn
from inturn.core.errors import InputError, QueueFull, RevisionMismatch
from inturn.core.queue.messages import Draft, Numbering, Sent
from inturn.core.queue.numbering import numbered
from inturn.queue import QueueSettings
from inturn.queue.drafts import draft
from waiting import DEADLINE_S

NEXT = Numbering()


class GivenUpError(Exception):
    """The caller gives its transaction up."""


def revisions(sent: Any) -> list[int | None]:
    assert not isinstance(sent, str), sent
    return [receipt.revision for receipt in sent]


def test_numbering_starts_each_group_at_revision_one(harness: StoreHarness) -> None:
    assert revisions(harness.send("m", "m", group="a", numbering=NEXT)) == [1, 2]
    assert revisions(harness.send("m", group="b", numbering=NEXT)) == [1]
    assert revisions(harness.send("m", group="a", numbering=NEXT)) == [3]
    assert [(message.group, message.revision) for message in harness.read()] == [("a", 1), ("a", 2), ("b", 1), ("a", 3)]


def test_numbering_continues_after_acks_and_purge(harness: StoreHarness) -> None:
    harness.send("m", "m", group="a", numbering=NEXT)
    harness.drain()
    harness.purge()
    assert harness.last_revision("a") == 2
    assert revisions(harness.send("m", group="a", numbering=NEXT)) == [3]
    harness.remove()
    harness.make("q")
    assert harness.last_revision("a") is None


def test_a_duplicate_returns_the_first_revision_and_uses_none(harness: StoreHarness) -> None:
    harness.send("m", group="a", numbering=NEXT)
    (first,) = harness.send("m", group="a", numbering=NEXT, dedup_id="x")
    drafts = [Draft("m", group="a", numbering=NEXT, dedup_id=dedup_id) for dedup_id in ("x", "y", "y", "z")]
    assert revisions(harness.offer_each(*drafts)) == [2, 3, 3, 4]
    late = harness.send("m", group="a", numbering=Numbering(0), dedup_id="x")  # a retry, whatever it expects
    assert late == [Sent(first.sequence_number, duplicate=True, revision=2)]
    assert revisions(harness.send("m", group="a", numbering=NEXT)) == [5]


def test_expected_revision_mismatch_is_refused_with_both_revisions(harness: StoreHarness) -> None:
    assert revisions(harness.send("m", group="a", numbering=Numbering(0))) == [1]
    refused = harness.offer("m", group="a", numbering=Numbering(0))
    assert str(refused).startswith("expected_revision is 0, but the last revision given to the group 'a' is 1")
    drafts = [Draft("m", group="a", numbering=Numbering(n)) for n in (1, 2, 4)]
    assert "expected_revision is 4" in str(harness.offer_each(*drafts))
    assert harness.last_revision("a") == 1, "all or none"
    assert revisions(harness.offer_each(*drafts[:2])) == [2, 3]


def test_an_explicit_revision_is_refused_where_the_queue_assigns_revisions(harness: StoreHarness) -> None:
    harness.send("m", group="a", revision=7)
    harness.begin_numbering("a", 8)
    assert revisions(harness.send("m", group="a", numbering=NEXT)) == [8]
    for more in ({}, {"dedup_id": "x"}):
        refused = harness.offer("m", group="a", revision=9, **more)
        assert "revision is 9, but the queue assigns the revisions of the group 'a': its last revision is 8" in str(
            refused
        )
    assert revisions(harness.send("m", group="b", revision=9)) == [9]
    assert revisions(harness.send("m", group="a")) == [None]
    assert harness.begin_numbering("a", 9) is None, "it is the next one"
    assert "its last revision is 8, not 11" in str(harness.begin_numbering("a", 12))


def test_a_send_refused_by_max_depth_uses_no_revision(harness: StoreHarness) -> None:
    harness.make("q", max_depth=2)
    assert "max_depth" in str(harness.offer("m", "m", "m", group="a", numbering=NEXT))
    assert harness.last_revision("a") is None
    assert revisions(harness.send("m", "m", group="a", numbering=NEXT)) == [1, 2]


@given(
    requested=st.lists(st.tuples(st.sampled_from("ab"), st.booleans(), st.sampled_from([None, 0, 1])), max_size=12),
    last=st.dictionaries(st.sampled_from("ab"), st.integers(0, 3)),
)
def test_numbered_assigns_revisions_without_gaps(
    requested: list[tuple[str, bool, int | None]], last: dict[str, int]
) -> None:
    drafts = [Draft("m", group=group, numbering=Numbering(expected)) for group, _, expected in requested]
    sent = [Sent(place, duplicate=is_duplicate) for place, (_, is_duplicate, _) in enumerate(requested)]
    try:
        answers, new = numbered(drafts, sent, last)
    except RevisionMismatch:
        return
    for group in "ab":
        assigned = [
            answer.revision
            for message, answer in zip(drafts, answers, strict=True)
            if message.group == group and not answer.duplicate
        ]
        first = last.get(group, 0)
        assert assigned == list(range(first + 1, first + 1 + len(assigned)))
        assert new.get(group, first) == first + len(assigned)


# --- the verbs ---


def test_send_with_revision_next_and_last_revision_verbs(address: str) -> None:
    with inturn.open(address, durable=False) as db:
        queue = db.queue("q", QueueSettings(max_depth=3))
        assert queue.last_revision("a") == 0
        assert queue.send("m", group="a", revision="next").revision == 1
        sent = queue.send_many([draft("m", group=group, revision="next") for group in ("a", 7)])
        assert [receipt.revision for receipt in sent] == [2, 1]
        with pytest.raises(RevisionMismatch) as refused:
            queue.send("m", group="a", revision="next", expected_revision=1)
        assert (refused.value.expected, refused.value.last) == (1, 2)
        with pytest.raises(QueueFull):
            queue.send("m", group="a", revision="next")
        assert [message.revision for message in queue.receive(10)] == [1, 2, 1]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"revision": "next"}, "has no group"),
        ({"revision": "nxt", "group": "a"}, "revision is 'nxt'; expected a whole number"),
        (
            {"expected_revision": 1, "group": "a"},
            "expected_revision is 1, but revision is None; it needs revision='next'",
        ),
        ({"expected_revision": -1, "revision": "next", "group": "a"}, "expected_revision is -1"),
        ({"expected_revision": True, "revision": "next", "group": "a"}, "expected_revision is True"),
    ],
)
def test_draft_refuses_invalid_revision_arguments(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        draft("m", **arguments)


def test_a_rolled_back_transaction_leaves_no_revision_gap(address: str) -> None:
    with inturn.open(address, durable=False) as db:
        queue = db.queue("q")
        with suppress(GivenUpError), db.transaction() as tx:
            assert queue.send("m", group="a", revision="next", tx=tx).revision == 1
            with pytest.raises(RevisionMismatch):
                queue.send("m", group="a", revision="next", expected_revision=7, tx=tx)
            assert queue.send("m", group="a", revision="next", tx=tx).revision == 2
            raise GivenUpError
        with db.transaction() as tx:  # and goes on after a refusal, without having kept anything of it
            with pytest.raises(RevisionMismatch):
                queue.send("m", group="a", revision="next", expected_revision=7, dedup_id="x", tx=tx)
            assert not queue.send("m", group="a", revision="next", dedup_id="x", tx=tx).duplicate
        assert queue.send("m", group="a", revision="next").revision == 2
        assert [message.revision for message in queue.peek()] == [1, 2]


def test_a_rolled_back_savepoint_leaves_no_revision_gap(address: str) -> None:
    connect: Any = psycopg.connect if "://" in address else sqlite3.connect
    with inturn.open(address, durable=False) as db, connect(address) as connection:
        queue = db.queue("q")
        queue.send("m", group="a", revision="next", tx=connection)
        connection.execute("savepoint own")
        assert queue.send("m", group="a", revision="next", tx=connection).revision == 2
        connection.execute("rollback to own")
        assert queue.send("m", group="a", revision="next", tx=connection).revision == 2
        connection.commit()
        assert [message.revision for message in queue.peek()] == [1, 2]


def test_numbered_sends_to_groups_in_opposite_orders_do_not_deadlock(postgres_url: str) -> None:
    """The first send of each takes the one lock of the queue, so the other waits with nothing in its hands."""
    with inturn.open(postgres_url, durable=False) as db, ThreadPoolExecutor(2) as threads:
        queue = db.queue("q")
        has_begun = threading.Barrier(2, timeout=DEADLINE_S)

        def run(groups: str) -> list[int | None]:
            with psycopg.connect(postgres_url) as connection:
                connection.execute("select 1")
                has_begun.wait()
                return [queue.send("m", group=group, revision="next", tx=connection).revision for group in groups]

        for _ in range(20):
            list(threads.map(run, ["abc", "cba"]))
        log = [(message.group, message.revision) for message in queue.peek(1_000)]
        for group in "abc":
            assert [revision for name, revision in log if name == group] == list(range(1, 41))


def test_of_concurrent_sends_with_one_expected_revision_one_succeeds(address: str) -> None:
    """Of those that have seen the same one, one is taken."""
    with inturn.open(address, durable=False) as db, ThreadPoolExecutor(8) as threads:
        queue = db.queue("q")

        def race(expected: int) -> int:
            try:
                queue.send("m", group="a", revision="next", expected_revision=expected)
            except RevisionMismatch as error:
                return 0 if error.last == expected + 1 else 99
            return 1

        for expected in range(5):
            assert sum(threads.map(race, [expected] * 8)) == 1
        assert queue.last_revision("a") == 5


def test_queue_numbered_messages_satisfy_a_gapless_pipeline(address: str) -> None:
    ledger = inturn.Pipeline(
        name="sums",
        group="account",
        order=inturn.Gapless("revision"),
        handler=lambda state, message: ({"sum": state.get("sum", 0) + message["amount"]}, []),
    )
    with inturn.open(address, durable=False) as db, ThreadPoolExecutor(4) as threads:
        queue = db.queue("q")
        list(threads.map(lambda n: queue.send({"amount": n}, group=f"g{n % 3}", revision="next"), range(60)))
        counts = inturn.work(ledger, queue, until="empty")
        assert (counts.received, counts.applied) == (60, 60)
