"""Named readers over the log of a queue, for every store."""

from store_harness import StoreHarness


def test_a_message_stays_readable_until_every_reader_has_passed_it(harness: StoreHarness) -> None:
    harness.readers(slow=0, fast=0)
    sent = harness.send("a1", "b1", "a2")
    harness.drain()
    assert harness.info().depth == 0
    assert harness.bodies() == ["a1", "b1", "a2"]
    assert harness.bodies(pending=True) == []
    harness.readers(fast=sent[2].sequence_number)
    assert harness.bodies() == ["a1", "b1", "a2"]
    harness.readers(slow=sent[0].sequence_number)
    assert harness.bodies() == ["b1", "a2"]
    harness.readers(slow=None)
    assert harness.bodies() == []


def test_reading_removes_no_message_from_receivers(harness: StoreHarness) -> None:
    harness.readers(all=0)
    sent = harness.send("a1", "b1", "a2")
    harness.readers(all=sent[2].sequence_number)
    assert harness.bodies(after=sent[0].sequence_number) == ["b1", "a2"]
    assert harness.take(10) == ["a1", "a2", "b1"]


def test_without_readers_an_acknowledged_message_is_removed(harness: StoreHarness) -> None:
    harness.send("a1", "b1")
    harness.ack(*harness.receive())
    assert harness.bodies() == ["b1"]


def test_retention_removes_messages_kept_for_readers(harness: StoreHarness) -> None:
    harness.make("q", retention_s=60)
    harness.readers(slow=0)
    harness.send("a1")
    harness.drain()
    harness.wait(60)
    assert harness.take() == []
    assert harness.bodies() == []
    assert harness.info().depth == 0


def test_a_message_moved_away_and_back_is_read_once(harness: StoreHarness) -> None:
    harness.make("dead")
    harness.readers(all=0)
    harness.send("a1", "a2")
    harness.move("dead", harness.read()[0])
    assert harness.bodies() == ["a1", "a2"]
    harness.move("q", *harness.read(queue="dead"), queue="dead")
    assert harness.bodies() == harness.bodies(pending=True) == ["a1", "a2"]
    assert harness.take(10) == ["a1", "a2"]
