"""A change event as a message of a pipeline: the row, its table and its position, from every connector."""

import re
from typing import Any

import pytest

import inturn
from ingest.envelopes import IN_SEVERAL, PASSED_OVER, POSITIONS, Event
from inturn.core.errors import InputError
from inturn.ingest.debezium import POSITION_FIELDS, change_message


@pytest.mark.parametrize("connector", POSITIONS)
def test_a_change_event_becomes_a_message_with_row_and_position(connector: str) -> None:
    for event, position in POSITIONS[connector]:
        message = change_message(event)
        assert message is not None
        assert message == event | {name: message[name] for name in ("row", "table", "position") if name in message}
        assert message.get("position", IN_SEVERAL) == position, event
        row = event.get("before") if event.get("after") is None else event["after"]
        assert message["row"] == (row if event["op"] in "cudr" else None)
        for wrapped in ({"schema": {"type": "struct"}, "payload": event}, {"payload": event}):
            assert change_message(wrapped) == message
    tables = {"mysql": "inventory.customers", "oracle": "SHOP.APP.BILL", "db2": "T", "mongodb": "shop.orders"}
    assert connector not in tables or message["table"] == tables[connector]


@pytest.mark.parametrize("event", [*PASSED_OVER, None, {}], ids=str)
def test_an_event_that_changes_no_row_is_passed_over(event: Event | None) -> None:
    assert change_message(event) is None
    assert change_message({"schema": None, "payload": event}) is None


@pytest.mark.parametrize("event", [[1], [], "c", b"{}", 5, 0], ids=repr)
def test_a_value_that_is_no_object_is_refused(event: Any) -> None:
    with pytest.raises(InputError, match=rf"event is {re.escape(repr(event))}; expected .* as a dict, .* None for a"):
        change_message(event)


@pytest.mark.parametrize(
    "event",
    [
        {"op": "u"},
        {"op": "u", "after": {"id": 1}, "source": 5},
        {"op": {}, "after": {"id": 1}},
        {"after": {"id": 1}},
        {"payload": []},
    ],
    ids=str,
)
def test_an_unusable_change_stays_and_is_rejected_by_a_pipeline(event: Event) -> None:
    message = change_message(event)
    assert message is not None
    assert message["position"] is None
    pipeline: Any = inturn.Pipeline(
        name="mirror", group="row.id", order=inturn.Monotone("position"), handler=lambda state, _: (state, [])
    )
    assert pipeline.replay([message]).counts.rejected == {"invalid": 1}


@pytest.mark.parametrize("connector", ["sqlserver", "oracle"])
def test_the_fields_of_a_position_order_the_messages(connector: str) -> None:
    messages = [change_message(event) for event, _ in POSITIONS[connector]]
    pipeline: Any = inturn.Pipeline(
        name="mirror",
        group="row.id",
        order=inturn.MonotoneFields(POSITION_FIELDS[connector]),
        handler=lambda _, event: ({"row": event["row"]}, []),
    )
    assert pipeline.replay(messages).states == {"1": {"row": {"id": 1, "value": 3}}}
    assert pipeline.replay(messages[::-1]).states == {"1": {"row": {"id": 1, "value": 3}}}
