"""The demo's pure parts: the real data as messages, the bad network, the comparison, the picture and the page."""

import datetime as dt
import json
import re
from collections import Counter
from dataclasses import replace

import pytest

pytest.importorskip("pyarrow", reason="the demo's data are read with pyarrow, from the extra [demo]")
pytest.importorskip("matplotlib", reason="the demo's picture is drawn with matplotlib, from the extra [demo]")

from inturn.core.errors import SetupError
from inturn.core.fold import Counts
from inturn.demo import delivery, flights, naive, page, picture, run
from inturn.demo.pipeline import aircraft
from inturn.demo.result import DISTINCT, INTURN, NAIVE, Example, Knot, Result, choose_knot

WHEN = dt.datetime(2013, 1, 1, 12, tzinfo=dt.UTC)
RIGHT = naive.Answer("LAX", 1, 300, 0)


@pytest.fixture(scope="module")
def legs():
    return flights.read_legs()


@pytest.fixture(scope="module")
def sent(legs):
    return delivery.deliver(flights.events(legs), flights.strays(legs))


def result(**changes):
    steps = [
        Counts(received=5, applied=2, duplicate=1, held=1, rejected={"invalid": 1}),
        Counts(received=1, released=1, applied=2),
    ]
    wrong = {name: naive.Wrong(0, 0, 0, 0, 0) for name in (NAIVE, DISTINCT, INTURN)}
    truth = flights.Truth("LAX", 1, 300)
    example = Example("N1", truth, dict.fromkeys(wrong, RIGHT))
    knot = Knot("N1", ["left JFK for LAX, 1 Jan", "landed LAX, 1 Jan"], [2, 1, 2])
    made = Result(6, 1, 1, 1, 1, "N1", 1, steps, 1, 1, wrong, knot, [example])
    return replace(made, **changes)


def test_every_flight_is_there_with_what_became_of_it(legs):
    # Known from the data themselves: flights, nameless ones, and diverted ones that never came or came untimed.
    assert len(legs) == 12_208
    assert sum(leg.tail is None for leg in legs) == 24
    assert sum(leg.departed is not None and leg.landed is None for leg in legs) == 8
    assert sum(leg.landed is not None and leg.minutes is None for leg in legs) == 33


def test_times_are_utc_whatever_zone_the_airport_is_in(legs):
    first = next(leg for leg in legs if (leg.flight, leg.dest, leg.scheduled.day) == ("UA1545", "IAH", 1))
    # 5:17 in New York and 8:30 in Houston, as published.
    assert first.departed == dt.datetime(2013, 1, 1, 10, 17, tzinfo=dt.UTC)
    assert first.landed == dt.datetime(2013, 1, 1, 14, 30, tzinfo=dt.UTC)


def test_a_landing_is_never_sooner_than_the_minutes_in_the_air_allow(legs):
    timed = [leg for leg in legs if leg.landed is not None and leg.minutes is not None]
    assert all(leg.landed - leg.departed >= dt.timedelta(minutes=leg.minutes) for leg in timed)


def test_revisions_have_no_holes_and_a_landing_follows_its_departure(legs):
    last = {}
    for event in flights.events(legs):
        before = last.get(event.tail)
        assert event.revision == (before.revision + 1 if before else 1)
        if event.type == "landed":
            assert (before.type, before.flight) == ("departed", event.flight)
        last[event.tail] = event


def test_a_delivery_is_the_same_every_time_and_another_with_another_seed(legs, sent):
    events, strays = flights.events(legs), flights.strays(legs)
    assert delivery.deliver(events, strays) == sent
    assert delivery.deliver(events, strays, seed=1).rows != sent.rows


def test_the_network_loses_nothing_and_contradicts_itself_once(legs, sent):
    assert [row["offset"] for row in sent.rows] == list(range(len(sent.rows)))
    bodies = Counter(tuple(value for name, value in row.items() if name != "offset") for row in sent.rows)
    events = len(flights.events(legs)) + len(flights.strays(legs))
    assert len(bodies) == events + 1
    assert sum(bodies.values()) == events + 1 + sent.twice
    places = Counter((body[0], body[1]) for body in bodies if body[0] is not None)
    assert [place for place, contents in places.items() if contents > 1] == [(sent.contradicted, places_of(sent))]


def places_of(sent):
    return next(row["revision"] for row in sent.second if (row["tail"], row["dest"]) == (sent.contradicted, "BOS"))


def test_the_pure_timeline_over_the_delivery_is_the_truth(legs, sent):
    first = aircraft.replay(sent.first)
    second = aircraft.replay(sent.second, after=first)
    truth = flights.truth(legs)
    answers = {
        tail: naive.Answer(state.location, state.legs, state.minutes, state.phantoms)
        for tail, state in second.states.items()
    }
    assert naive.compare(truth, answers) == naive.Wrong(0, 0, 0, 0, 0)
    assert first.counts.held == second.counts.released > sent.missing
    assert second.counts.rejected["conflict"] == 1
    assert first.counts.rejected["invalid"] + second.counts.rejected["invalid"] >= 24
    assert second.counts.held == 0
    assert len(second.outputs) == sum(true.legs for true in truth.values())


def test_the_handler_sees_a_phantom_if_it_is_fed_out_of_turn():
    def event(kind):
        return flights.FlightEvent("N1", 1, kind, "AA1", "JFK", "LAX", WHEN, WHEN, 300)

    state, outputs = aircraft.handler(aircraft.state(), event("landed"))
    assert (state.phantoms, state.location, len(outputs)) == (1, "LAX", 1)
    state, outputs = aircraft.handler(state, event("departed"))
    assert (state.location, outputs) == ("JFK → LAX", [])


@pytest.mark.parametrize(
    ("answers", "wrong"),
    [
        ({"N1": RIGHT}, naive.Wrong(0, 0, 0, 0, 0)),
        ({"N1": replace(RIGHT, location="BOS")}, naive.Wrong(1, 1, 0, 0, 0)),
        ({"N1": replace(RIGHT, legs=2, minutes=600)}, naive.Wrong(1, 0, 1, 1, 0)),
        ({"N1": replace(RIGHT, phantoms=1)}, naive.Wrong(1, 0, 0, 0, 1)),
        ({}, naive.Wrong(1, 1, 1, 1, 1)),
        ({"N1": RIGHT, "N2": RIGHT}, naive.Wrong(1, 1, 1, 1, 0)),
    ],
)
def test_an_aircraft_is_wrong_once_however_many_of_its_answers_are(answers, wrong):
    assert naive.compare({"N1": flights.Truth("LAX", 1, 300)}, answers) == wrong


def test_the_most_tangled_aircraft_is_chosen(legs, sent):
    chosen = choose_knot(sent.rows, list(flights.truth(legs)))
    first = list(dict.fromkeys(chosen.arrivals))
    assert first != sorted(first)
    assert len(chosen.arrivals) > len(chosen.labels)
    assert sorted(first) == list(range(1, len(chosen.labels) + 1))


def test_a_result_is_good_only_if_everything_is_right():
    assert result().good
    assert not result(outputs=2).good
    assert not result(steps=[Counts(received=1)]).good
    assert not result(wrong={INTURN: naive.Wrong(1, 1, 0, 0, 0)}).good


def test_the_page_carries_its_picture_and_needs_no_network(tmp_path):
    picture.draw(result(), tmp_path / "demo.png")
    png = (tmp_path / "demo.png").read_bytes()
    assert png.startswith(b"\x89PNG")
    html = page.render(result(), png, ["inturn run this"])
    assert "data:image/png;base64," in html
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//|url\(""", html)
    assert "1 without a tail number" in html
    assert "inturn run this" in html


def test_a_second_run_deletes_what_the_first_made_and_nothing_else(tmp_path):
    run.prepare(tmp_path)
    (tmp_path / run.STORE).mkdir()
    (tmp_path / run.FIRST).touch()
    (tmp_path / "mine.txt").touch()
    run.prepare(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [run.MARK, "mine.txt"]


def test_files_that_no_demo_made_are_left_alone(tmp_path):
    (tmp_path / run.STORE).mkdir()
    with pytest.raises(SetupError, match="store is there already"):
        run.prepare(tmp_path)
    assert (tmp_path / run.STORE).is_dir()


def test_a_result_is_one_json_document():
    shown = json.loads(json.dumps(result().as_json()))
    assert shown["examples"][0]["truth"] == {"location": "LAX", "legs": 1, "minutes": 300}
    assert shown["good"] is True


@pytest.mark.parametrize("name", run.NEEDED)
def test_what_is_missing_is_said_before_the_work_begins(name, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "find_spec", lambda asked: None if asked == name else object())
    with pytest.raises(SetupError, match=rf"needs {name}; .*pip install 'inturn\[demo\]'"):
        run.main(tmp_path)
    assert list(tmp_path.iterdir()) == []
