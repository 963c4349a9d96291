"""The demo's pure parts: the real data as messages, the bad network, the comparison, the picture and the page."""

import datetime as dt
import io
import json
import re
import signal
import time
from collections import Counter
from dataclasses import replace

import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner

import inturn

pytest.importorskip("pyarrow", reason="the demo's data are read with pyarrow, from the extra [demo]")

from inturn.cli import app
from inturn.core.errors import InturnError, SetupError
from inturn.core.pipeline.journal import Counts
from inturn.demo import console, crash, delivery, flights, naive, page, producer, run
from inturn.demo.engines import Differences, EngineOutcome, differences
from inturn.demo.event_log import EventLog, build_event_log
from inturn.demo.pipeline import aircraft
from inturn.demo.result import DISTINCT, NAIVE, PROCESS, SPARK, DemoResult, Example, Kill, SampleAircraft, choose_sample
from svg_texts import check, parse

WHEN = dt.datetime(2013, 1, 1, 12, tzinfo=dt.UTC)
RIGHT = naive.NaiveAnswer("LAX", 1, 300, 0)


@pytest.fixture(scope="module")
def legs():
    return flights.read_legs()


@pytest.fixture(scope="module")
def sent(legs):
    return delivery.deliver(flights.events(legs), flights.strays(legs))


@pytest.fixture(scope="module")
def rows(sent):
    """All messages as they are due, with their places."""
    posts = sorted((post for posts in sent.producers.values() for post in posts), key=lambda post: post.due_s)
    return [post.body | {"offset": offset} for offset, post in enumerate(posts)]


def result(**changes):
    steps = [
        Counts(received=5, applied=1, duplicate=1, held=2, rejected={"invalid": 1}),
        Counts(received=1, released=1, applied=2),
    ]
    wrong = {name: naive.WrongCounts(0, 0, 0, 0, 0) for name in (NAIVE, DISTINCT, SPARK, PROCESS)}
    truth = flights.Truth("LAX", 1, 300)
    base = DemoResult(
        messages=6,
        aircraft=1,
        producers={"UA": 4, "others": 2},
        late=1,
        twice=1,
        contradicted="N1",
        kill=Kill(2, 1, 1),
        steps=steps,
        process=Counts(received=6, applied=3, duplicate=1, held=1, rejected={"invalid": 1}),
        differences=Differences(0, 0, 0, 0),
        outputs=1,
        landings=1,
        wrong=wrong,
        course=build_event_log(
            1.0, {"UA": [dt.datetime.fromtimestamp(2, dt.UTC)]}, [2.1], [("1970-01-01T00:00:04Z", 1.0)], 3.5
        ),
        sample=SampleAircraft("N1", ["left JFK for LAX, 1 Jan", "landed LAX, 1 Jan"], [2, 1, 2]),
        examples=[Example("N1", truth, dict.fromkeys(wrong, RIGHT))],
        misspelt="N1",
        stopped={SPARK: {"N1": "parked"}, PROCESS: {"N1": "parked"}},
    )
    return replace(base, **changes)


def test_every_flight_of_the_data_is_loaded_with_its_outcome(legs):
    # Known from the data themselves: flights, nameless ones, and diverted ones that never came or came untimed.
    assert len(legs) == 12_208
    assert sum(leg.tail is None for leg in legs) == 24
    assert sum(leg.departed is not None and leg.landed is None for leg in legs) == 8
    assert sum(leg.landed is not None and leg.minutes is None for leg in legs) == 33


def test_flight_times_are_converted_to_utc_from_the_airport_zone(legs):
    first = next(leg for leg in legs if (leg.flight, leg.dest, leg.scheduled.day) == ("UA1545", "IAH", 1))
    # 5:17 in New York and 8:30 in Houston, as published.
    assert first.departed == dt.datetime(2013, 1, 1, 10, 17, tzinfo=dt.UTC)
    assert first.landed == dt.datetime(2013, 1, 1, 14, 30, tzinfo=dt.UTC)


def test_no_landing_is_earlier_than_its_air_time_allows(legs):
    timed = [leg for leg in legs if leg.landed is not None and leg.minutes is not None]
    assert all(leg.landed - leg.departed >= dt.timedelta(minutes=leg.minutes) for leg in timed)


def test_revisions_are_gapless_and_each_landing_follows_its_departure(legs):
    last = {}
    for event in flights.events(legs):
        before = last.get(event.tail)
        assert event.revision == (before.revision + 1 if before else 1)
        if event.type == "landed":
            assert (before.type, before.flight) == ("departed", event.flight)
        last[event.tail] = event


def test_a_delivery_is_determined_by_its_seed(legs, sent):
    events, strays = flights.events(legs), flights.strays(legs)
    assert delivery.deliver(events, strays) == sent
    assert delivery.deliver(events, strays, seed=1).producers != sent.producers


def test_the_simulated_delivery_loses_nothing_and_contains_one_conflict(legs, sent, rows):
    bodies = Counter(tuple(value for name, value in row.items() if name != "offset") for row in rows)
    events = len(flights.events(legs)) + len(flights.strays(legs))
    assert len(bodies) == events + 1
    assert sum(bodies.values()) == events + 1 + sent.twice
    twofold = [row for row in rows if (row["tail"], row["dest"]) == (sent.contradicted, "BOS")]
    places = Counter((body[0], body[1]) for body in bodies if body[0] is not None)
    assert [place for place, contents in places.items() if contents > 1] == [
        (sent.contradicted, twofold[0]["revision"])
    ]


def test_each_aircraft_has_one_producer_that_sends_in_time_order(sent):
    senders = {}
    for name, posts in sent.producers.items():
        times = [post.due_s for post in posts]
        assert times == sorted(times)
        assert 0 <= times[0] <= times[-1] <= delivery.SENDING_S
        for post in posts:
            senders.setdefault(post.body["tail"], set()).add(name)
    senders.pop(None)
    assert all(len(names) == 1 for names in senders.values())
    assert min(Counter(name for (name,) in senders.values()).values()) > 100


@pytest.mark.thorough
def test_the_replay_of_the_delivery_gives_the_true_states(legs, sent, rows):
    half = len(rows) // 2
    first = aircraft.replay(rows[:half])
    second = aircraft.replay(rows[half:], after=first)
    truth = flights.truth(legs)
    answers = {
        tail: naive.NaiveAnswer(state.location, state.legs, state.minutes, state.phantoms)
        for tail, state in second.states.items()
    }
    assert naive.compare(truth, answers) == naive.WrongCounts(0, 0, 0, 0, 0)
    assert first.counts.held == second.counts.released > 0
    assert first.counts.rejected.get("conflict", 0) + second.counts.rejected.get("conflict", 0) == 1
    assert first.counts.rejected["invalid"] + second.counts.rejected["invalid"] >= 24
    assert second.counts.held - (second.counts.released - first.counts.held) == 1, "the misspelt message"
    assert [(group.group, group.status) for group in second.held] == [(sent.misspelt, "failed")]
    assert len(second.outputs) == sum(true.legs for true in truth.values())


def test_a_producer_sends_each_message_once_in_order_and_not_before_its_due_time(sent, tmp_path):
    posts = [producer.Post(post.due_s / 30, post.body) for post in sent.producers["DL"][:500]]
    delivery.write(posts, tmp_path / "DL.jsonl")
    began = time.time()
    with inturn.open(tmp_path / "f.db") as db:
        queue = db.queue("flights")
        producer.send(f"{tmp_path}/f.db#flights", tmp_path / "DL.jsonl", began)
        messages = queue.peek(1_000)
    assert [msgspec.convert(message.body, flights.FlightEvent) for message in messages] == [
        msgspec.convert(post.body, flights.FlightEvent) for post in posts
    ]
    assert {(message.group, message.revision) for message in messages} == {
        (post.body["tail"], post.body["revision"]) for post in posts
    }
    assert {message.attributes["airline"] for message in messages} == {"DL"}
    for message, post in zip(messages, posts, strict=True):
        assert message.sent_at.timestamp() - began > post.due_s - 0.002, "the queue's clock has milliseconds"


class Query:
    """A stream that fails with these errors, one after the other, and then has processed all."""

    def __init__(self, *errors):
        self.errors = list(errors)

    def processAllAvailable(self):  # noqa: N802 - as Spark calls it
        if self.errors:
            raise self.errors.pop()


def test_a_stream_with_a_slow_python_start_is_restarted_once():
    streaming = pytest.importorskip("pyspark.errors").StreamingQueryException
    slow = streaming("Query x terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST")
    new_query = Query()
    assert crash.drain_stream(Query(slow), lambda: new_query) is new_query
    for failing in (Query(streaming("the handler is wrong")), Query(slow)):
        with pytest.raises(streaming):
            crash.drain_stream(failing, lambda: Query(slow))


def test_an_unexpected_process_exit_is_reported_with_its_output(tmp_path):
    with crash.Processes(tmp_path / "log") as processes:
        lost = processes.producer(f"{tmp_path}/no.db#flights", tmp_path / "DL.jsonl", 0)
        with pytest.raises(InturnError, match=r"ended with 1, expected 0(.|\n)*DL\.jsonl"):
            processes.wait_for_end(lost)


def test_demo_processes_are_killed_at_the_end_of_their_context(sent, tmp_path):
    delivery.write(sent.producers["DL"], tmp_path / "DL.jsonl")
    with inturn.open(tmp_path / "f.db") as db:
        db.queue("flights")
    with crash.Processes(tmp_path / "log") as processes:
        slow = processes.producer(f"{tmp_path}/f.db#flights", tmp_path / "DL.jsonl", time.time() + 3600)
        assert slow.poll() is None
    assert slow.returncode == -signal.SIGKILL


def test_the_handler_counts_a_phantom_for_a_landing_without_a_departure():
    def event(kind):
        return flights.FlightEvent("N1", 1, kind, "AA1", "JFK", "LAX", WHEN, WHEN, 300)

    state, outputs = aircraft.handler(aircraft.state(), event("landed"))
    assert (state.phantoms, state.location, len(outputs)) == (1, "LAX", 1)
    state, outputs = aircraft.handler(state, event("departed"))
    assert (state.location, outputs) == ("JFK → LAX", [])


@pytest.mark.parametrize(
    ("answers", "wrong"),
    [
        ({"N1": RIGHT}, naive.WrongCounts(0, 0, 0, 0, 0)),
        ({"N1": replace(RIGHT, location="BOS")}, naive.WrongCounts(1, 1, 0, 0, 0)),
        ({"N1": replace(RIGHT, legs=2, minutes=600)}, naive.WrongCounts(1, 0, 1, 1, 0)),
        ({"N1": replace(RIGHT, phantoms=1)}, naive.WrongCounts(1, 0, 0, 0, 1)),
        ({}, naive.WrongCounts(1, 1, 1, 1, 1)),
        ({"N1": RIGHT, "N2": RIGHT}, naive.WrongCounts(1, 1, 1, 1, 0)),
    ],
)
def test_an_aircraft_with_several_wrong_values_counts_once(answers, wrong):
    assert naive.compare({"N1": flights.Truth("LAX", 1, 300)}, answers) == wrong


def test_the_example_aircraft_has_reordered_and_duplicated_messages(legs, rows):
    events = [msgspec.convert(row, flights.FlightEvent) for row in rows if row["tail"]]
    chosen = choose_sample(events, list(flights.truth(legs)))
    first = list(dict.fromkeys(chosen.arrivals))
    assert first != sorted(first)
    assert len(chosen.arrivals) > len(chosen.labels)
    assert sorted(first) == list(range(1, len(chosen.labels) + 1))


@pytest.mark.parametrize(
    "changes",
    [
        {"outputs": 2},
        {"messages": 7},
        {"steps": [Counts(received=1)]},
        {"steps": [Counts(received=6, applied=4, held=2)]},
        {"process": Counts(received=6, applied=5)},
        {"process": Counts(received=6, applied=4, duplicate=1, rejected={"invalid": 1})},
        {"differences": Differences(0, 0, 0, 1)},
        {"wrong": result().wrong | {SPARK: naive.WrongCounts(1, 1, 0, 0, 0)}},
        {"wrong": result().wrong | {PROCESS: naive.WrongCounts(1, 0, 0, 0, 1)}},
        {"stopped": {SPARK: {"N1": "parked"}, PROCESS: {}}},
        {"stopped": {name: {"N1": "parked", "N2": "waiting"} for name in (SPARK, PROCESS)}},
        {"stopped": {name: {"N1": "waiting"} for name in (SPARK, PROCESS)}},
        {"misspelt": "N2"},
    ],
)
def test_a_demo_result_is_good_only_if_all_comparisons_agree(changes):
    assert result().good
    assert not result(**changes).good


@pytest.mark.thorough
def test_a_wrong_demo_result_is_reported_with_exit_code_1(tmp_path, monkeypatch):
    results = {"right": result(), "wrong": result(outputs=2, differences=Differences(0, 1, 0, 0))}
    says = {"right": "of Spark and of the worker are equal", "wrong": "The results are wrong"}
    for name, code in (("right", 0), ("wrong", 1)):
        monkeypatch.setattr(run, "play", lambda *_, name=name: results[name])  # what takes a minute
        ran = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / name)])
        assert (ran.exit_code, says[name] in ran.stdout) == (code, True), ran.output
        assert f"{tmp_path / name}/demo.html" in ran.stdout


def test_the_demo_tables_fit_into_a_terminal_of_80_columns():
    terminal = Console(width=80, record=True, file=io.StringIO())
    big = Counts(received=25_533, released=1_066, applied=24_302, duplicate=1_206, held=1_066, rejected={"invalid": 25})
    console.show(terminal, result(steps=[big] * 7, process=big), {}, [], "inturn console")
    output = terminal.export_text()
    assert "…" not in output
    assert {"rejected", "25", "dropDuplicates", "process"} <= set(output.split())


def test_differences_between_engines_are_counted_by_kind():
    counts = Counts(received=3, applied=1, duplicate=1, rejected={"invalid": 1})
    outcome = EngineOutcome(
        {"N1": ("open", 1), "N2": ("open", 2)}, {"e1": 1, "e2": 2}, Counter([(None, "invalid")]), counts
    )
    same = replace(outcome, counts=Counts(received=3, released=2, applied=1, stale=1, held=2, rejected={"invalid": 1}))
    assert differences(outcome, same) == Differences(0, 0, 0, 0)
    other = EngineOutcome({"N1": ("open", 2)}, {"e1": 2, "e3": 2}, Counter({("N1", "conflict"): 2}), Counts(received=4))
    assert differences(outcome, other) == Differences(2, 3, 3, 3)


def test_the_course_has_times_relative_to_the_start():
    course = result().course
    assert (course.producers, course.process) == ({"UA": [0, 0, 1]}, [0, 0, 1])
    assert (course.steps, course.killed_s) == ([(2.0, 3.0)], 2.5)


def test_picture_texts_neither_overlap_nor_leave_the_picture():
    counts = Counts(received=125_533, released=1_110, applied=124_302, duplicate=11_206, held=1_110)
    counts.rejected = {"invalid": 24, "conflict": 1}
    wrong = {NAIVE: naive.WrongCounts(949, 304, 522, 522, 477), DISTINCT: naive.WrongCounts(487, 148, 1, 1, 477)}
    sample = SampleAircraft(
        "N307JB", [f"left EWR for MC{place}, {place} Jan" for place in range(14)], [*range(1, 13), 9, 13, 14]
    )
    lanes = {name: [3, 1, 4] * 20 for name in ("UA", "B6", "EV", "DL", "others")}
    events = EventLog(0.5, lanes, [2] * 60, [(1, 11.0), (18, 29), (45, 55.5), (56.2, 57)], 30.1)
    changes = {
        "steps": [counts],
        "process": counts,
        "wrong": result().wrong | wrong,
        "sample": sample,
        "course": events,
    }
    assert check(page.draw_result(result(messages=125_533, aircraft=12_631, late=1_155, twice=1_206, **changes)))


def test_the_demo_page_embeds_its_picture_and_needs_no_network():
    svg = page.draw_result(result())
    texts = {element.text for element in parse(svg).iter()}
    for words in ("In order of arrival: 0 aircraft wrong.", "In order: 0.", "copy", "landed LAX, 1 Jan", "from UA"):
        assert words in texts
    html = page.render(result(), svg, ["inturn run this"])
    assert svg in html
    assert "messages of aircraft N1 as they happened" in html
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//|url\(""", html)
    assert "1 without a tail number" in html
    assert "inturn run this" in html


def test_a_second_demo_run_deletes_only_the_files_of_the_first(tmp_path):
    run.prepare(tmp_path)
    (tmp_path / run.STORE).mkdir()
    (tmp_path / run.DATABASE).touch()
    (tmp_path / "mine.txt").touch()
    run.prepare(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [run.MARK, "mine.txt", run.PRODUCERS]


def test_the_demo_refuses_a_directory_with_files_it_did_not_create(tmp_path):
    (tmp_path / run.STORE).mkdir()
    with pytest.raises(SetupError, match=r"store exists .*--out"):
        run.prepare(tmp_path)
    assert (tmp_path / run.STORE).is_dir()


def test_a_demo_result_is_one_json_document():
    shown = json.loads(json.dumps(result().as_json()))
    assert shown["examples"][0]["truth"] == {"location": "LAX", "legs": 1, "minutes": 300}
    assert shown["good"] is True


@pytest.mark.parametrize("name", run.NEEDED)
def test_a_missing_demo_dependency_is_reported_before_the_run(name, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "find_spec", lambda module: None if module == name else object())
    with pytest.raises(SetupError, match=rf"needs {name}; .*pip install 'inturn\[demo\]'"):
        run.main(tmp_path)
    assert list(tmp_path.iterdir()) == []
