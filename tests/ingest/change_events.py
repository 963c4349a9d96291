"""Change events of Debezium as records, and what a worker makes of their messages."""

import json
from typing import Any

import pytest

import inturn
from inturn.core.pipeline.order import Order
from inturn.core.queue.messages import Draft
from inturn.ingest import DebeziumMapping, MappingError
from inturn.ingest.debezium import merged
from inturn.ingest.source import SourceRecord

ROW = DebeziumMapping()
ACCOUNT = DebeziumMapping(group="account")


def record(event: Any, key: Any = None, position: Any = 1) -> SourceRecord:
    data = None if event is None else event if isinstance(event, bytes) else json.dumps(event).encode()
    return SourceRecord("t-0", position, data, None if key is None else json.dumps(key).encode())


def drafted(event: Any, key: Any = None, mapping: DebeziumMapping = ROW, position: Any = 1) -> Draft | None:
    return mapping.compiled()(record(event, key, position))


def refusal(event: Any, key: Any = None, mapping: DebeziumMapping = ROW) -> str:
    with pytest.raises(MappingError) as caught:
        drafted(event, key, mapping)
    return str(caught.value)


def change(op: str, after: Any, lsn: int | None, before: Any = None, **source: Any) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "source": {"lsn": lsn, **source}}


def keep(state: dict[str, Any], message: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """Keep the row as a mirror of the table does."""
    return {"row": None if message["op"] == "d" else merged(message["after"], state.get("row") or {})}, []


def replayed(drafts: list[Draft | None], handler: Any = keep, order: Order | None = None) -> Any:
    """What a worker makes of the messages, in the order of their arrival, completed from their envelopes."""
    ids = isinstance(order, inturn.Arrival)
    pipeline = inturn.Pipeline(
        name="mirror",
        group="g",
        order=order or inturn.Monotone("revision"),
        arrival="n",
        id="i" if ids else None,
        handler=handler,
    )
    messages = [
        json.loads(draft.body) | {"g": draft.group, "revision": draft.revision, "n": n} | ({"i": str(n)} if ids else {})
        for n, draft in enumerate(drafts, 1)
        if draft is not None
    ]
    return pipeline.replay(messages)
