"""A source keeps a bounded number of rejected records, and never drops what nobody else has."""

import json
from typing import Any

import pytest

from ingest.scripted import Log, Scripted
from inturn.core.errors import InputError
from inturn.database import Database
from inturn.ingest import Ingest, MessageMapping, SourceControl
from inturn.ingest import limits as source_limits
from waiting import until

BY_ID = MessageMapping(group="body.account", id="body.id")


class Broker(Scripted):
    """A broker without positions: what is confirmed is gone."""

    has_positions = False

    def open(self, partition: str, position: Any) -> None:
        super().open(partition, None)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_limits, "INGEST_PAUSE_S", 0.01)


def body(number: int) -> bytes:
    return json.dumps({"account": "a", "id": str(number)}).encode()


def ingest(db: Database, source: Scripted, **more: Any) -> Ingest:
    return Ingest(source, db.queue("payments"), BY_ID, name="bank", batch=4, **more)


def test_a_replayable_source_drops_and_counts_rejected_records_beyond_the_bound(db: Database) -> None:
    bodies: list[bytes | None] = [b"%d" % number for number in range(10)]
    log = Log(p=[*bodies, body(1)])
    assert ingest(db, Scripted(log), max_rejected=6).run(until="caught up") == (1, 10, 0, 0)
    control = SourceControl(db, "bank")
    assert [record.body for record in control.rejected()] == [b"%d" % number for number in range(6)], (
        "the first are kept"
    )
    (partition,) = control.partitions()
    assert (partition.rejected, partition.dropped, partition.position) == (10, 4, "11")
    control.purge(numbers=[place.number for place in control.rejected_places()][:5])
    log.partitions["p"] += [b"x", b"y"]
    ingest(db, Scripted(log), max_rejected=6).run(until="caught up")
    assert [record.body for record in control.rejected()] == [b"5", b"x", b"y"], "there is room again"
    assert control.partitions()[0].dropped == 4


def test_rejected_records_after_the_first_beyond_the_byte_bound_are_dropped(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log(p=[b"x" * 100, b"y" * 500, b"z" * 100])
    ingest(db, Scripted(log), max_rejected_bytes=300).run(until="caught up")
    control = SourceControl(db, "bank")
    assert [(record.body or b"")[:1] for record in control.rejected()] == [b"x"]
    assert control.rejected_total() == (1, 100 + len(b"k") + len('{"h":"v"}'))
    assert control.partitions()[0].dropped == 2
    assert "2 more are dropped, the last from p at 3: the body is not JSON" in caplog.text


def test_a_broker_source_waits_at_the_rejected_bound_instead_of_dropping(db: Database) -> None:
    bodies: list[bytes | None] = [b"%d" % number for number in range(6)]
    log = Log(p=[*bodies, body(1)])
    source = Broker(log)
    control = SourceControl(db, "bank")
    with ingest(db, source, max_rejected=3, lease_s=0.5) as running:
        until(lambda: control.problems() or source.confirmed[1:])
        assert control.partitions()[0].dropped == 0
        ((reason,),) = [control.problems().values()]
        assert "resend or purge records" in reason
        assert running.problem == reason
        assert [record.body for record in control.rejected()] == [b"0", b"1", b"2", b"3"], "a batch is whole"
        assert source.confirmed == [("p", 4)], "the broker keeps the others"
        assert db.queue("payments").depth().messages == 0
        control.purge()
        until(lambda: not running.problem and not control.problems())
        until(lambda: db.queue("payments").depth().messages == 1)
    assert [record.body for record in control.rejected()] == [b"4", b"5"]
    assert control.partitions()[0].dropped == 0


def test_a_source_waiting_at_the_rejected_bound_can_be_stopped(db: Database) -> None:
    source = Broker(Log(p=[b"%d" % number for number in range(8)]))
    with ingest(db, source, max_rejected=1) as running:
        until(lambda: running.problem)
    assert source.confirmed == [("p", 4)]
    assert SourceControl(db, "bank").problems() == {}, "it has left"


@pytest.mark.parametrize(
    "wrong", [{"max_rejected": 0}, {"max_rejected_bytes": -1}, {"max_rejected": "5"}, {"max_rejected": 1.5}]
)
def test_a_rejected_bound_that_is_not_above_zero_is_refused(db: Database, wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="above 0"):
        ingest(db, Scripted(Log()), **wrong)
