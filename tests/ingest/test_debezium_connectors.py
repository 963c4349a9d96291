"""Debezium by connector: positions of several fields, MongoDB's collections, and flattened events."""

import json
from typing import Any

import pytest

import inturn
from ingest.change_events import drafted, refusal, replayed
from inturn.ingest import DebeziumMapping, MappingError
from inturn.ingest.debezium import POSITION_FIELDS, position_of


def sql_server(op: str, value: int, commit: str, change: str | None, serial: int | None) -> dict[str, Any]:
    source = {"connector": "sqlserver", "db": "shop", "schema": "dbo", "table": "bill", "commit_lsn": commit}
    row = {"id": 1, "value": value}
    return {
        "op": op,
        "before": row,
        "after": row,
        "source": {**source, "change_lsn": change, "event_serial_no": serial},
    }


def oracle(op: str, value: int, scn: str, rs_id: str | None, ssn: int) -> dict[str, Any]:
    source = {"connector": "oracle", "db": "SHOP", "schema": "APP", "table": "BILL", "scn": scn, "commit_scn": None}
    row = {"id": 1, "value": value}
    return {"op": op, "before": row, "after": row, "source": {**source, "rs_id": rs_id, "ssn": ssn}}


IN_SEVERAL_FIELDS = {
    "sqlserver": [
        sql_server("r", 0, "00000027:00000AC0:0001", None, None),
        sql_server("u", 1, "00000027:00000ac0:000a", "00000027:00000ac0:0003", 2),
        sql_server("u", 2, "00000027:00000ac0:000a", "00000027:00000ac0:0004", 2),
        sql_server("u", 3, "00000028:00000001:0001", "00000027:00000fff:0001", 2),
    ],
    "oracle": [
        oracle("r", 0, "9868546", None, 0),
        oracle("u", 1, "9868546", "001234.00012345.0124", 0),
        oracle("u", 2, "9868546", "001234.00012345.0124", 1),
        oracle("u", 3, "10868546", "001235.00000001.0010", 0),
    ],
}


@pytest.mark.parametrize("connector", IN_SEVERAL_FIELDS)
def test_a_position_in_several_fields_orders_a_row_and_drops_duplicates(connector: str) -> None:
    """All but the last two come again, as after a restart of the connector."""
    events = IN_SEVERAL_FIELDS[connector]
    drafts = [drafted(event, {"id": 1}) for event in [*events, *events[:2]]]
    assert {draft and draft.revision for draft in drafts} == {None}
    replay = replayed(drafts, order=inturn.MonotoneFields(POSITION_FIELDS[connector]))
    assert [state["row"]["value"] for state in replay.states.values()] == [3]
    assert (replay.counts.applied, replay.counts.duplicate, replay.counts.rejected) == (4, 2, {})


def test_d4_oracle_changes_with_one_scn_are_ordered_by_the_full_position() -> None:
    """By the SCN alone the second change of a transaction is a conflict, and the old value stays."""
    first, second = oracle("c", 70, "400", "0x1.1.1", 0), oracle("u", 510, "400", "0x1.1.1", 1)
    by_scn = DebeziumMapping(revision="source.scn")
    wrong = replayed([drafted(event, {"id": 1}, by_scn) for event in (first, second)])
    assert ([state["row"]["value"] for state in wrong.states.values()], wrong.counts.rejected) == (
        [70],
        {"conflict": 1},
    )
    order = inturn.MonotoneFields(POSITION_FIELDS["oracle"])
    right = replayed([drafted(event, {"id": 1}) for event in (first, second)], order=order)
    assert [state["row"]["value"] for state in right.states.values()] == [510]


def mongo(collection: str, ts_ms: int, ordinal: Any, value: int) -> dict[str, Any]:
    source = {"connector": "mongodb", "db": "shop", "collection": collection, "ts_ms": ts_ms, "ord": ordinal}
    return {"op": "u", "before": None, "after": json.dumps({"value": value}), "source": source}


def test_two_collections_of_mongodb_with_one_id_are_two_groups() -> None:
    key = {"id": '{"$oid":"596e275826f08b2730779e1f"}'}
    drafts = [drafted(mongo(collection, 1558965508000, 31, 1), key) for collection in ("bills", "orders")]
    assert [draft and draft.group for draft in drafts] == [
        'shop.bills/{"id":"{\\"$oid\\":\\"596e275826f08b2730779e1f\\"}"}',
        'shop.orders/{"id":"{\\"$oid\\":\\"596e275826f08b2730779e1f\\"}"}',
    ]


def test_a_mongodb_position_is_encoded_from_the_oplog_timestamp() -> None:
    places = [(1558965508000, 31), (1558965508000, 32), (1558965509000, 1), (2**31 * 1000 - 1, 2**32 - 1)]
    numbers = [position_of({"ts_ms": ts_ms, "ord": ordinal}) for ts_ms, ordinal in places]
    assert numbers == sorted(set(numbers))
    assert (numbers[0], numbers[-1]) == (1558965508 << 32 | 31, 2**63 - 1)
    for wrong in ((None, 1), (1, None), (1, -1), (1, 2**32), (2**31 * 1000, 1)):
        with pytest.raises(MappingError):
            position_of(dict(zip(("ts_ms", "ord"), wrong, strict=True)))


FLAT = DebeziumMapping(flat=True)


def flat(value: int, lsn: int, **more: Any) -> dict[str, Any]:
    return {"id": 1, "value": value, "__op": "u", "__db": "shop", "__table": "bill", "__lsn": lsn, **more}


def test_a_flattened_event_gets_group_and_revision_from_its_added_fields() -> None:
    row = flat(7, 108, __deleted="false")
    draft = drafted(row, {"id": 1}, FLAT)
    assert draft is not None
    assert (draft.group, draft.revision, json.loads(draft.body)) == ('shop.bill/{"id":1}', 108, row)
    wrapped = drafted({"schema": {}, "payload": row}, {"id": 1}, FLAT)
    assert wrapped is not None
    assert (wrapped.group, wrapped.revision, json.loads(wrapped.body)) == (draft.group, 108, row)
    by_field = drafted(row, None, DebeziumMapping(flat=True, group="value", revision="__lsn"))
    assert by_field is not None
    assert (by_field.group, by_field.revision) == ("7", 108)
    with_source = {"id": 1, "__source_table": "bill", "__source_lsn": "9"}
    named = drafted(with_source, {"id": 1}, FLAT)
    assert named is not None
    assert (named.group, named.revision) == ('bill/{"id":1}', 9)


def test_the_connector_clock_is_not_used_as_position_of_a_flattened_event() -> None:
    added: dict[str, Any] = {"__collection": "bill", "__ord": 1}
    for clocks in ({"__ts_ms": 9000, "__source_ts_ms": 1000}, {"__source_ts_ms": 1000, "__ts_ms": 9000}):
        draft = drafted({"id": 1, **added, **clocks}, {"id": 1}, FLAT)
        assert draft is not None
        assert draft.revision == 1 << 32 | 1
    assert "the ts_ms is None" in refusal({"id": 1, **added, "__ts_ms": 9000}, {"id": 1}, FLAT)


def test_a_flattened_event_without_position_fields_is_rejected_with_the_missing_setting() -> None:
    assert "add.fields=db,table" in refusal({"id": 1, "__lsn": 1}, {"id": 1}, FLAT)
    assert "; set revision" in refusal({"id": 1, "__table": "bill"}, {"id": 1}, FLAT)
    assert "the op is 't'" in refusal(flat(1, 1, __op="t"), {"id": 1}, FLAT)
    assert "the op is {}" in refusal(flat(1, 1, __op={}), {"id": 1}, FLAT)
    assert "not an object" in refusal([], {"id": 1}, FLAT)
    assert "no key" in refusal(flat(1, 1), None, FLAT)
    assert "set flat" in refusal(flat(1, 1), {"id": 1})


def test_a_flattened_delete_without_a_body_is_rejected_unless_ignored() -> None:
    ignoring = DebeziumMapping(flat=True, ignore_empty=True)
    for empty in (None, b"null", {"schema": None, "payload": None}):
        assert "delete.tombstone.handling.mode=rewrite" in refusal(empty, {"id": 1}, FLAT)
        assert drafted(empty, {"id": 1}, ignoring) is None
