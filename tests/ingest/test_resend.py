"""Rejected records are sent again by a mended mapping: in order, each once, and as the source gave them."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ingest.scripted import Log, Scripted
from inturn.core.errors import InputError, QueueFull
from inturn.core.queue.messages import QueueSettings
from inturn.database import Database
from inturn.faults import OF_A_TRANSACTION
from inturn.ingest import Ingest, MappingError, MessageMapping, SourceControl, SourceRecord, UnreadableHeader
from inturn.ingest import limits as source_limits
from inturn.ingest.rejections import rejected_record, restore
from inturn.store.sources import RejectedRecord
from inturn.store.sql.sources import SqlSources
from waiting import DEADLINE_S

WRONG = MessageMapping(group="body.user", revision="body.n")
MENDED = MessageMapping(group="body.account", revision="body.n")
PROGRAM = Path(__file__).parent / "programs" / "resend.py"


class Headed(Scripted):
    """A source whose records have other headers."""

    headers: Mapping[str, bytes | str] = {}

    def poll(self, limit: int, timeout_s: float) -> Sequence[SourceRecord]:
        return [record._replace(headers=self.headers) for record in super().poll(limit, timeout_s)]


class NoHeaders(Mapping[str, bytes | str]):
    """The headers of a record whose source cannot read them."""

    def __getitem__(self, name: str) -> bytes | str:
        raise MappingError("no header can be read")

    def __iter__(self) -> Iterator[str]:
        raise MappingError("no header can be read")

    def __len__(self) -> int:
        raise MappingError("no header can be read")


class Broker(Scripted):
    """A broker without positions: it gives again what was not confirmed."""

    has_positions = False

    def open(self, partition: str, position: Any) -> None:
        super().open(partition, None)


def body(number: int, account: str = "a", **more: object) -> bytes:
    return json.dumps({"account": account, "n": number, **more}).encode()


def ingest(db: Database, source: Scripted, mapping: MessageMapping = MENDED, **more: Any) -> Ingest:
    return Ingest(source, db.queue("payments"), mapping, name="bank", **more)


def ingest_rejecting(
    db: Database, *bodies: bytes, mapping: MessageMapping = WRONG, **partitions: list[bytes | None]
) -> Ingest:
    """Have a source reject all its records; return it with the mended mapping."""
    source = Scripted(Log(p=[*bodies], **partitions))
    assert ingest(db, source, mapping).run(until="caught up").received == 0
    return ingest(db, source)


def sent(db: Database) -> list[tuple[str | None, int | None]]:
    return [(message.group, message.revision) for message in db.queue("payments").peek(10_000)]


def test_resend_sends_mappable_records_in_order_and_keeps_the_others_with_a_new_reason(db: Database) -> None:
    mended = ingest_rejecting(db, body(1), b"{", body(2), b'{"account": "a"}', body(3, "b"))
    control = SourceControl(db, "bank")
    progress: list[int] = []
    assert control.resend(mended.intake, on_progress=progress.append) == (3, 0, 0, 0, 2)
    assert sum(progress) == 5
    assert sent(db) == [("a", 1), ("a", 2), ("b", 3)]
    assert [(record.number, record.reason.split(";")[0].split(":")[0]) for record in control.rejected()] == [
        (2, "the body is not JSON"),
        (4, "the revision is None"),
    ]
    assert control.resend(mended.intake) == (0, 0, 0, 0, 2)
    assert len(sent(db)) == 3
    (partition,) = control.partitions()
    assert (partition.received, partition.rejected, partition.position) == (3, 5, "5")


def test_resend_selects_records_by_number_and_by_partition(db: Database) -> None:
    mended = ingest_rejecting(db, body(1), body(2), q=[body(1, "b"), body(2, "b")])
    control = SourceControl(db, "bank")
    numbers = {(record.partition, record.position): record.number for record in control.rejected()}
    assert control.resend(mended.intake, numbers=[numbers["q", "2"], 4711]).sent == 1
    assert sent(db) == [("b", 2)]
    assert control.resend(mended.intake, numbers=[numbers["p", "1"], numbers["q", "1"]], partitions=["p"]).sent == 1
    assert control.resend(mended.intake, partitions=["q"]).sent == 1
    assert sent(db) == [("b", 2), ("a", 1), ("b", 1)]
    assert [place.partition for place in control.rejected_places()] == ["p"]
    with pytest.raises(InputError, match="'bank'"):
        SourceControl(db, "shop").resend(mended.intake)


def test_purged_records_are_deleted_and_their_numbers_are_not_reused(db: Database) -> None:
    mended = ingest_rejecting(db, body(1), body(2), body(3))
    control = SourceControl(db, "bank")
    last = [place.number for place in control.rejected_places()][-1]
    assert control.purge(numbers=[last]) == 1
    assert control.purge() == 2
    assert control.rejected_total() == (0, 0)
    ingest_rejecting(db, *[body(number) for number in range(1, 5)])
    assert [place.number for place in control.rejected_places()] == [last + 1]
    assert control.resend(mended.intake).sent == 1


def test_a_resend_preview_gives_the_same_result_and_changes_nothing(db: Database) -> None:
    by_id = MessageMapping(group="body.account", id="body.id")
    source = Broker(Log(p=[body(1, id="x"), body(1, id="x"), body(2, id="x"), b"{", body(3, id="y")]))
    ingest(db, source, MessageMapping(group="body.user", id="body.id")).run(until="caught up")
    mended, control = ingest(db, source, by_id), SourceControl(db, "bank")
    before = list(control.rejected())
    previews = list(control.preview(mended.intake))
    assert [preview.outcome for preview in previews] == ["send", "repeated", "stay", "stay", "send"]
    assert (previews[0].group, previews[0].id, previews[2].reason) == (
        "a",
        "x",
        "the id 'x' was already used for another message",
    )
    assert (list(control.rejected()), sent(db)) == (before, [])
    assert control.resend(mended.intake) == (2, 1, 0, 0, 2)


def test_resent_ids_are_remembered_so_a_broker_redelivery_is_not_sent_again(db: Database) -> None:
    source = Broker(log := Log(p=[body(1, id="x"), body(2, id="y")]))
    by_id = MessageMapping(group="body.account", id="body.id")
    ingest(db, source, MessageMapping(group="body.user", id="body.id")).run(until="caught up")
    mended = ingest(db, Broker(log), by_id)
    assert SourceControl(db, "bank").resend(mended.intake).sent == 2
    assert mended.run(until="caught up") == (0, 0, 2, 0)
    assert [message.dedup_id for message in db.queue("payments").peek()] == ["x", "y"]


def test_a_resent_record_of_a_moved_group_waits_for_accept(db: Database) -> None:
    by_position = MessageMapping(group="body.account", revision="position")
    source = Scripted(Log(p=[body(1)], q=[b'{"user": "a", "n": 1}']))
    ingest(db, source, by_position).run(until="caught up")
    mended = ingest(db, source, MessageMapping(group="body.user", revision="position"))
    control = SourceControl(db, "bank")
    assert control.resend(mended.intake) == (0, 0, 0, 1, 0)
    (moved,) = control.moved()
    assert (moved.group, moved.partition, moved.home) == ("a", "q", "p")
    assert control.accept("a") == 1


def test_resend_removes_records_that_the_new_mapping_ignores(db: Database) -> None:
    source = Scripted(Log(p=[None]))
    ingest(db, source).run(until="caught up")
    passing = ingest(db, source, MessageMapping(group="key", ignore_empty=True))
    control = SourceControl(db, "bank")
    assert control.resend(passing.intake) == (0, 0, 1, 0, 0)
    assert control.rejected_total().records == 0


def test_a_resend_stopped_by_a_full_queue_continues_without_repetition(db: Database) -> None:
    queue = db.queue("payments", QueueSettings(max_depth=5))
    mended = ingest_rejecting(db, *[body(number) for number in range(12)])
    control = SourceControl(db, "bank")
    with pytest.raises(QueueFull, match="5 records already sent, 7 left"):
        control.resend(mended.intake)
    assert sent(db) == [("a", number) for number in range(5)]
    queue.purge()
    with pytest.raises(QueueFull):
        control.resend(mended.intake)
    assert sent(db) == [("a", number) for number in range(5, 10)]
    queue.purge()
    assert control.resend(mended.intake).sent == 2
    assert sent(db) == [("a", 10), ("a", 11)]


def test_resend_batches_are_limited_in_records_and_bytes(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    mended = ingest_rejecting(db, *[body(number, text="x" * 100) for number in range(40)])
    monkeypatch.setattr(source_limits, "INGEST_RECORDS", 16)
    progress: list[int] = []
    control = SourceControl(db, "bank")
    assert control.resend(mended.intake, numbers=range(1, 21), on_progress=progress.append).sent == 20
    assert progress == [16, 4]
    monkeypatch.setattr(source_limits, "RESEND_BYTES", 500)
    assert control.resend(mended.intake, on_progress=progress.append).sent == 20
    assert max(progress[2:]) == 3
    assert sent(db) == [("a", number) for number in range(40)]


def test_listing_rejected_records_reads_small_batches(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    ingest_rejecting(db, *[body(number, text="x" * 100) for number in range(20)])
    monkeypatch.setattr(source_limits, "RESEND_BYTES", 500)
    sizes: list[int] = []
    read = SqlSources.rejected_by_number

    def counted(store: SqlSources, source: str, numbers: Sequence[int]) -> list[RejectedRecord]:
        sizes.append(len(numbers))
        return read(store, source, numbers)

    monkeypatch.setattr(SqlSources, "rejected_by_number", counted)
    control = SourceControl(db, "bank")
    assert [record.position for record in control.rejected(1)] == ["1"]
    assert sizes == [1]
    assert [record.position for record in control.rejected()] == [str(number) for number in range(1, 21)]
    assert max(sizes) == 3


def test_two_concurrent_resends_send_each_record_once(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    mended = ingest_rejecting(db, *[body(number) for number in range(60)])
    monkeypatch.setattr(source_limits, "INGEST_RECORDS", 4)
    control = SourceControl(db, "bank")
    both = threading.Barrier(2, timeout=DEADLINE_S)
    counts: list[int] = []

    def resend() -> None:
        both.wait()
        counts.append(control.resend(mended.intake).sent)

    threads = [threading.Thread(target=resend) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert sum(counts) == 60
    assert sorted(sent(db)) == [("a", number) for number in range(60)]


# --- headers and times ---


def test_a_rejected_record_is_restored_unchanged() -> None:
    headers: dict[str, bytes | str] = {
        "t": "text",
        "b": b"\xff\x00",
        "same": b"text",
        "bad": UnreadableHeader(b"\x01", "no date is"),
    }
    record = SourceRecord("p", {"at": [1, "x"]}, b"\xfe", b"\xff", headers, 1_234)
    restored = restore(rejected_record(record, "why"))
    assert restored == record
    assert {name: type(value) for name, value in restored.headers.items()} == {
        "t": str,
        "b": bytes,
        "same": bytes,
        "bad": UnreadableHeader,
    }
    assert getattr(restored.headers["bad"], "reason", None) == "no date is"


@pytest.mark.parametrize(
    ("mapping", "is_sent"),
    [
        (MessageMapping(group="headers.b"), False),
        (MessageMapping(group="headers.bad"), False),
        (MessageMapping(group="headers.t"), True),
        (MessageMapping(group="key", body="headers.t"), True),
        (MessageMapping(group="time"), True),
    ],
)
def test_a_resend_mapping_reads_the_original_headers_and_time(
    db: Database, mapping: MessageMapping, is_sent: bool
) -> None:
    source = Headed(Log(p=[body(1)]))
    source.headers = {"t": "é", "b": b"\xff", "bad": UnreadableHeader(b"\x01", "no date is")}
    ingest(db, source, WRONG).run(until="caught up")
    mended, control = ingest(db, source, mapping), SourceControl(db, "bank")
    assert control.resend(mended.intake).sent == is_sent
    if not is_sent:
        (rejected,) = control.rejected()
        assert ("not UTF-8" in rejected.reason) or ("no date is" in rejected.reason)


@pytest.mark.parametrize(
    ("mapping", "is_sent"),
    [
        (MessageMapping(group="headers.t"), False),
        (MessageMapping(group="key", body="headers"), False),
        (MessageMapping(group="key", attributes={"t": "headers.t"}), False),
        (MessageMapping(group="key", attributes={"at": "time"}), True),
    ],
)
def test_a_resend_that_maps_unreadable_headers_is_rejected(
    db: Database, mapping: MessageMapping, is_sent: bool
) -> None:
    source = Headed(Log(p=[body(1)]))
    source.headers = NoHeaders()
    ingest(db, source, WRONG).run(until="caught up")
    control = SourceControl(db, "bank")
    assert control.resend(ingest(db, source, mapping).intake).sent == is_sent
    assert is_sent or next(control.rejected()).reason == "no header can be read"


# --- kills ---


@pytest.mark.parametrize("point", [*(f"{point}@2" for point in OF_A_TRANSACTION), "resent", "resent@3"])
def test_a_resend_killed_within_or_between_batches_sends_each_record_once(
    db: Database, address: str, point: str
) -> None:
    ingest_rejecting(db, *[body(number) for number in range(30)])
    environ = os.environ | {"INTURN_KILL_AT": point}
    command = [sys.executable, str(PROGRAM), address]
    killed = subprocess.run(command, env=environ, timeout=DEADLINE_S, check=False)
    assert killed.returncode == -9
    control = SourceControl(db, "bank")
    resent, remaining = len(sent(db)), control.rejected_total().records
    assert resent + remaining == 30
    assert subprocess.run(command, timeout=DEADLINE_S, check=False).returncode == 0
    assert sent(db) == [("a", number) for number in range(30)]
    assert control.rejected_total().records == 0
