"""The kept log of a queue: what is in it, what is removed from it and when, for every store."""

import datetime as dt

import pytest
from store_harness import StoreHarness

import inturn
from inturn.core import limits
from inturn.core.errors import InputError
from inturn.core.queue.kept_log import LogBlock, before_bytes
from inturn.core.queue.messages import Content, Draft, QueueSettings


@pytest.fixture(autouse=True)
def _look_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store looks again at every receive, rather than once a second."""
    monkeypatch.setattr(limits, "LOG_LOOK_MS", 0)


def test_keep_for_keeps_acknowledged_messages_in_order(harness: StoreHarness) -> None:
    harness.make("q", keep_for="1 hour")
    harness.send("a1", "b1", "a2")
    harness.ack(*harness.receive(2))
    assert harness.log() == [("a1", True), ("b1", False), ("a2", True)]
    assert harness.log(group="a") == [("a1", True), ("a2", True)]
    assert harness.bodies(pending=True) == ["b1"]
    assert harness.depth().messages == 1


def test_a_queue_without_keep_for_keeps_no_acknowledged_message(harness: StoreHarness) -> None:
    harness.send("a1", "b1")
    harness.drain()
    assert harness.log() == []


def test_keep_for_removes_older_acknowledged_messages(harness: StoreHarness) -> None:
    harness.make("q", keep_for=60)
    harness.send("a1")
    harness.wait(30)
    harness.send("a2")
    harness.drain()
    harness.wait(29.999)
    assert harness.take() == []
    assert harness.log() == [("a1", True), ("a2", True)]
    harness.wait(0.001)
    assert harness.take() == []
    assert harness.log() == [("a2", True)]
    assert harness.log(group="a") == [("a2", True)]


def test_keep_for_does_not_remove_pending_messages(harness: StoreHarness) -> None:
    harness.make("q", keep_for=60)
    harness.send("a1", "b1")
    harness.ack(*harness.receive(group="b"))
    harness.wait(100)
    assert harness.take() == ["a1"]
    assert harness.log() == [("a1", False)]


def test_keep_for_does_not_remove_messages_a_reader_has_not_read(harness: StoreHarness) -> None:
    harness.make("q", keep_for=60)
    harness.readers(slow=0)
    sent = harness.send("a1", "a2")
    harness.drain()
    harness.wait(100)
    assert harness.take() == []
    assert harness.log() == [("a1", True), ("a2", True)]
    harness.readers(slow=sent[0].sequence_number)
    assert harness.take() == []
    assert harness.log() == [("a2", True)]
    harness.readers(slow=None)
    assert harness.take() == []
    assert harness.log() == []


def test_a_reader_at_the_end_does_not_shorten_the_kept_log(harness: StoreHarness) -> None:
    harness.make("q", keep_for=60)
    harness.readers(quick=0)
    sent = harness.send("a1")
    harness.drain()
    harness.readers(quick=sent[0].sequence_number)
    assert harness.log() == [("a1", True)]


def test_a_receive_removes_a_bounded_number_of_log_entries(
    harness: StoreHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "EXPIRE_AT_ONCE", 3)
    harness.make("q", keep_for=60)
    harness.send(*[f"a{number}" for number in range(8)])
    harness.drain()
    harness.wait(60)
    lengths = [len(harness.log()) for _ in range(4) if harness.take() == []]
    assert lengths == [5, 2, 0, 0]


def test_turning_keep_for_off_removes_the_log_in_bounded_steps(
    harness: StoreHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "EXPIRE_AT_ONCE", 3)
    harness.make("q", keep_for=60)
    harness.send(*[f"a{number}" for number in range(8)])
    harness.drain()
    harness.make("q")
    assert len(harness.log()) == 5
    assert [len(harness.log()) for _ in range(2) if harness.take() == []] == [2, 0]


def test_keep_bytes_removes_old_full_blocks(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of two messages of 5 bytes: what lies before 20 bytes of full blocks is removed."""
    monkeypatch.setattr(limits, "LOG_BLOCK", 2)
    harness.make("q", keep_bytes=15)
    for number in range(5):
        harness.send(f"a{number}xxx", f"b{number}xx\N{LATIN SMALL LETTER E WITH ACUTE}"[:5])
        harness.drain()
    bodies = [body[:2] for body, _ in harness.log()]
    assert bodies == ["a3", "b3", "a4", "b4"]
    assert sum(len(body.encode()) for body, _ in harness.log()) >= 15
    assert [body[:2] for body, _ in harness.log(group="a")] == bodies[::2]


def test_with_keep_bytes_and_keep_for_the_stricter_limit_applies(
    harness: StoreHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LOG_BLOCK", 1)
    harness.make("q", keep_bytes=2, keep_for=60)
    harness.send("a1", "a2", "a3")
    harness.drain()
    for _ in range(5):
        harness.receive()
    assert [body for body, _ in harness.log()] == ["a3"]
    harness.wait(60)
    harness.receive()
    assert harness.log() == []


def test_before_bytes_counts_whole_blocks() -> None:
    blocks = [LogBlock(10, 5), LogBlock(20, 5), LogBlock(30, 5)]
    assert [before_bytes(blocks, size) for size in (1, 5, 6, 10, 11)] == [20, 20, 10, 10, 0]


def test_the_log_of_a_group_is_read_by_revision(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOG_BLOCK", 2)
    harness.make("q", keep_for=60)
    drafts = [Draft(f"{group}{n}", Content.TEXT, group, n) for n in (1, 3, 2, 4) for group in "ab"]
    with harness.store.transaction():
        harness.store.send(harness.store.queues["q"], drafts, harness.now)
    assert [body for body, _ in harness.log(group="a")] == ["a1", "a3", "a2", "a4"]
    harness.drain()
    assert [body for body, _ in harness.log(group="a")] == ["a1", "a3", "a2", "a4"]
    assert [body for body, _ in harness.log(group="b", first_revision=2, last_revision=3)] == ["b3", "b2"]
    assert harness.log(group="c") == []
    first = harness.read()[0].sequence_number
    assert [body for body, _ in harness.log(group="a", after=first, up_to=first + 5)] == ["a3", "a2"]


def test_log_time_returns_the_last_position_before_a_time(harness: StoreHarness) -> None:
    harness.make("q", keep_for="1 day")
    sent = []
    for number in range(10):
        sent += harness.send(f"a{number}")
        harness.wait(10)
    harness.drain()
    numbers = [receipt.sequence_number for receipt in sent]
    times = range(1_000_000, harness.now, 10_000)
    for time_ms in range(1_000_000 - 1, harness.now + 1, 2_500):
        later = [number for number, sent_ms in zip(numbers, times, strict=True) if sent_ms >= time_ms]
        assert harness.log_time(time_ms) == (later[0] - 1 if later else numbers[-1])


def test_a_moved_message_appears_once_in_each_log(harness: StoreHarness) -> None:
    harness.make("q", keep_for="1 day")
    harness.make("dead", keep_for="1 day")
    harness.send("a1", "a2")
    harness.move("dead", harness.read()[0])
    assert harness.log() == [("a1", True), ("a2", False)]
    assert harness.log(queue="dead") == [("a1", False)]
    harness.move("q", *harness.read(queue="dead"), queue="dead")
    assert harness.log() == [("a1", False), ("a2", False)]
    assert harness.log(queue="dead") == [("a1", True)]
    assert harness.take(10) == ["a1", "a2"]


def test_a_message_moved_back_is_found_in_the_log_of_its_group(
    harness: StoreHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although it was elsewhere when its block was indexed."""
    monkeypatch.setattr(limits, "LOG_BLOCK", 2)
    harness.make("dead")
    harness.send("a1", "a2", "a3")
    harness.move("dead", harness.read()[0])
    harness.make("q", keep_for="1 day")
    harness.receive(group="nobody")
    harness.receive(group="nobody")
    harness.move("q", *harness.read(queue="dead"), queue="dead")
    assert [body for body, _ in harness.log(group="a")] == ["a1", "a2", "a3"]


def test_purge_cancel_and_retention_remove_messages_from_the_log(harness: StoreHarness) -> None:
    harness.make("q", keep_for="1 day", retention_s=100)
    harness.send("a1")
    harness.drain()
    late = harness.send("b1", delay_ms=50_000)
    harness.cancel(late[0].sequence_number)
    assert harness.log() == [("a1", True)]
    harness.wait(100)
    harness.take()
    assert harness.log() == []
    harness.send("a2", "a3")
    harness.drain()
    harness.purge()
    assert harness.log() == harness.log(group="a") == []


@pytest.mark.parametrize("value", [-1, True, "soon", "3 parsecs", 10**12])
def test_an_invalid_keep_for_is_refused_by_name(value: object) -> None:
    with pytest.raises(InputError, match="keep_for is"):
        QueueSettings(keep_for=value)  # type: ignore[arg-type]


def test_keep_for_accepts_a_text_or_seconds() -> None:
    assert QueueSettings(keep_for="30 days") == QueueSettings(keep_for=30 * 86_400)
    with pytest.raises(InputError, match="keep_bytes is 0"):
        QueueSettings(keep_bytes=0)


def test_the_log_is_read_by_number_group_revision_and_time(address: str) -> None:
    db = inturn.open(address, durable=False)
    queue = db.queue("q", QueueSettings(keep_for="30 days"))
    begin = dt.datetime.now(dt.UTC) - dt.timedelta(minutes=5)
    for number in range(1, 4):
        queue.send({"n": number}, group="g", revision=number, dedup_id=f"d{number}", attributes={"k": number})
    for message in queue.receive(10):
        message.ack()
    queue.send({"n": 9}, group="h")
    entries = queue.log()
    assert [(entry.body["n"], entry.group, entry.revision, entry.dedup_id, entry.is_done) for entry in entries] == [
        (1, "g", 1, "d1", True),
        (2, "g", 2, "d2", True),
        (3, "g", 3, "d3", True),
        (9, "h", None, None, False),
    ]
    assert entries[0].attributes == {"k": 1}
    assert [entry.body["n"] for entry in queue.log(2, after=entries[0].sequence_number)] == [2, 3]
    assert [entry.body["n"] for entry in queue.log(group="g", last_revision=2)] == [1, 2]
    assert len(queue.log(since=begin)) == 4
    assert queue.log(until=begin) == []
    with pytest.raises(InputError, match="first_revision and last_revision need a group"):
        queue.log(first_revision=1)
    with pytest.raises(InputError, match="time zone"):
        queue.log(since=dt.datetime(2026, 1, 1))  # noqa: DTZ001 - what is refused
    db.close()


def test_a_reader_seeks_by_number_time_and_revision(address: str) -> None:
    db = inturn.open(address, durable=False)
    queue = db.queue("q", QueueSettings(keep_for="30 days"))
    begin = dt.datetime.now(dt.UTC) - dt.timedelta(minutes=5)
    sent = [queue.send(number, group="g", revision=number) for number in range(1, 6)]
    for message in queue.receive(10):
        message.ack()
    reader = queue.reader("late")
    reader.seek(sent[2].sequence_number)
    assert [entry.body for entry in reader.read()] == [4, 5]
    reader.seek(group="g", revision=2)
    assert [entry.body for entry in reader.read()] == [2, 3, 4, 5]
    reader.seek(time=begin)
    assert [entry.body for entry in reader.read()] == [1, 2, 3, 4, 5]
    reader.seek(time=dt.datetime.now(dt.UTC) + dt.timedelta(hours=1))
    assert reader.read() == []
    with pytest.raises(InputError, match="no message of group 'g' with revision 77"):
        reader.seek(group="g", revision=77)
    with pytest.raises(InputError, match="takes exactly one of"):
        reader.seek()
    with pytest.raises(InputError, match="takes exactly one of"):
        reader.seek(0, time=begin)
    db.close()
