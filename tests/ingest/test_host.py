"""Records of a source become messages once, in order, whatever happens to the source, the host or its lease."""

import datetime as dt
import json
import re
import threading
import time

import pytest

from ingest.scripted import Log, Scripted
from inturn.core import limits
from inturn.core.errors import InputError, NoSuchQueue, SetupError, SourceError
from inturn.database import Database
from inturn.ingest import Decoder, Ingest, MessageMapping, SourceControl, SourceRecord, source_names
from inturn.ingest import limits as source_limits
from inturn.ingest.rejections import restore
from inturn.store.commands import StoreCall
from inturn.store.sources import RejectedRecord
from waiting import until

BY_ACCOUNT = MessageMapping(group="body.account", revision="body.n", id="body.id")


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_limits, "INGEST_PAUSE_S", 0.01)


def body(number: int, account: str = "a") -> bytes:
    return json.dumps({"account": account, "n": number, "id": f"{account}-{number}"}).encode()


def ingest(db: Database, source: Scripted, mapping: MessageMapping = BY_ACCOUNT, **more: object) -> Ingest:
    return Ingest(source, db.queue("payments"), mapping, name="bank", **more)  # type: ignore[arg-type]


def sent(db: Database) -> list[tuple[str | None, int | None]]:
    return [(message.group, message.revision) for message in db.queue("payments").peek(1000)]


def test_records_become_messages_with_the_mapped_group_revision_and_id(db: Database) -> None:
    source = Scripted(Log(p=[body(1), body(2, "b")]))
    assert ingest(db, source).run(until="caught up") == (2, 0, 0, 0)
    first, second = db.queue("payments").peek()
    assert (first.group, first.revision, first.dedup_id, first.body) == ("a", 1, "a-1", json.loads(body(1)))
    assert second.group == "b"
    assert source.confirmed == [("p", 2)]
    assert source.is_shut
    assert source_names(db) == ["bank"]
    (partition,) = SourceControl(db, "bank").partitions()
    assert (partition.position, partition.received, partition.owner) == ("2", 2, None)


def test_record_fields_become_message_attributes_within_the_size_limit(db: Database) -> None:
    paths = {"from": "headers.h", "at": "time", "account": "body.account", "none": "headers.none"}
    large = json.dumps({"account": "x" * (limits.BODY_BYTES - 30), "n": 2}).encode()
    source = Scripted(Log(p=[body(1), large]))
    mapping = MessageMapping(revision="body.n", attributes=paths)
    assert ingest(db, source, mapping).run(until="caught up") == (1, 1, 0, 0)
    (message,) = db.queue("payments").peek()
    assert message.attributes == {"from": "v", "at": 7, "account": "a"}
    assert "body and attributes have" in next(iter(SourceControl(db, "bank").rejected())).reason
    with pytest.raises(InputError, match=r"the attribute 'at' is 'when'; .* begins with key, headers"):
        MessageMapping(attributes={"at": "when"})
    with pytest.raises(InputError, match="a path into the body needs format='json', not 'text'"):
        MessageMapping(attributes={"account": "body.account"}, format="text")


def test_a_restarted_source_continues_after_the_last_commit(db: Database) -> None:
    log = Log(p=[body(1), body(2)])
    ingest(db, Scripted(log)).run(until="caught up")
    log.partitions["p"] += [body(3)]
    log.partitions["q"] = [body(1, "b")]
    assert ingest(db, Scripted(log)).run(until="caught up").received == 2
    assert sorted(sent(db)) == [("a", 1), ("a", 2), ("a", 3), ("b", 1)]


def test_an_unmappable_record_is_rejected_with_its_bytes_and_blocks_nothing(db: Database) -> None:
    poison = [b"\xff\xfe", b'{"n": 1}', b'{"account": "a", "n": "x"}', None, b"[" * 100_000, b'"' + b"x" * 2**21 + b'"']
    source = Scripted(Log(p=[body(1), *poison, body(2)]))
    assert ingest(db, source).run(until="caught up") == (2, len(poison), 0, 0)
    assert sent(db) == [("a", 1), ("a", 2)]
    rejected = list(SourceControl(db, "bank").rejected())
    assert [record.body for record in rejected] == poison
    assert [record.position for record in rejected] == [str(number) for number in range(2, 8)]
    assert [record.reason.split(":")[0] for record in rejected[:4]] == [
        "the body is not JSON",
        "the record has no group",
        "the revision is 'x'; expected a whole number of at most 64 bits",
        "the record has no body",
    ]
    assert (rejected[0].key, rejected[0].headers) == (b"k", '{"h":"v"}')
    (partition,) = SourceControl(db, "bank").partitions()
    assert (partition.received, partition.rejected, partition.position) == (2, len(poison), "8")


def test_tombstones_are_skipped_with_ignore_empty(db: Database) -> None:
    mapping = MessageMapping(group="key", ignore_empty=True)
    assert ingest(db, Scripted(Log(p=[None, b"1", None])), mapping).run(until="caught up") == (1, 0, 2, 0)
    assert SourceControl(db, "bank").partitions()[0].position == "3"


def test_a_failed_source_is_reopened_after_the_last_commit(db: Database) -> None:
    source = Scripted(Log(p=[body(number) for number in range(1, 8)]))

    def fail() -> None:
        raise ConnectionError("gone")

    source.faults = [lambda: None, fail, lambda: None, fail, fail]
    assert ingest(db, source, batch=2).run(until="caught up").received == 7
    assert sent(db) == [("a", number) for number in range(1, 8)]


def test_a_source_unavailable_at_the_start_is_retried_with_a_visible_error(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Scripted(Log(p=[body(1)]))

    def refuse() -> None:
        raise SourceError("nobody answers at kafka-1:9092")

    with monkeypatch.context() as down:
        down.setattr(source, "partitions", refuse)
        with pytest.raises(SourceError, match="kafka-1:9092"):
            ingest(db, source).run(until="caught up")
        with ingest(db, source) as working:
            assert working.problem == "nobody answers at kafka-1:9092"
            down.undo()
            until(lambda: len(sent(db)) == 1)
            until(lambda: not working.problem)


def test_a_setup_error_of_a_source_ends_the_run(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise SetupError("Kafka needs confluent-kafka")

    monkeypatch.setattr(Scripted, "partitions", refuse)
    with pytest.raises(SetupError, match="needs confluent-kafka"):
        ingest(db, Scripted(Log(p=[]))).__enter__()


def test_a_batch_with_a_failed_commit_is_read_again_and_sent_once(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Scripted(Log(p=[body(1), body(2)]))
    commit, failures = Ingest._commit, [RuntimeError("the database went away")]

    def failing(self: Ingest, *arguments: object) -> object:
        done = commit(self, *arguments)  # type: ignore[arg-type]
        if failures:
            raise failures.pop()
        return done

    monkeypatch.setattr(Ingest, "_commit", failing)
    ingest(db, source).run(until="caught up")
    assert sent(db) == [("a", 1), ("a", 2)], "rolled back, then sent once"
    assert SourceControl(db, "bank").partitions()[0].received == 2


def test_instances_share_the_partitions_and_take_over_those_of_a_stopped_one(db: Database) -> None:
    log = Log(**{f"p{number}": [] for number in range(6)})
    first, second = Scripted(log), Scripted(log)
    host = ingest(db, first, instance="one", lease_s=0.6)
    other_host = ingest(db, second, instance="two", lease_s=0.6)
    with host:
        with other_host:
            until(lambda: len(first.at) == len(second.at) == 3)
            assert not first.at.keys() & second.at.keys()
        until(lambda: len(first.at) == 6)  # two has left
        for number in range(6):
            log.partitions[f"p{number}"].append(body(1, f"a{number}"))
        until(lambda: len(sent(db)) == 6)


def test_an_instance_with_an_expired_lease_writes_nothing(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_limits, "INGEST_CALL_S", 0.0)
    log = Log(p=[body(1), body(2)])
    asleep, awake = threading.Event(), threading.Event()

    def sleep() -> None:
        asleep.set()
        assert awake.wait(60)

    slow = Scripted(log)
    slow.faults = [sleep]  # within the poll: it has the records when it wakes up, and its lease is over
    with ingest(db, slow, instance="slow", lease_s=0.2):
        assert asleep.wait(60)
        time.sleep(0.3)
        assert ingest(db, Scripted(log), instance="fast").run(until="caught up").received == 2
        awake.set()
        until(lambda: SourceControl(db, "bank").partitions()[0].owner == "slow")
    assert sent(db) == [("a", 1), ("a", 2)]


@pytest.mark.parametrize("call", ["open", "poll", "confirm"])
def test_a_call_that_takes_longer_than_the_lease_keeps_its_partition(
    db: Database, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    control, slow, other = SourceControl(db, "bank"), Scripted(Log(p=[body(1)])), Scripted(Log(p=[body(1)]))
    usual, renewed = getattr(slow, call), threading.Event()

    def long(*arguments: object) -> object:
        if not renewed.is_set():
            until_ms = control.partitions()[0].until_ms
            until(lambda: control.partitions()[0].until_ms >= until_ms + 600)
            renewed.set()
        return usual(*arguments)

    monkeypatch.setattr(slow, call, long)
    with ingest(db, slow, instance="one", lease_s=0.3), ingest(db, other, instance="two", lease_s=0.3):
        assert renewed.wait(60)
        until(lambda: slow.confirmed or other.confirmed)
        (partition,) = control.partitions()
        assert (partition.owner, partition.epoch) == ("one", 1)
    assert sent(db) == [("a", 1)]


@pytest.mark.parametrize("call", ["is_finished", "lag", "close", "shutdown"])
def test_leases_are_released_at_the_end_of_a_run_even_if_the_source_fails(
    db: Database, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    source = Scripted(Log(p=[body(1)]))

    def lost(*_: object) -> None:
        raise RuntimeError("connection lost")

    with ingest(db, source, lease_s=30):
        until(lambda: sent(db))
        monkeypatch.setattr(source, call, lost)
    (partition,) = SourceControl(db, "bank").partitions()
    assert (partition.owner, partition.position) == (None, "1")
    assert not [thread.name for thread in threading.enumerate() if thread.name == "inturn-leases-bank"]


def test_a_decoder_error_rejects_only_its_record(db: Database) -> None:
    def decode(record: SourceRecord) -> SourceRecord:
        if record.position == 2:
            raise InputError("the schema does not fit\0")
        return record

    source = Scripted(Log(p=[body(1), body(2), body(3)]))
    assert ingest(db, source, decode=decode).run(until="caught up") == (2, 1, 0, 0)
    assert [record.reason for record in SourceControl(db, "bank").rejected()] == ["the schema does not fit\\0"]


def test_pause_resume_and_seek_apply_to_a_running_source(db: Database) -> None:
    log, control = Log(p=[body(1)], q=[]), SourceControl(db, "bank")
    source = Scripted(log)
    with ingest(db, source, lease_s=0.3):
        until(lambda: len(sent(db)) == 1)
        assert control.pause("p") == 1
        until(lambda: list(source.at) == ["q"])
        log.partitions["p"].append(body(2))
        assert control.resume() == 1
        until(lambda: len(sent(db)) == 2)
        assert control.seek(0, "p") == 1
        until(lambda: SourceControl(db, "bank").partitions()[0].received == 4)
    assert len(sent(db)) == 2, "the ids are known"
    with pytest.raises(InputError, match=r"source 'bank' has no partition 'z'; .*: p, q"):
        control.pause("z")


def test_a_source_that_has_only_rejected_records_cannot_be_paused(db: Database) -> None:
    bad = RejectedRecord("requests", "null", "no group", None, "{}", b"{}", b"")
    db.writer.run(StoreCall("", lambda store, now_ms: store.sources.reject("bank", [bad], now_ms)))
    with pytest.raises(InputError, match="source 'bank' has no partition; existing partitions: none"):
        SourceControl(db, "bank").pause()


def test_a_recreated_partition_is_refused_until_a_seek(db: Database) -> None:
    log, control = Log(p=[body(1)]), SourceControl(db, "bank")
    log.incarnation = "first"
    ingest(db, Scripted(log)).run(until="caught up")
    log.incarnation, log.partitions["p"] = "second", [body(10), body(11)]
    assert ingest(db, Scripted(log)).run(until="caught up").received == 0
    assert "recreated" in (control.partitions()[0].note or "")
    control.seek(None)
    assert ingest(db, Scripted(log)).run(until="caught up").received == 2
    assert control.partitions()[0].incarnation == "second"


def test_a_partition_recreated_before_any_read_is_read_from_its_start(db: Database) -> None:
    log, control = Log(p=[]), SourceControl(db, "bank")
    log.incarnation = "first"
    with ingest(db, Scripted(log), lease_s=0.3):
        until(lambda: control.partitions()[0].incarnation == "first")
        log.incarnation = "second"
        until(lambda: control.partitions()[0].incarnation == "second")
        log.partitions["p"] += [body(1), body(2)]
        until(lambda: len(sent(db)) == 2)
    assert ingest(db, Scripted(log)).run(until="caught up") == (0, 0, 0, 0)
    assert control.partitions()[0].note is None


def test_an_expired_position_is_reported_until_a_seek(db: Database) -> None:
    log, control = Log(p=[body(1), body(2), body(3)]), SourceControl(db, "bank")
    ingest(db, Scripted(Log(p=[body(1)]))).run(until="caught up")
    log.gone_before = 2
    ingest(db, Scripted(log)).run(until="caught up")
    assert control.partitions()[0].note == "1 is before 2, the first that is left"
    assert control.seek(2, "p") == 1
    ingest(db, Scripted(log)).run(until="caught up")
    assert sent(db) == [("a", 1), ("a", 3)]


def test_a_full_queue_delays_the_source_without_loss(db: Database) -> None:
    source, payments = Scripted(Log(p=[body(number) for number in range(1, 9)])), db.queue("payments")
    payments.configure(max_depth=3)
    with ingest(db, source, lease_s=0.3):
        for expected in range(1, 9):
            (message,) = payments.receive(wait_s=60)
            assert message.revision == expected
            assert payments.depth().messages <= 3
            time.sleep(0.05)
            message.ack()
        until(lambda: SourceControl(db, "bank").partitions()[0].position == "8")
    with ingest(db, source, batch=100):
        source.log.partitions["p"] += [body(number) for number in range(9, 20)]
        until(lambda: payments.depth().messages == 3)  # and it stops, though nobody takes them


def test_a_full_queue_accepts_the_part_of_a_batch_that_fits(db: Database) -> None:
    log, payments = (
        Log(p=[body(1), b"no JSON", body(2)], q=[body(number, "b") for number in range(1, 9)]),
        db.queue("payments"),
    )
    payments.configure(max_depth=5)
    with ingest(db, Scripted(log), batch=1_000):
        until(lambda: payments.depth().messages == 5)
    assert sent(db) == [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("b", 3)]
    p, q = SourceControl(db, "bank").partitions()
    assert (p.position, p.received, p.rejected) == ("3", 2, 1)
    assert (q.position, q.received) == ("3", 3)


def test_a_seek_during_a_full_queue_sends_no_record_twice(db: Database) -> None:
    log, payments, control = (
        Log(p=[body(number) for number in range(1, 9)]),
        db.queue("payments"),
        SourceControl(db, "bank"),
    )
    payments.configure(max_depth=4)
    with ingest(db, Scripted(log), MessageMapping(group="body.account", revision="body.n"), lease_s=0.3):
        until(lambda: payments.depth().messages == 4)
        control.seek(6, "p")
        payments.configure(max_depth=100)
        until(lambda: control.partitions()[0].position == "8")
    assert [number for _, number in sent(db)] == [1, 2, 3, 4, 7, 8]


def test_a_deleted_queue_ends_the_source(db: Database) -> None:
    source = Scripted(Log(p=[body(1)]))
    working = ingest(db, source)
    db.queue("payments").delete()
    with pytest.raises(NoSuchQueue):
        working.run(until="caught up")
    assert source.is_shut


def test_invalid_mapping_and_batch_settings_are_refused(db: Database) -> None:
    with pytest.raises(InputError, match=r"group is 'account'; .* begins with key, headers, body"):
        MessageMapping(group="account")
    with pytest.raises(InputError, match=r"needs format='json', not 'text'"):
        MessageMapping(group="body.account", format="text")
    with pytest.raises(InputError, match=r"batch is 0; .* above 0"):
        ingest(db, Scripted(Log()), batch=0)


@pytest.mark.parametrize("lease_s", [float("nan"), float("inf"), 1e300, -1.0, 0, "10", 1e-9, 0.099, True])
def test_an_invalid_lease_duration_is_refused(db: Database, lease_s: object) -> None:
    text = f"lease_s is {lease_s!r}; expected a number of seconds from 0.1 to 86,400"
    with pytest.raises(InputError, match=re.escape(text)):
        ingest(db, Scripted(Log()), lease_s=lease_s)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "7"),
        (None, None),
        ({"a": [1.5, b"x", dt.datetime(2026, 3, 1, tzinfo=dt.UTC)]}, '{"a":[1.5,"eA==","2026-03-01T00:00:00Z"]}'),
    ],
)
def test_a_header_that_is_neither_text_nor_bytes_is_stored_as_json(
    db: Database, value: object, text: str | None
) -> None:
    """Also in a rejected record, and for a mapping that reads all headers at once."""
    source = Scripted(Log(p=[body(1), b"{"]))
    source.headers = {"h": value}
    paths = {"one": "headers.h", "all": "headers"}
    host = ingest(db, source, MessageMapping(group="body.account", attributes=paths))
    assert host.run(until="caught up") == (1, 1, 0, 0)
    (message,) = db.queue("payments").peek()
    assert message.attributes == ({"all": {}} if text is None else {"one": text, "all": {"h": text}})
    (rejected,) = SourceControl(db, "bank").rejected()
    assert json.loads(rejected.headers) == ({} if text is None else {"h": text})
    assert restore(rejected).headers == ({} if text is None else {"h": text})


def test_a_header_without_a_json_form_rejects_only_records_whose_mapping_reads_it(db: Database) -> None:
    source = Scripted(Log(p=[body(1)]))
    source.headers = {"h": object()}
    unread = ingest(db, source)
    assert unread.run(until="caught up") == (1, 0, 0, 0)
    reads = Ingest(source, db.queue("payments"), MessageMapping(group="headers.h"), name="reads")
    assert reads.run(until="caught up") == (0, 1, 0, 0)
    (rejected,) = SourceControl(db, "reads").rejected()
    assert "the header 'h' cannot be read" in rejected.reason
    assert reads.intake.name == "reads"


def test_a_persistent_error_ends_a_run_until_caught_up(
    db: Database, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as of a registry that refuses the credentials: it is asked only once a record is there."""
    monkeypatch.setattr(source_limits, "INGEST_PAUSE_MAX_S", 0.02)

    class Registry(Decoder):
        def __call__(self, record: SourceRecord) -> SourceRecord:
            raise SourceError("the schema registry refuses the credentials (HTTP 401)")

    host = ingest(db, Scripted(Log(p=[body(1)])), decode=Registry())
    with pytest.raises(SourceError, match="HTTP 401"):
        host.run(until="caught up")
    texts = [record.getMessage() for record in caplog.records if "HTTP 401" in record.getMessage()]
    assert [text.rpartition("; ")[2] for text in texts[:1]] == ["next attempt in 0.0 s"]
    assert [text.startswith("source bank stopped: ") for text in texts] == [False, True]
    assert "HTTP 401" in host.problem


def test_errors_with_progress_between_them_are_retried(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_limits, "INGEST_PAUSE_MAX_S", 0.02)
    failures = {1: SourceError("for now"), 3: SourceError("for now")}

    class Registry(Decoder):
        def __call__(self, record: SourceRecord) -> SourceRecord:
            if record.position in failures:
                raise failures.pop(record.position)
            return record

    host = ingest(db, Scripted(Log(p=[body(1), body(2), body(3)])), batch=1, decode=Registry())
    assert host.run(until="caught up") == (3, 0, 0, 0)
    assert not failures


def test_the_log_names_the_partitions_being_read(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "inturn.ingest")
    source = Scripted(Log(**{f"p{n}": [b"1"] for n in range(7)}))
    assert Ingest(source, db.queue("q"), MessageMapping(group=None), name="s").run(until="caught up").received == 7
    assert [record.message for record in caplog.records if "reads" in record.message] == [
        "source s reads p0, p1, p2, p3, p4 and 2 more"
    ]
