"""One producer at a time for each group: leases, epochs and who is refused; the rules are in core/queue/writers.py."""

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from store_harness import StoreHarness

import inturn
from inturn.core.errors import InputError, WriterHeld
from inturn.core.queue.writers import WriterVerb
from inturn.queue import QueueSettings
from inturn.queue.drafts import draft

TAKE, RENEW, RELEASE, LOOK = WriterVerb.TAKE, WriterVerb.RENEW, WriterVerb.RELEASE, WriterVerb.LOOK
SINGLE = QueueSettings(single_writer=True)


@pytest.fixture
def single(harness: StoreHarness) -> StoreHarness:
    harness.make("q", single_writer=True)
    return harness


def test_a_send_by_a_second_producer_is_refused_with_the_name_of_the_first(single: StoreHarness) -> None:
    assert single.writer("a", TAKE, "one", ms=1_000).done
    assert len(single.send("m", group="a", epoch=1)) == 1
    assert single.offer("m", group="a") == "the writer of the group 'a' of 'q' is 'one', in epoch 1"
    answer = single.writer("a", TAKE, "two", ms=1_000)
    assert (answer.done, answer.lease and answer.lease.name) == (False, "one")
    assert "has no writer" in str(single.offer("m", group="b"))
    assert len(single.send("m", group=None)) == 1, "what has no group has no writer"


def test_a_producer_replaced_by_a_takeover_cannot_send(single: StoreHarness) -> None:
    single.writer("a", TAKE, "one", ms=1_000)
    single.wait(2)
    assert len(single.send("m", group="a", epoch=1)) == 1, "nobody has taken over yet"
    takeover = single.writer("a", TAKE, "two", ms=1_000)
    assert (takeover.done, takeover.lease and takeover.lease.epoch) == (True, 2)
    refused = single.offer("m", group="a", epoch=1)
    assert str(refused).startswith(
        "the writer of the group 'a' of 'q' is 'two', in epoch 2; this producer has epoch 1, so"
    )
    assert not single.writer("a", RENEW, epoch=1, ms=9_000).done
    assert not single.writer("a", RELEASE, epoch=1).done
    assert len(single.send("m", group="a", epoch=2)) == 1


def test_a_send_refused_by_single_writer_keeps_no_dedup_id(single: StoreHarness) -> None:
    single.writer("a", TAKE, "one", ms=1_000)
    single.offer("m", group="a", dedup_id="x")
    (sent,) = single.send("m", group="a", dedup_id="x", epoch=1)
    assert not sent.duplicate


def test_a_writer_lease_is_renewed_released_taken_and_taken_over(single: StoreHarness) -> None:
    single.writer("a", TAKE, "one", ms=1_000)
    single.wait(0.9)
    assert single.writer("a", RENEW, epoch=1, ms=1_000).done
    single.wait(0.9)
    assert not single.writer("a", TAKE, "two", ms=1_000).done
    renewed = single.writer("a", TAKE, "one", ms=1_000)  # a producer that was restarted
    assert renewed.lease is not None
    assert renewed.lease.epoch == 2
    assert single.writer("a", RELEASE, epoch=2).done
    assert single.writer("a", TAKE, "two", ms=1_000).done
    forced = single.writer("a", TAKE, "three", ms=1_000, by_force=True)
    assert forced.lease is not None
    assert (forced.lease.name, forced.lease.epoch) == ("three", 4)
    single.purge()
    looked = single.writer("a", LOOK)
    assert looked.lease == forced.lease, "a purge is not about it"


def test_a_clock_set_back_does_not_block_taking_a_writer_lease(single: StoreHarness) -> None:
    single.writer("a", TAKE, "one", ms=1_000)
    single.wait(-86_400)
    assert single.writer("a", TAKE, "two", ms=1_000).done


def test_single_writer_verbs(address: str) -> None:
    with inturn.open(address, durable=False) as db:
        queue = db.queue("q", SINGLE)
        with queue.single_writer("a", name="one") as one:
            assert one.send("m", revision="next").revision == 1
            assert len(one.send_many([draft("m"), draft("m", group="a")])) == 2
            with pytest.raises(InputError, match="'b'; this writer sends only to group 'a'"):
                one.send_many([draft("m", group="b")])
            assert one.renew(60) == one.leased_until
            with pytest.raises(WriterHeld, match="is 'one'") as held:
                queue.single_writer("a", name="two")
            assert held.value.holder == "one"
            two = queue.single_writer("a", name="two", take_over=True)
            with pytest.raises(WriterHeld, match="'two', in epoch 2; this producer has epoch 1"):
                one.send("m")
            with pytest.raises(WriterHeld):
                one.renew()
        assert two.send("m"), "the end of the first one's block has not taken it away"
        two.release()
        assert queue.single_writer("a").epoch == 3
        with pytest.raises(WriterHeld, match="has no writer"):
            queue.send("m", group="b")
        with pytest.raises(InputError, match="single_writer=True"):
            db.queue("other").single_writer("a")
        with pytest.raises(InputError, match="lease_s is 0"):
            queue.single_writer("a", lease_s=0)


def test_a_takeover_waits_for_the_uncommitted_send_of_the_writer(postgres_url: str) -> None:
    """A message of an earlier epoch never comes behind the takeover, whenever its transaction ends."""
    with inturn.open(postgres_url, durable=False) as db, ThreadPoolExecutor(1) as threads:
        queue = db.queue("q", SINGLE)
        one = queue.single_writer("a", name="one")
        with psycopg.connect(postgres_url) as connection:
            one.send("first", tx=connection)
            taking = threads.submit(queue.single_writer, "a", name="two", take_over=True)
            with pytest.raises(TimeoutError):
                taking.result(0.5)
        taking.result(60).send("second")
        assert [message.body for message in queue.peek()] == ["first", "second"]


def test_of_concurrent_single_writer_calls_one_succeeds(address: str) -> None:
    with inturn.open(address, durable=False) as db, ThreadPoolExecutor(8) as threads:
        queue = db.queue("q", SINGLE)

        def race(number: int) -> int:
            try:
                queue.single_writer("a", name=str(number))
            except WriterHeld:
                return 0
            return 1

        assert sum(threads.map(race, range(8))) == 1
