"""Debezium's events become messages: rows in the order of the log, all else visible. D1 to D13 are from the field."""

import json
from base64 import b64encode
from typing import Any

import pytest

import inturn
from ingest.change_events import ACCOUNT, ROW, change, drafted, refusal, replayed
from ingest.scripted import Log, Scripted
from inturn.core.errors import InputError
from inturn.database import Database
from inturn.ingest import DebeziumMapping, Ingest, MappingError, Webhook
from inturn.ingest.config import MappingTable
from inturn.ingest.debezium import position_of, sequence_of
from inturn.ingest.webhooks import prepare_command

POSTGRES = json.loads(
    """{"before":{"id":1},"after":{"id":1,"first_name":"Anne Marie"},"source":{"connector":"postgresql","name":
    "PostgreSQL_server","ts_ms":1559033904863,"snapshot":false,"db":"postgres","sequence":"[\\"24023119\\",\\"24023128\\"]",
    "schema":"public","table":"customers","txId":556,"lsn":24023128,"xmin":null},"op":"u","ts_ms":1465584025523,
    "transaction":{"id":"571:53195832","total_order":"1","data_collection_order":1}}"""
)
D1 = [
    json.loads(line)
    for line in (
        r'{"key":{"id":71},"offset":9000,"op":"c","after":{"id":71,"account":"acct-1","amount":8},"source":{"lsn":108,"txId":902,"sequence":"[\"90\",\"108\"]","snapshot":"false"},"transaction":{"id":"902:118","total_order":1,"data_collection_order":1}}',
        r'{"key":{"id":70},"offset":9001,"op":"c","after":{"id":70,"account":"acct-1","amount":1},"source":{"lsn":100,"txId":901,"sequence":"[\"118\",\"100\"]","snapshot":"false"},"transaction":{"id":"901:130","total_order":1,"data_collection_order":1}}',
        r'{"key":{"id":72},"offset":9002,"op":"c","after":{"id":72,"account":"acct-1","amount":2},"source":{"lsn":112,"txId":901,"sequence":"[\"118\",\"112\"]","snapshot":"false"},"transaction":{"id":"901:130","total_order":2,"data_collection_order":2}}',
        r'{"key":{"id":73},"offset":9003,"op":"c","after":{"id":73,"account":"acct-1","amount":4},"source":{"lsn":124,"txId":901,"sequence":"[\"118\",\"124\"]","snapshot":"false"},"transaction":{"id":"901:130","total_order":3,"data_collection_order":3}}',
    )
]


def test_an_event_with_and_without_its_schema_gives_the_same_message() -> None:
    key = {"id": 1}
    bare = drafted(POSTGRES, key)
    assert bare is not None
    assert (bare.group, bare.revision, bare.dedup_id) == ('postgres.public.customers/{"id":1}', 24023128, None)
    assert json.loads(bare.body) == POSTGRES
    wrapped = drafted({"schema": {"type": "struct"}, "payload": POSTGRES}, {"schema": {}, "payload": key})
    assert wrapped is not None
    assert wrapped._replace(body="") == bare._replace(body="")
    assert json.loads(wrapped.body) == POSTGRES


def test_fields_and_headers_of_an_event_become_message_attributes() -> None:
    mapping = DebeziumMapping(attributes={"table": "body.source.table", "old": "headers.__debezium.newkey"})
    assert mapping.needs_headers
    mapped = drafted(POSTGRES, {"id": 1}, mapping)
    assert mapped is not None
    assert mapped.attributes == '{"table":"customers"}'
    assert drafted(None, {"id": 1}, mapping) is None
    with pytest.raises(InputError, match=r"the attribute 'table' is 'source.table'; .*begins with"):
        DebeziumMapping(attributes={"table": "source.table"})


def test_numbers_of_an_event_with_schema_keep_all_digits() -> None:
    digits = "12345678901234567890123.12345678901234567890"
    event = f'{{"schema":{{}},"payload":{{"op":"c","after":{{"x":{digits}}},"source":{{"lsn":1}}}}}}'
    draft = drafted(event.encode(), 7)
    assert draft is not None
    assert digits in str(draft.body)


def test_a_compound_key_gives_the_same_group_for_any_field_order() -> None:
    first, second = (drafted(POSTGRES, key) for key in ({"a": 1, "b": "x"}, {"b": "x", "a": 1}))
    assert first == second
    assert "no key" in refusal(POSTGRES)


def test_sequence_of_parses_a_json_array_in_text_and_refuses_other_values() -> None:
    assert sequence_of(POSTGRES["source"]) == (24023119, 24023128)
    assert sequence_of({"sequence": '[null,"23493504"]'}) == (None, 23493504)
    for text in (None, "", "[]", "[1", '["a","b"]', '["1"]', 5, '{"0":1}'):
        with pytest.raises(MappingError):
            sequence_of({"sequence": text})


def test_d1_interleaved_transactions_are_applied_completely_by_row_or_by_arrival() -> None:
    def add(state: dict[str, Any], message: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
        return {"sum": state.get("sum", 0) + message["after"]["amount"]}, []

    rows = replayed([drafted(event, event["key"]) for event in D1])
    assert rows.counts.applied == 4
    assert [state["row"]["amount"] for state in rows.states.values()] == [1, 8, 2, 4]  # by key
    by_lsn = DebeziumMapping(group="account", revision="source.lsn")
    lost = replayed([drafted(event, None, by_lsn) for event in D1], add)
    assert (lost.states, lost.counts.applied, lost.counts.stale) == ({"acct-1": {"sum": 14}}, 3, 1)
    by_offset = DebeziumMapping(group="account", revision="position")
    right = replayed([drafted(event, None, by_offset, event["offset"]) for event in D1], add)
    assert (right.states, right.counts.applied) == ({"acct-1": {"sum": 15}}, 4)
    plain = [drafted(event, None, ACCOUNT) for event in D1]
    assert [draft and draft.revision for draft in plain] == [None] * 4  # nothing that could lose a row is made up
    assert replayed(plain, add, inturn.Arrival()).states == {"acct-1": {"sum": 15}}
    assert sorted(sequence_of(event["source"]) for event in D1) == [sequence_of(event["source"]) for event in D1]


def test_d2_a_coarse_group_drops_changes_with_lower_positions_but_row_groups_do_not() -> None:
    emitted = [(3, "foo"), (5, "bar"), (7, None), (4, "hello, "), (6, "world!")]
    events = [change("d" if not text else "c", {"text": text, "t": 1} if text else None, lsn) for lsn, text in emitted]
    for event in events:
        event["before"] = {"t": 1}
    lost = replayed([drafted(event, None, DebeziumMapping(group="t", revision="source.lsn")) for event in events])
    assert (lost.counts.applied, lost.counts.stale) == (3, 2)
    by_row = replayed([drafted(event, {"id": n}) for n, event in enumerate(events)])
    assert by_row.counts.applied == 5


def test_d3_rows_with_equal_positions_conflict_only_in_a_coarser_group() -> None:
    """A batched insert gives its rows one lsn: in a coarser group the second would be a conflict."""
    events = [change("c", {"id": n, "t": 1}, 54604320, sequence='["54604320","54604320"]') for n in (1, 3)]
    assert replayed([drafted(event, {"id": event["after"]["id"]}) for event in events]).counts.applied == 2
    coarse = DebeziumMapping(group="t", revision="source.lsn")
    assert replayed([drafted(event, None, coarse) for event in events]).counts.rejected == {"conflict": 1}


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (1, 0, 2)])
def test_d4_a_snapshot_row_after_newer_changes_is_stale(order: tuple[int, ...]) -> None:
    events = [change("r", {"v": 70}, 390), change("d", None, 400, {"v": 70}), change("c", {"v": 510}, 401)]
    replay = replayed([drafted(events[index], "111820287|1") for index in order])
    assert [state["row"] for state in replay.states.values()] == [{"v": 510}]
    assert (replay.counts.applied, replay.counts.stale) == ((3, 0) if order[0] == 0 else (2, 1))


def test_d5_a_second_snapshot_replaces_and_d6_one_at_an_applied_position_conflicts() -> None:
    first = change("r", {"f2": 1}, 23493504, snapshot="last", sequence='[null,"23493504"]')
    incremental, update = change("r", {"f2": 1}, 23493900), change("u", {"f2": 2}, 24494100)
    replay = replayed([drafted(event, 1) for event in (first, incremental, update)])
    assert ([state["row"] for state in replay.states.values()], replay.counts.applied) == ([{"f2": 2}], 3)
    both = replayed([drafted(change(op, {"f2": 2}, 500), 1) for op in "ur"])
    assert ([state["row"] for state in both.states.values()], both.counts.rejected) == ([{"f2": 2}], {"conflict": 1})


def test_d7_insert_delete_insert_in_one_millisecond_ends_with_the_last_row() -> None:
    events = [change("c", {"v": "hello"}, 10), change("d", None, 11, {"id": 1}), change("c", {"v": "hallo"}, 12)]
    replay = replayed([drafted(event, 1) for event in events])
    assert [state["row"] for state in replay.states.values()] == [{"v": "hallo"}]


def test_d8_a_delete_is_a_message_and_its_tombstone_is_skipped() -> None:
    deleted = drafted(change("d", None, 7, {"id": 1}), {"id": 1})
    assert deleted is not None
    assert deleted.revision == 7
    for tombstone in (None, b"null", {"schema": None, "payload": None}):
        assert drafted(tombstone, {"id": 1}) is None
    assert "the lsn is None" in refusal(change("c", {"id": 1}, None), {"id": 1})


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (0, 2, 1)])
def test_d9_a_changed_key_gives_two_row_groups(order: tuple[int, ...]) -> None:
    events = [
        ({"id": 1}, change("d", None, 24024300, {"id": 1})),
        ({"id": 1}, None),
        ({"id": 2}, change("c", {"id": 2, "email": "annek@example.com"}, 24024300)),
    ]
    replay = replayed([drafted(events[index][1], events[index][0]) for index in order])
    assert replay.states == {'/{"id":1}': {"row": None}, '/{"id":2}': {"row": {"id": 2, "email": "annek@example.com"}}}


def test_d10_d12_events_that_change_no_row_are_rejected_with_their_kind() -> None:
    source = {"file": "mysql-bin.000003", "pos": 570, "row": 0}
    ddl = {"source": source, "databaseName": "inventory", "ddl": "ALTER TABLE customers …", "tableChanges": []}
    assert "schema change (ddl)" in refusal(ddl, {"databaseName": "inventory"})
    assert "truncate" in refusal({"op": "t", "source": {"lsn": 1}})
    assert "logical message" in refusal({"op": "m", "source": {"lsn": 1}}, {"prefix": "p"})
    for status in ("BEGIN", "END"):
        assert "marker" in refusal({"status": status, "id": "571:53195829", "event_count": None}, {"id": "571"})
    assert "heartbeat" in refusal({"ts_ms": 5}, {"serverName": "s"})
    for event in ([], 5, "c", {"op": "x"}, {"op": ["c"]}, {"op": "c"}, {"op": "c", "source": []}, b"{", b"\xff", b"["):
        assert refusal(event, 1)
    assert "bytes" in refusal(change("c", {"x": "y" * 2**20}, 1), 1)


def test_d11_an_unavailable_unchanged_column_keeps_its_value() -> None:
    text = "__debezium_unavailable_value"
    encoded = b64encode(text.encode()).decode()
    events = [
        change("c", {"id": 1, "n": 1, "body": "long", "list": ["a"], "map": {"k": "v"}, "data": "AAA="}, 1),
        change("u", {"id": 1, "n": 2, "body": text, "list": [text], "map": {text: text}, "data": encoded}, 2),
        change("u", {"id": 1, "n": 3, "body": "short", "list": [[text], 1], "map": {}, "data": "AAA="}, 3),
    ]
    rows = [replayed([drafted(event, 1) for event in events[:n]]).states["/1"]["row"] for n in (2, 3)]
    assert rows[0] == events[0]["after"] | {"n": 2}
    assert rows[1] == events[2]["after"]


def test_d13_a_mysql_position_is_encoded_as_one_increasing_number() -> None:
    def at(file: Any, pos: Any, row: Any) -> int | None:
        return position_of({"file": file, "pos": pos, "row": row, "server_id": 1, "gtid": None})

    assert at("mysql-bin.000003", 805, 0) == 52776561430528
    assert at("mysql-bin.000003", 805, 1) == 52776561430529
    assert at("mysql-bin.000004", 154, 0) == 70368744808448
    assert at("binlog.524287", 2**32 - 1, 4095) == 2**63 - 1
    for wrong in (
        ("mysql-bin.524288", 1, 0),
        ("mysql-bin.3", 2**32, 0),
        ("mysql-bin.3", 1, 4096),
        ("mysql-bin.3", -1, 0),
        ("mysql-bin.3", None, 0),
        ("mysql-bin.3", 1, True),
        ("mysql-bin", 1, 0),
        (3, 1, 0),
    ):
        with pytest.raises(MappingError):
            at(*wrong)
    draft = drafted({"op": "d", "before": {"id": 1}, "source": {"file": "mysql-bin.000003", "pos": 805, "row": 0}}, 1)
    assert draft is not None
    assert draft.revision == 52776561430528


def test_an_unknown_connector_requires_a_configured_revision() -> None:
    event = {"op": "c", "after": {"id": 1}, "source": {"connector": "vitess", "vgtid": "[]", "at": "2868546"}}
    assert "connector 'vitess'; set revision" in refusal(event, 1)
    draft = drafted(event, 1, DebeziumMapping(revision="source.at"))
    assert draft is not None
    assert draft.revision == 2868546
    assert "has no field account" in refusal(event, 1, ACCOUNT)


def test_the_debezium_preset_of_a_configuration_gives_the_mapping() -> None:
    assert MappingTable(preset="debezium").message_mapping() == ROW
    assert MappingTable(preset="debezium", group="account").message_mapping() == ACCOUNT
    assert MappingTable(preset="debezium", flat=True).message_mapping() == DebeziumMapping(flat=True)
    with pytest.raises(InputError, match=r'flat = true .*preset = "debezium"'):
        MappingTable(flat=True)
    for wrong in ({"body": "body.after"}, {"group": ""}):
        with pytest.raises(InputError):
            MappingTable(preset="debezium", **wrong)


def test_d1_interleaved_transactions_pass_through_source_queue_and_worker_in_order(db: Database) -> None:
    def add(state: dict[str, Any], message: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
        return {"sum": state.get("sum", 0) + message["after"]["amount"]}, [message["after"]["amount"]]

    events = [json.dumps({"schema": {}, "payload": event}).encode() for event in D1]
    source = Scripted(Log(p=[*events, None, b'{"op": "t", "source": {}}']))
    mapping = DebeziumMapping(group="account", revision="position")
    queue = db.queue("bills")
    assert Ingest(source, queue, mapping, name="bills").run(until="caught up") == (4, 1, 1, 0)
    pipeline = inturn.Pipeline(name="sums", group="account", order=inturn.Monotone("place"), handler=add)
    amounts: list[Any] = []
    inturn.work(pipeline, queue, deliver=lambda output, _effect_id: amounts.append(output), until="empty")
    assert amounts == [8, 1, 2, 4]


def test_a_webhook_with_debezium_events_deduplicates_by_the_senders_id(db: Database) -> None:
    hook = Webhook(name="cdc", queue="cdc", signature="none", mapping=DebeziumMapping(group="account", id="headers.id"))
    db.writer.run(prepare_command([hook]))
    for _ in range(2):
        db.writer.run(hook.command({"Id": "m1"}, json.dumps(D1[0]).encode(), 0))
    assert db.writer.run(hook.command({}, json.dumps(D1[0]).encode(), 0)) == "rejected"
    assert [(message.group, message.dedup_id) for message in db.queue("cdc").peek()] == [("acct-1", "m1")]
    signed = Webhook(name="cdc", queue="cdc", signature="standard", secrets=["whsec_QUJD"], mapping=DebeziumMapping())
    assert signed.mapping.id == "headers.webhook-id"
