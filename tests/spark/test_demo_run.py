"""The demo from end to end: real flights, a real Spark, and no aircraft wrong."""

import json

import pytest

pytest.importorskip("matplotlib", reason="the demo's picture is drawn with matplotlib, from the extra [demo]")

from inturn.demo import run
from inturn.demo.result import DISTINCT, INTURN, NAIVE

pytestmark = pytest.mark.spark


def test_the_demo_puts_every_aircraft_right_where_the_last_write_does_not(spark, tmp_path, capsys):
    run.main(tmp_path / "demo", json=True, spark=spark)
    shown = json.loads(capsys.readouterr().out)
    assert shown["good"]
    wrong = {name: counts["aircraft"] for name, counts in shown["wrong"].items()}
    assert wrong[NAIVE] > wrong[DISTINCT] > wrong[INTURN] == 0
    first, second = shown["steps"]
    assert first["held"] == second["released"] > 0 == second["held"]
    assert shown["waiting"] > 0
    assert second["rejected"]["conflict"] == 1
    received = first["received"] + second["received"]
    assert received == shown["messages"]
    for step in (first, second):
        went = step["applied"] + step["duplicate"] + step["stale"] + step["held"] + sum(step["rejected"].values())
        assert step["received"] + step["released"] == went
    assert shown["outputs"] == shown["landings"]
    for name in (run.PICTURE, run.PAGE, run.FIRST, run.SECOND, run.STORE):
        assert (tmp_path / "demo" / name).exists()
    assert spark.range(1).count() == 1, "the caller's session is left running"


def test_a_demo_that_is_killed_in_the_middle_comes_to_the_same(spark, tmp_path, capsys):
    run.main(tmp_path / "demo", json=True, spark=spark, crash=True)
    shown = json.loads(capsys.readouterr().out)
    assert shown["good"]
    assert shown["wrong"][INTURN]["aircraft"] == 0
    assert len(shown["steps"]) == 6
    assert sum(step["received"] for step in shown["steps"]) == shown["messages"]
    assert shown["outputs"] == shown["landings"]
