"""Change events of each connector, as its documentation has them, with the positions of their changes."""

import json
from typing import Any

from ingest.test_debezium import D1, POSTGRES
from ingest.test_debezium_connectors import IN_SEVERAL_FIELDS, mongo

Event = dict[str, Any]

MYSQL = {"connector": "mysql", "db": "inventory", "table": "customers", "server_id": 223344, "gtid": None, "thread": 3}
IN_SEVERAL: Any = ...
"""The position has several fields, so a message has none."""


def _mysql(op: str, file: Any, pos: Any, row: Any) -> Event:
    old, new = {"id": 1004, "name": "Anne"}, {"id": 1004, "name": "Anne Marie"}
    before, after = None if op == "c" else old, None if op == "d" else new
    return {"op": op, "before": before, "after": after, "source": MYSQL | {"file": file, "pos": pos, "row": row}}


def _postgres(op: str, lsn: Any, before: Any = None, after: Any = None, **more: Any) -> Event:
    source = {"connector": "postgresql", "db": "shop", "schema": "public", "table": "t", "lsn": lsn}
    return {"op": op, "before": before, "after": after, "source": source, **more}


HISTORIES = (
    '{"op":"c","before":null,"after":{"id":3,"text":"foo"},"source":{"lsn":3,"txId":1}}',  # D2
    '{"op":"d","before":{"id":3},"after":null,"source":{"lsn":7,"txId":1}}',
    '{"op":"c","before":null,"after":{"id":4,"text":"hello, "},"source":{"lsn":4,"txId":2}}',
    '{"op":"c","after":{"id":1,"n":2},"source":{"txId":86302,"sequence":"[\\"54604320\\",\\"54604320\\"]","lsn":54604320}}',
    '{"op":"c","after":{"id":3,"n":4},"source":{"txId":86302,"sequence":"[\\"54604320\\",\\"54604320\\"]","lsn":54604384}}',
    '{"op":"r","after":{"id":5,"n":70},"source":{"lsn":390,"snapshot":"last"}}',  # D4
    '{"op":"d","before":{"id":5,"n":70},"after":null,"source":{"lsn":400}}',
    '{"op":"c","after":{"id":5,"n":510},"source":{"lsn":401}}',
    '{"op":"r","after":{"id":6,"n":1},"source":{"lsn":23493504,"sequence":"[null,\\"23493504\\"]"}}',  # D5
    '{"op":"u","after":{"id":6,"n":2},"source":{"lsn":500,"snapshot":"false"}}',  # D6
    '{"op":"r","after":{"id":6,"n":2},"source":{"lsn":500,"snapshot":"true"}}',
    '{"op":"c","after":{"id":7,"text":"hello"},"source":{"lsn":10}}',  # D7
    '{"op":"d","before":{"id":7,"text":"hello"},"source":{"lsn":11}}',
    '{"op":"c","after":{"id":7,"text":"hallo"},"source":{"lsn":12}}',
    '{"op":"d","before":{"id":1},"after":null,"source":{"lsn":24024300,"txId":560}}',  # D8, D9
    '{"op":"c","before":null,"after":{"id":2,"text":"annek@example.com"},"source":{"lsn":24024300,"txId":560}}',
)
"""Events of PostgreSQL from the field: interleaved transactions, equal positions, snapshots, a changed key."""
DOCUMENTED: tuple[tuple[str, Any], ...] = (
    (
        (
            '{"before":null,"after":{"id":1004,"first_name":"Anne"},"source":{"connector":"mysql","name":"server",'
            '"ts_ms":1558965508000,"snapshot":"false","db":"inventory","table":"customers","server_id":0,"gtid":null,'
            '"file":"mysql-bin.000003","pos":154,"row":0,"thread":7},"op":"c","ts_ms":1558965515240}'
        ),
        3 << 44 | 154 << 12,
    ),
    (
        (
            '{"before":null,"after":{"id":1005,"first_name":"john"},"source":{"connector":"sqlserver","name":"server1",'
            '"ts_ms":1559729468470,"snapshot":"false","db":"testDB","schema":"dbo","table":"customers",'
            '"change_lsn":"00000027:00000758:0003","commit_lsn":"00000027:00000758:0005","event_serial_no":1},"op":"c"}'
        ),
        IN_SEVERAL,
    ),
    (
        (
            '{"before":null,"after":{"id":1006,"first_name":"Anne"},"source":{"connector":"oracle","name":"server1",'
            '"ts_ms":1520085154000,"txId":"6.28.807","scn":"2122185","commit_scn":"2122185",'
            '"rs_id":"001234.00012345.0124","ssn":1,"snapshot":"false"},"op":"c","ts_ms":1532592105975}'
        ),
        IN_SEVERAL,
    ),
)
"""Events of several connectors, with the fields of their documentation."""

POSITIONS: dict[str, list[tuple[Event, Any]]] = {
    "postgresql": [
        (POSTGRES, 24023128),
        *((event, event["source"]["lsn"]) for event in D1),
        (_postgres("r", 23493504, after={"id": 1, "f2": 1}), 23493504),
        (_postgres("d", 24024300, before={"id": 1}), 24024300),
        (_postgres("u", 2**63 - 1, after={"id": 1, "body": "__debezium_unavailable_value"}), 2**63 - 1),
        (_postgres("u", None, after={"id": 1}), None),
        (_postgres("c", 5), 5),
        (_postgres("x", 6, after={"id": 1}), None),
        (_postgres("u", 7, {"id": 1, "amount": 4}, {"id": 1, "amount": 2.5}), 7),
    ],
    "postgresql, D2 to D9": [(event, event["source"]["lsn"]) for event in map(json.loads, HISTORIES)],
    "connectors": [(json.loads(text), position) for text, position in DOCUMENTED],
    "postgresql, as text": [
        (_postgres("u", lsn, after={"id": 1}), position)
        for lsn, position in (
            ("24023128", 24023128),
            ("007", 7),
            (str(2**63 - 1), 2**63 - 1),
            (str(2**63), None),
            ("9" * 24, None),
            ("-1", None),
            ("1.5", None),
            (" 5", None),
            ("", None),
            ("0/16E9130", None),
        )
    ],
    "postgresql, unusable": [(_postgres("u", lsn, after={"id": 1}), None) for lsn in (True, False)],
    "postgresql, fraction": [(_postgres("u", 5.5, after={"id": 1}), None)],
    "mysql": [
        (_mysql("d", "mysql-bin.000003", 805, 0), 52776561430528),
        (_mysql("u", "mysql-bin.000003", 805, 1), 52776561430529),
        (_mysql("c", "mysql-bin.000004", 154, 0), 70368744808448),
        (_mysql("c", "mysql-bin.524287", 2**32 - 1, 2**12 - 1), 2**63 - 1),
        (_mysql("c", "mysql-bin.524288", 1, 0), None),
        (_mysql("c", "mysql-bin", 1, 0), None),
        (_mysql("c", "mysql-bin.000003", 2**32, 0), None),
        (_mysql("c", "mysql-bin.000003", 1, 2**12), None),
        (_mysql("c", "mysql-bin.000003", 1, None), None),
        (_mysql("c", None, 1, 0), None),
    ],
    "mongodb": [
        (mongo("bills", 1558965508000, 31, 1), 1558965508 << 32 | 31),
        (mongo("bills", 1558965508999, 32, 2), 1558965508 << 32 | 32),
        (mongo("bills", 2**31 * 1000 - 1, 2**32 - 1, 3), 2**63 - 1),
        (mongo("orders", 2**31 * 1000, 1, 4), None),
        (mongo("orders", 1558965508000, -1, 5), None),
        (mongo("orders", 1558965508000, 2**32, 6), None),
    ],
    **{name: [(event, IN_SEVERAL) for event in events] for name, events in IN_SEVERAL_FIELDS.items()},
    "db2": [
        (
            {
                "op": "u",
                "before": {"ID": 1, "V": "a"},
                "after": {"ID": 1, "V": "b"},
                "source": {"connector": "db2", "table": "T", "change_lsn": "00000000", "commit_lsn": "00001e9d"},
            },
            IN_SEVERAL,
        )
    ],
}

PASSED_OVER: list[Event] = [
    _postgres("t", 24024400),
    _postgres("m", 24024401, message={"prefix": "foo", "content": "Ymfy"}),
    {"ts_ms": 1559033904863},
    {"status": "BEGIN", "id": "571:53195829", "event_count": None, "ts_ms": 1486500577125},
    {"source": MYSQL | {"file": "mysql-bin.000003", "pos": 570, "row": 0}, "databaseName": "inventory", "ddl": "ALTER"},
    {"op": None, "before": None, "after": None, "source": None},
]
"""Events that change no row."""
