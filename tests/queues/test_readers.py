"""Named readers over the log of a queue, for every store."""

from desk import Desk


def test_a_message_stays_readable_until_every_reader_has_passed_it(desk: Desk) -> None:
    desk.readers(slow=0, fast=0)
    sent = desk.send("a1", "b1", "a2")
    desk.drain()
    assert desk.info().depth == 0
    assert desk.bodies() == ["a1", "b1", "a2"]
    assert desk.bodies(pending=True) == []
    desk.readers(fast=sent[2].sequence_number)
    assert desk.bodies() == ["a1", "b1", "a2"]
    desk.readers(slow=sent[0].sequence_number)
    assert desk.bodies() == ["b1", "a2"]
    desk.readers(slow=None)
    assert desk.bodies() == []


def test_reading_takes_nothing_from_receivers(desk: Desk) -> None:
    desk.readers(all=0)
    sent = desk.send("a1", "b1", "a2")
    desk.readers(all=sent[2].sequence_number)
    assert desk.bodies(after=sent[0].sequence_number) == ["b1", "a2"]
    assert desk.take(10) == ["a1", "a2", "b1"]


def test_without_readers_an_acknowledged_message_is_gone(desk: Desk) -> None:
    desk.send("a1", "b1")
    desk.ack(*desk.receive())
    assert desk.bodies() == ["b1"]


def test_retention_ends_what_readers_keep(desk: Desk) -> None:
    desk.make("q", retention_s=60)
    desk.readers(slow=0)
    desk.send("a1")
    desk.drain()
    desk.wait(60)
    assert desk.take() == []
    assert desk.bodies() == []
    assert desk.info().depth == 0


def test_a_message_that_was_moved_away_and_back_is_read_once(desk: Desk) -> None:
    desk.make("dead")
    desk.readers(all=0)
    desk.send("a1", "a2")
    desk.move("dead", desk.read()[0])
    assert desk.bodies() == ["a1", "a2"]
    desk.move("q", *desk.read(queue="dead"), queue="dead")
    assert desk.bodies() == desk.bodies(pending=True) == ["a1", "a2"]
    assert desk.take(10) == ["a1", "a2"]
