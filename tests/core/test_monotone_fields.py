"""The order by several fields: changes of rows from logs whose positions do not fit into one number."""

import random
from typing import Any

import pytest
from reference import arrive, pipeline

from inturn import MonotoneFields
from inturn.core.identity import effect_id
from inturn.core.pipeline.replay import Replay

SQL_SERVER = MonotoneFields(("source.commit_lsn", "source.change_lsn", "source.event_serial_no"))
ORACLE = MonotoneFields(["source.scn", "source.rs_id", "source.ssn"])  # type: ignore[arg-type] # a list, as from a file


def change(value: str, *places: Any, order: MonotoneFields = SQL_SERVER) -> dict[str, Any]:
    names = [name.removeprefix("source.") for name in order.fields]
    return {"v": value, "source": dict(zip(names, places, strict=True))}


def replay(messages: list[dict[str, Any]], order: MonotoneFields = SQL_SERVER) -> Replay:
    return pipeline(order).replay(arrive(messages))


ROW = [
    change("snapshot", "00000027:00000ac0:0001", None, None),
    change("update, before", "00000027:00000ac0:000A", "00000027:00000ac0:0003", 1),
    change("update, after", "00000027:00000ac0:000A", "00000027:00000ac0:0003", 2),
    change("second update", "00000027:00000ac0:000A", "00000027:00000ac0:0004", 1),
    change("next transaction", "00000028:00000001:0001", "00000027:00000fff:0001", 1),
]


def test_monotone_fields_orders_sql_server_changes_of_a_row() -> None:
    result = replay(ROW)
    assert result.states == {"a": [row["v"] for row in ROW]}
    assert [output.id for output in result.outputs][:2] == ["27:ac0:1/-/-", "27:ac0:a/27:ac0:3/1"]
    assert result.outputs[0].revision is None
    assert result.outputs[0].effect_id == effect_id("p", "a", None, "27:ac0:1/-/-", 0)


@pytest.mark.parametrize("seed", range(5))
def test_monotone_fields_detects_copies_after_a_connector_restart(seed: int) -> None:
    """The connector begins again at an earlier position: every change is a copy, whatever the cut."""
    first, repeated = arrive(ROW), arrive(ROW)
    start = random.Random(seed).randrange(len(ROW))
    before = pipeline(SQL_SERVER).replay(first)
    after = pipeline(SQL_SERVER).replay(repeated[start:], after=before)
    assert after.states == before.states
    assert after.counts.duplicate == len(ROW) - start


def test_monotone_fields_counts_older_changes_as_stale_and_other_content_as_conflict() -> None:
    result = replay([ROW[2], ROW[0], {**ROW[2], "v": "other"}, ROW[3]])
    assert result.states == {"a": ["update, after", "second update"]}
    assert (result.counts.stale, result.counts.rejected) == (1, {"conflict": 1})


def test_monotone_fields_orders_oracle_changes_of_one_scn() -> None:
    scn = "2122185"
    places = [(scn, None, 0), (scn, "001234.00012345.0124", 0), (scn, "001234.00012345.0124", 1), ("10000000", None, 0)]
    result = replay([change(str(index), *place, order=ORACLE) for index, place in enumerate(places)], ORACLE)
    assert result.states == {"a": ["0", "1", "2", "3"]}


@pytest.mark.parametrize(
    ("places", "why"),
    [
        ((None, "27:1:1", 1), "source.commit_lsn is null"),
        (
            ("NULL", None, None),
            "source.commit_lsn is 'NULL', which is not a valid position; expected a 64-bit whole number",
        ),
        (("27:1:1", "27:1:1", -1), "source.event_serial_no is -1, which is not a valid position"),
    ],
)
def test_an_invalid_position_is_rejected_as_invalid(places: tuple[Any, ...], why: str) -> None:
    result = replay([change("x", *places), ROW[0]])
    assert result.states == {"a": ["snapshot"]}
    [rejected] = result.rejected
    assert (rejected.reason, rejected.detail and rejected.detail[: len(why)]) == ("invalid", why)
