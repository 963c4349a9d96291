"""Hostile texts in messages, errors and outputs: each harms its own message or group at most, alike in every engine."""

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shop import Row, Shop, stepwise

from hostile import HOSTILE, NO_NAMES, TEXTS, is_name, is_utf8
from inturn import Arrival, Gapless, Pipeline, Retry, Retryable
from inturn.core import limits
from inturn.core.errors import InvalidMessage
from inturn.core.pipeline.replay import Replay
from inturn.core.texts import storable
from inturn.queue import draft
from inturn.worker.codec import WorkerStateCodec, timeline_of
from kernel_harness import Bench

SCHEMA = pa.schema({"g": pa.string(), "r": pa.int64(), "id": pa.string(), "text": pa.string(), "raise": pa.string()})


def keep(state: Row, message: Row) -> tuple[Row, list[Any]]:
    """Keep the message's text and put it out; raise with the text that the message names."""
    if message.get("raise"):
        kind = Retryable if message["raise"] == "a NUL" else ValueError
        raise kind(HOSTILE[message["raise"]])
    return {"texts": [*state.get("texts", []), message["text"]]}, [message["text"]]


def hostile(order: Any = None) -> Pipeline:
    order = order or Gapless("r")
    return Pipeline(name="ledger", group="g", order=order, id="id", handler=keep, retry=Retry(1, "1 millisecond"))


def row(g: str | None = "a", r: int = 1, id: str | None = "i", text: str = "", **more: Any) -> Row:  # noqa: A002
    return {"g": g, "r": r, "id": id, "text": text, "raise": None, **more}


def of_replay(result: Replay) -> dict[str, Any]:
    return {
        "states": result.states,
        "outputs": Counter((output.group, output.id, output.output) for output in result.outputs),
        "rejected": Counter((rejection.group, rejection.reason, rejection.detail) for rejection in result.rejected),
        "errors": {group: error.splitlines()[-1] for group, error in result.errors.items()},
    }


def of_worker(shop: Shop, pipeline: Pipeline) -> dict[str, Any]:
    def everything(store: Any, number: int) -> Any:
        return (
            store.list_groups(number, "", 10_000),
            store.outputs(number, 0, 10_000),
            store.rejections(number, 0, 10_000),
        )

    lines, outputs, rejected = shop.ask(everything)
    errors = {record.group: timeline_of(pipeline, record).error for record in lines}
    return {
        "states": {record.group: WorkerStateCodec(pipeline).decode(record.state) for record in lines},
        "outputs": Counter((output.group, output.id, json.loads(output.output)) for output in outputs),
        "rejected": Counter((rejection.group, rejection.reason, rejection.detail) for _, rejection in rejected),
        "errors": {group: error.splitlines()[-1] for group, error in errors.items() if error},
    }


def of_kernel(pipeline: Pipeline, messages: Sequence[Row]) -> dict[str, Any]:
    with Bench(pipeline, SCHEMA) as bench:
        bench.step(messages)
        rows = [bench.store.manifest(step) for step in bench.store.steps()]
        rejected = bench.rows([file for manifest in rows for file in manifest.rejected])
        outputs = bench.rows([file for manifest in rows for file in manifest.outputs])
        levels = bench.rows([file for level in rows[-1].levels for file in level.groups]) if rows else []
        return {
            "states": bench.seen().states,
            "outputs": Counter((output["group"], output["id"], json.loads(output["output"])) for output in outputs),
            "rejected": Counter(
                (rejection["group"], rejection["reason"], rejection["detail"]) for rejection in rejected
            ),
            "errors": {level["group"]: level["error"].splitlines()[-1] for level in levels if level["error"]},
        }


@contextmanager
def shops(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[list[Shop]]:
    kinds = ("memory", "sqlite", "postgres")
    created = [Shop(kind, tmp_path / f"{kind}.db", lambda: request.getfixturevalue("postgres_url")) for kind in kinds]
    try:
        yield created
    finally:
        for shop in created:
            shop.__exit__()


EVERY = [
    *(row(text, 1, f"g{index}") for index, text in enumerate(HOSTILE.values())),
    *(row("ids", index + 1, text) for index, text in enumerate(text for text in HOSTILE.values())),
    *(row("texts", index + 1, f"t{index}", text) for index, text in enumerate(HOSTILE.values())),
    *(row(f"raises {name}", 1, "x", **{"raise": name}) for name in HOSTILE),
    *(row(f"raises {name}", 2, "y") for name in HOSTILE),
    row("well", 1, "w"),
]
"""Each text as the group, as the id, as another text of a message, and as that of an error."""
CARRIED = [message for message in EVERY if all(is_utf8(text) for text in message.values() if isinstance(text, str))]
"""Those that a queue or Spark can carry at all."""


@pytest.mark.thorough
@pytest.mark.parametrize("order", [Gapless("r"), Arrival()], ids=["gapless", "arrival"])
def test_hostile_messages_have_the_same_result_in_every_engine(
    request: pytest.FixtureRequest, tmp_path: Any, order: Any
) -> None:
    pipeline = hostile(order)
    rule = of_replay(stepwise(pipeline, CARRIED))
    groups = {text for text in HOSTILE.values() if is_name(text)}
    assert groups <= rule["states"].keys()
    assert {"", "a\0b", HOSTILE["a megabyte"]}.isdisjoint(rule["states"])
    assert len(rule["errors"]) == len(HOSTILE)
    assert rule["errors"]["raises half a surrogate pair"] == "ValueError: caf\\udce9.txt"
    assert rule["errors"]["raises a NUL"] == "inturn.core.errors.Retryable: a\\x00b"
    for group, _, detail in rule["rejected"]:
        assert len(group) <= limits.ID_LENGTH
        assert len(detail) < 1_000
    assert of_kernel(pipeline, CARRIED) == of_replay(pipeline.replay(CARRIED))
    with shops(request, tmp_path) as created:
        for shop in created:
            shop.queue.send_many([draft(message) for message in CARRIED])
            shop.work(pipeline, concurrency=1)
            assert of_worker(shop, pipeline) == rule, shop.store


def test_the_replay_rejects_messages_that_no_queue_accepts() -> None:
    result = hostile().replay(EVERY)
    assert result.counts.balanced
    assert result.counts.rejected["invalid"] == sum(not _fits(message) for message in EVERY)
    assert sum(len(result.states[group]) for group in ("well",)) == 1


def _fits(message: Row) -> bool:
    return is_name(message["g"]) and is_name(message["id"]) and is_utf8(message["text"])


@given(rows=st.lists(st.builds(row, TEXTS, st.integers(1, 3), TEXTS | st.none(), TEXTS), max_size=5))
@settings(max_examples=40)
def _by_chance(shop: Shop, rows: list[Row]) -> None:
    pipeline = hostile()
    rows = [
        json.loads(json.dumps(content)) for content in rows
    ]  # two halves that are escaped one after the other are one
    result = stepwise(pipeline, rows)
    assert result.counts.balanced
    for rejection in result.rejected:
        storable(f"{rejection.group}{rejection.detail}").encode()
        assert rejection.reason != "invalid" or not (
            is_name(rejection.message["g"])
            and is_name("i" if rejection.message["id"] is None else rejection.message["id"])
            and is_utf8(rejection.message["text"])
        )
    carried = [content for content in rows if all(is_utf8(text) for text in content.values() if isinstance(text, str))]
    assert of_kernel(pipeline, carried) == of_replay(pipeline.replay(carried))
    bodies = [draft(json.dumps(content)) for content in rows]  # where UTF-8 cannot hold it, JSON has an escape
    shop.queue.send_many(bodies)
    counts = shop.work(pipeline).counts
    assert counts.balanced
    assert counts.received == len(rows)
    assert counts.rejected.get("invalid", 0) == sum(rejection.reason == "invalid" for rejection in result.rejected)


@pytest.mark.thorough
def test_random_hostile_texts_have_the_same_result_as_the_replay() -> None:
    with Shop("memory") as shop:
        _by_chance(shop)


def test_a_delivery_that_fails_with_any_error_text_is_retried(request: pytest.FixtureRequest, tmp_path: Any) -> None:
    remaining = list(HOSTILE)

    def deliver(output: Any, _effect_id: str) -> None:
        if failing:
            raise OSError(HOSTILE[failing.pop()])

    with shops(request, tmp_path) as created:
        for shop in created:
            failing = list(remaining)
            shop.queue.send(row("a", 1, "i", "text"))
            shop.work(hostile(), deliver=deliver, retry=Retry(1, "0 milliseconds"))
            assert failing == []
            assert not shop.ask(lambda store, number: store.pending_deliveries(number, ["a"], 1))


def test_an_error_text_with_surrogate_escapes_does_not_end_the_worker(
    request: pytest.FixtureRequest, tmp_path: Any
) -> None:
    def read(_state: Row, message: Row) -> tuple[Row, list[Any]]:
        raise ValueError("no file " + os.fsdecode(b"caf\xe9.txt"))

    pipeline = Pipeline(name="ledger", group="g", order=Gapless("r"), handler=read)
    with shops(request, tmp_path) as created:
        for shop in created:
            shop.queue.send({"g": "a", "r": 1})
            shop.work(pipeline)
            ((record,), _, _) = shop.ask(lambda store, number: (store.list_groups(number, "", 10), 0, 0))
            assert "caf\\udce9.txt" in str(timeline_of(pipeline, record).error)


@pytest.mark.parametrize("name", sorted(NO_NAMES))
def test_on_invalid_fail_names_the_invalid_message_in_encodable_text(name: str) -> None:
    pipeline = Pipeline(name="ledger", group="g", order=Gapless("r"), handler=keep, on_invalid="fail")
    with pytest.raises(InvalidMessage) as caught:
        pipeline.replay([{"g": HOSTILE[name], "r": 1}])
    str(caught.value).encode()
