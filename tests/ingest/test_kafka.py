"""Records of a topic become messages once, over a broker of Kafka's protocol that is always there."""

import json
import re
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

import inturn
from inturn.cli import app
from inturn.core import limits
from inturn.core.errors import InputError, PositionGone, SourceError
from inturn.database import Database
from inturn.ingest import Ingest, IngestCounts, KafkaSource, MessageMapping, SourceControl
from inturn.ingest import limits as source_limits
from inturn.testing import source
from kafka_started import produce, produce_named, topic

pytestmark = pytest.mark.thorough

BY_KEY = MessageMapping(group="key", revision="body.n")


@pytest.fixture
def name(servers: str) -> str:
    return topic(servers, f"t{time.time_ns()}", 2)


def ingest(db: Database, source: KafkaSource, mapping: MessageMapping = BY_KEY, **more: int) -> Ingest:
    return Ingest(source, db.queue("payments"), mapping, name="bank", **more)


def numbers(first: int, last: int) -> list[bytes]:
    return [json.dumps({"n": number}).encode() for number in range(first, last + 1)]


def sent(db: Database) -> list[tuple[str | None, int | None]]:
    return [(message.group, message.revision) for message in db.queue("payments").peek(1000)]


def test_kafka_records_become_messages_and_offsets_are_stored(db: Database, servers: str, name: str) -> None:
    source = KafkaSource(servers, name)
    produce(servers, name, numbers(1, 30), 0, key=b"a")
    produce(servers, name, numbers(1, 20), 1, key=b"b")
    assert ingest(db, source, batch=7).run(until="caught up") == (50, 0, 0, 0)
    produce(servers, name, numbers(31, 40), 0, key=b"a")
    assert ingest(db, source).run(until="caught up").received == 10
    assert [message for message in sent(db) if message[0] == "a"] == [("a", number) for number in range(1, 41)]
    assert [message for message in sent(db) if message[0] == "b"] == [("b", number) for number in range(1, 21)]
    assert [(partition.name, partition.position) for partition in SourceControl(db, "bank").partitions()] == [
        ("0", "40"),
        ("1", "20"),
    ]


def test_kafka_headers_time_and_position_can_be_mapped(db: Database, servers: str, name: str) -> None:
    mapping = MessageMapping(
        group="headers.account",
        revision="time",
        id="position",
        format="bytes",
        attributes={"account": "headers.account", "at": "time", "key": "key", "none": "headers.none"},
    )
    headers = [("account", b"first"), ("account", b"a"), ("none", None)]
    produce(servers, name, [b"\x00\xff"], key=b"k", headers=headers, timestamp=1_700_000_000_123)
    assert ingest(db, KafkaSource(servers, name), mapping).run(until="caught up").received == 1
    (message,) = db.queue("payments").peek()
    assert (message.group, message.revision, message.dedup_id) == ("a", 1_700_000_000_123, "1")
    assert message.body == b"\x00\xff"
    assert message.attributes == {"account": "a", "at": 1_700_000_000_123, "key": "k"}


def test_poison_records_and_tombstones_are_rejected_and_block_nothing(db: Database, servers: str, name: str) -> None:
    poison = [None, b"", b"\xff", b"[", b'"' + b"x" * 2 * limits.BODY_BYTES + b'"']
    produce(servers, name, [*numbers(1, 1), *poison, *numbers(2, 2)], key=b"a", headers={"h": b"\xff", "n": None})
    produce(servers, name, numbers(3, 3))  # no key, so no group
    produce(servers, name, numbers(4, 4), key=b"\xff")
    assert ingest(db, KafkaSource(servers, name)).run(until="caught up") == (2, 7, 0, 0)
    assert [record.body for record in SourceControl(db, "bank").rejected()][:5] == poison


@pytest.mark.parametrize("group", ["key", "headers.account"])
def test_a_header_name_that_is_not_utf8_rejects_the_record_if_headers_are_mapped(
    db: Database, servers: str, name: str, group: str
) -> None:
    bad = [(b"account", b"a"), (b"caf\xe9", b"1"), (b"\xff", b"2")]
    for n in range(1, 41):  # the crash comes once the interpreter has specialized the call
        produce_named(servers, name, b'{"n": %d}' % n, bad if n % 4 == 0 else bad[:1])
    produce_named(servers, name, b"[", bad)
    headed = MessageMapping(group=group, revision="body.n")
    counts = ingest(db, KafkaSource(servers, name), headed).run(until="caught up")
    rejected = list(SourceControl(db, "bank").rejected())
    if group == "key":
        assert counts == (40, 1, 0, 0)
        assert "not JSON" in rejected[0].reason
    else:
        assert counts == (30, 11, 0, 0)
        assert [record.body for record in rejected] == [*(b'{"n": %d}' % n for n in range(4, 41, 4)), b"["]
        assert {record.reason for record in rejected[:-1]} == {
            "a header name is not UTF-8, so the client can read none of the record's headers"
        }
    assert {(message.group, message.body["n"]) for message in db.queue("payments").peek(100)} == {  # type: ignore[call-overload, index]
        ("a", n) for n in range(1, 41) if group == "key" or n % 4
    }
    if group != "key":
        control, by_key = SourceControl(db, "bank"), MessageMapping(group="key", revision="body.n")
        intakes = [ingest(db, KafkaSource(servers, name), mapping).intake for mapping in (headed, by_key)]
        assert [control.resend(intake)[::4] for intake in intakes] == [(0, 11), (10, 1)], (
            "what was not read is not made up"
        )


def test_offsets_are_committed_to_the_named_kafka_consumer_group(db: Database, servers: str, name: str) -> None:
    from confluent_kafka import Consumer, TopicPartition

    produce(servers, name, numbers(1, 9), key=b"a")
    ingest(db, KafkaSource(servers, name, "payments")).run(until="caught up")
    other = Consumer({"bootstrap.servers": servers, "group.id": "payments"})
    (committed,) = other.committed([TopicPartition(name, 0)], timeout=60)
    other.close()
    assert committed.offset == 9


def test_lag_is_the_number_of_unread_records(servers: str, name: str) -> None:
    source = KafkaSource(servers, name)
    produce(servers, name, numbers(1, 9), key=b"a")
    assert source.partitions() == ["0", "1"]
    source.open("0", None)
    assert source.lag("0") is None
    assert len(source.poll(4, 0.1)) in {1, 4}
    while (lag := source.lag("0")) is None or lag > 0:
        source.poll(100, 0.1)
    source.close("0")
    source.open("0", 7)
    assert [record.position for record in source.poll(100, 1)] == [8, 9]
    source.shutdown()


def test_a_seek_can_repeat_and_skip_kafka_records(db: Database, servers: str, name: str) -> None:
    produce(servers, name, numbers(1, 5), key=b"a")
    source, control = KafkaSource(servers, name), SourceControl(db, "bank")
    ingest(db, source).run(until="caught up")
    control.seek(3, "0")
    assert ingest(db, source).run(until="caught up").received == 2
    with pytest.raises(PositionGone, match="'here' is not an offset; seek to a whole number"):
        source.open("0", "here")
    with pytest.raises(InputError, match="the position is 'here'; expected a whole number"):
        control.seek("here", "0")


def test_kafka_connection_and_option_errors_name_their_cause(
    servers: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(source_limits, "INGEST_REQUEST_S", 0.5)
    with pytest.raises(InputError, match=r"No such configuration property: \"nonsense\""):
        KafkaSource(servers, "t", options={"nonsense": 1}).partitions()
    with pytest.raises(InputError, match=r"the option 'group.id' .*; remove it"):
        KafkaSource(servers, "t", options={"group.id": "g"})
    with inturn.open(tmp_path / "shop.db") as db:
        for source, reason in (
            (KafkaSource(servers, "nope"), "Unknown topic"),
            (KafkaSource("127.0.0.1:1", "t"), "refused"),
        ):
            with pytest.raises(SourceError, match=reason):
                ingest(db, source).run(until="caught up")


def test_ingest_run_and_check_work_for_a_kafka_source(servers: str, name: str, tmp_path: Path) -> None:
    produce(servers, name, numbers(1, 3), key=b"a")
    config = tmp_path / "ingest.toml"
    config.write_text(f"""
        [[sources]]
        name = "bank"
        kind = "kafka"
        queue = "shop.db#payments"
        servers = "{servers}"
        topic = "{name}"
        group_id = "payments"
        options = {{ "client.id" = "tests" }}
        [sources.mapping]
        revision = "body.n"
        attributes = {{ at = "time" }}
    """)
    checked = CliRunner().invoke(app, ["ingest", "check", str(config), "--json"])
    assert [json.loads(text)["position"] for text in checked.stdout.splitlines() if text.startswith("{")] or json.loads(
        checked.stdout
    )
    run = CliRunner().invoke(app, ["ingest", "run", str(config), "--until-caught-up", "--json"])
    assert json.loads(run.stdout) == [{"source": "bank", **IngestCounts(3)._asdict()}]
    with inturn.open(tmp_path / "shop.db") as db:
        assert all(message.attributes["at"] > 1_700_000_000_000 for message in db.queue("payments").peek())


def test_ingest_commands_report_an_unreadable_kafka_source_without_secrets(
    servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_limits, "INGEST_REQUEST_S", 0.5)
    config = tmp_path / "ingest.toml"
    login = '"security.protocol" = "sasl_plaintext", "sasl.mechanism" = "PLAIN", "sasl.username" = "me", '
    login += '"sasl.password" = "secret-7"'
    for more, words in (
        ("", "Unknown topic or partition; create it, or check its name and the servers"),
        ('options = { "security.protocol" = "ssl" }', "check the servers and security.protocol|SSL"),
        (f"options = {{ {login} }}", "SASL PLAIN mechanism handshake failed"),
    ):
        config.write_text(f"""
            [[sources]]
            name = "bank"
            kind = "kafka"
            queue = "shop.db#payments"
            servers = "{servers}"
            topic = "nope"
            {more}
        """)
        for command in (["check"], ["run", "--until-caught-up"]):
            result = CliRunner().invoke(app, ["ingest", *command, str(config)])
            assert result.exit_code == 1
            assert re.search(words, " ".join(result.output.split()))
            assert "topic 'nope'" in result.output
            assert "Traceback" not in result.output
            assert "secret-7" not in result.output


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_kafka_topic_passes_the_source_check(servers: str, name: str, seed: int) -> None:
    def make(numbers: Sequence[int]) -> None:
        for n in numbers:
            produce(servers, name, [b'{"n": %d}' % n], n % 2)

    source(lambda: KafkaSource(servers, name), make, seed=seed, steps=40)
