"""An example prints what it says it prints, and what it is about is true beyond the one case that it shows."""

import ast
import runpy
import textwrap
from collections.abc import Iterator, Sequence
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import inturn
from inturn.ingest import Ingest, MessageMapping, SourceControl
from inturn.testing import source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"


ON_SPARK = [path for path in sorted(EXAMPLES.glob("*.py")) if "SparkSession" in path.read_text()]
PLAIN = [path for path in sorted(EXAMPLES.glob("*.py")) if path not in ON_SPARK]


@pytest.mark.parametrize("path", [*PLAIN, *ON_SPARK], ids=lambda path: path.stem)
def test_an_example_has_fewer_than_60_lines_of_code(path: Path) -> None:
    text = path.read_text()
    code = text.removeprefix(f'"""{ast.get_docstring(ast.parse(text), clean=False)}"""')
    assert sum(bool(line.strip()) for line in code.splitlines()) < 60


def check_output(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = runpy.run_path(str(path), run_name="__main__")
    promised = module["__doc__"].split("It prints:\n", 1)[1]
    assert capsys.readouterr().out == textwrap.dedent(promised).strip() + "\n"


@pytest.mark.parametrize("path", PLAIN, ids=lambda path: path.stem)
def test_an_example_prints_what_its_docstring_says(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_output(path, capsys)


@pytest.mark.spark
@pytest.mark.parametrize("path", ON_SPARK, ids=lambda path: path.stem)
def test_an_example_on_spark_prints_what_its_docstring_says(
    path: Path, spark: "SparkSession", capsys: pytest.CaptureFixture[str]
) -> None:
    assert spark.version  # the example's session is this one
    check_output(path, capsys)


PHANTOM = runpy.run_path(str(EXAMPLES / "phantom_record.py"))
ORDERS, WEBHOOK, DISPATCH = PHANTOM["orders"], PHANTOM["Webhook"], PHANTOM["Dispatch"]


def webhook(name: str, source: str, seconds: float | None, **fields: Any) -> dict[str, Any]:
    import datetime as dt

    noon = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
    moment = None if seconds is None else noon + dt.timedelta(seconds=seconds)
    return {"id": name, "order_id": "1", "source": source, "at": moment, **fields}


def run(webhooks: Sequence[dict[str, Any]], *ends: int) -> Any:
    """Replay them as they come, in one step or cut into several."""
    result = None
    arriving = [{**hook, "offset": offset} for offset, hook in enumerate(webhooks)]
    for first, last in zip((0, *ends), (*ends, len(arriving)), strict=True):
        result = ORDERS.replay(arriving[first:last], after=result)
        assert result.counts.balanced
        assert not result.held
        assert not result.errors
    return result


NEWER = webhook("w2", "warehouse", 20, parcel="P-2")
OLDER = webhook("w1", "warehouse", 10, parcel="P-1")
PAID = webhook("p1", "payments", -1e6, amount=30)
APPROVED = webhook("p2", "payments", 1e6, approved=True)
REFUSED = webhook("p3", "payments", 2e6, approved=False)
NOTHING = {"id": "x", "order_id": "1"}


@pytest.mark.parametrize("first", [NEWER, PAID, APPROVED, NOTHING], ids=lambda hook: hook["id"])
def test_phantom_record_example_creates_the_record_with_any_first_message(first: dict[str, Any]) -> None:
    result = run([first])
    assert list(result.states) == ["1"]
    assert result.counts.applied == 1


@pytest.mark.parametrize("webhooks", list(permutations([NEWER, PAID, APPROVED, NOTHING])), ids=lambda hook: "")
def test_phantom_record_example_emits_one_output_in_any_order_of_arrival(webhooks: Sequence[dict[str, Any]]) -> None:
    doubled = [*webhooks, *webhooks]
    for ends in ([], [1], [4], [1, 2, 3, 4, 5]):
        result = run(doubled, *ends)
        assert [output.output for output in result.outputs] == [DISPATCH("1", 30, "P-2")]
        assert result.outputs[0].id == max(NEWER, PAID, APPROVED, key=webhooks.index)["id"]


def test_phantom_record_example_ignores_an_older_message_of_the_same_source() -> None:
    for pair in ([NEWER, OLDER], [OLDER, NEWER]):
        assert run(pair).states["1"].parcel == "P-2"


@pytest.mark.parametrize("seconds", [-1e6, 0, 15, 1e6])
def test_phantom_record_example_does_not_compare_times_of_two_sources(seconds: float) -> None:
    """Whatever the other's clock says, its word counts from when it came."""
    other = webhook("m1", "market", seconds, parcel="P-9")
    assert run([NEWER, other]).states["1"].parcel == "P-9"
    assert run([other, NEWER]).states["1"].parcel == "P-2"


def test_phantom_record_example_keeps_a_timed_value_over_one_without_a_time() -> None:
    assert run([NEWER, webhook("w3", "warehouse", None, parcel="P-3")]).states["1"].parcel == "P-2"


def test_phantom_record_example_keeps_the_first_approval_decision() -> None:
    for first, second, sent in ((APPROVED, REFUSED, 1), (REFUSED, APPROVED, 0)):
        result = run([first, second, PAID, NEWER])
        assert result.states["1"].approved is first["approved"]
        assert len(result.outputs) == sent


def test_phantom_record_example_emits_no_second_output_for_later_messages() -> None:
    result = run([PAID, APPROVED, OLDER, NEWER, webhook("p9", "payments", 3e6, amount=99)])
    assert [output.output for output in result.outputs] == [DISPATCH("1", 30, "P-1")]
    assert result.states["1"].amount == 99


@given(st.lists(st.sampled_from([NEWER, OLDER, PAID, APPROVED, REFUSED, NOTHING]), max_size=12), st.data())
def test_phantom_record_example_emits_at_most_one_output_for_any_step_boundaries(
    webhooks: list[dict[str, Any]], data: st.DataObject
) -> None:
    ends = sorted(data.draw(st.lists(st.integers(0, len(webhooks)), max_size=4)))
    result, complete = run(webhooks, *ends), run(webhooks)
    assert len(result.outputs) <= 1
    assert (result.states, result.outputs) == (complete.states, complete.outputs)


FEED = runpy.run_path(str(EXAMPLES / "event_feed" / "feed.py"))


def test_event_feed_example_prints_what_its_docstring_says(capsys: pytest.CaptureFixture[str]) -> None:
    check_output(EXAMPLES / "event_feed" / "feed.py", capsys)


@pytest.fixture
def service() -> Iterator[Any]:
    with FEED["Service"]() as service:
        yield service
        service.shutdown()


def feed(service: Any) -> Any:
    return FEED["EventFeed"](f"http://127.0.0.1:{service.server_port}", pause_s=0.01)


@pytest.mark.parametrize("seed", range(1, 6))
def test_event_feed_example_satisfies_the_source_contract(service: Any, seed: int) -> None:
    def produce(numbers: Sequence[int]) -> None:
        for n in numbers:
            service.add(("red", "blue")[n % 2], n=n)

    source(lambda: feed(service), produce, seed=seed, steps=60)


def test_event_feed_example_reports_forgotten_or_renumbered_events(service: Any) -> None:
    mapping = MessageMapping(group="body.account", revision="body.n")
    with inturn.open(":memory:") as db:
        ingest = Ingest(feed(service), db.queue("payments"), mapping, name="feed")
        for n in range(1, 4):
            service.add("red", account="a", n=n)
        assert ingest.run(until="caught up").received == 3
        service.add("red", account="a", n=4)
        service.add("red", account="a", n=5)
        service.first = 5
        assert ingest.run(until="caught up").received == 0
        (partition,) = SourceControl(db, "feed").partitions()
        assert partition.note == "the events after 3 are gone; set a position with seek"
        SourceControl(db, "feed").seek(4)
        assert ingest.run(until="caught up").received == 1
        service.history = "2"
        ingest.run(until="caught up")
        (partition,) = SourceControl(db, "feed").partitions()
        assert "recreated" in str(partition.note)
