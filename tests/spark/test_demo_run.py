"""The demo from end to end: real flights, a real Spark, and no aircraft wrong."""

import json

import pytest

pytest.importorskip("jinja2", reason="the demo's page is filled in with jinja2, from the extra [demo]")

from inturn.demo import crash, run
from inturn.demo.result import DISTINCT, NAIVE, PROCESS, SPARK

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_the_demo_is_right_for_every_aircraft_on_killed_spark_and_in_process(spark, tmp_path, capsys):
    run.main(tmp_path / "demo", json=True, spark=spark)
    shown = json.loads(capsys.readouterr().out)
    assert shown["good"]
    wrong = {name: counts["aircraft"] for name, counts in shown["wrong"].items()}
    assert wrong == {NAIVE: 949, DISTINCT: 487, SPARK: 0, PROCESS: 0}, "the docs say so"
    assert sum(shown["producers"].values()) == shown["messages"] == 25_533
    assert shown["outputs"] == shown["landings"] == 12_118
    assert shown["differences"] == {"states": 0, "outputs": 0, "rejected": 0, "counts": 0}
    steps = shown["steps"]
    assert shown["kill"]["step"] == crash.KILLED_STEP <= len(steps)
    assert shown["kill"]["again"] == steps[crash.KILLED_STEP - 1]["received"] > 0
    died, ends = shown["course"]["killed_s"], [end for _, end in shown["course"]["steps"]]
    assert ends[crash.KILLED_STEP - 2] < died < ends[crash.KILLED_STEP - 1]
    for step in (*steps, shown["process"]):
        went = step["applied"] + step["duplicate"] + step["stale"] + step["held"] + sum(step["rejected"].values())
        assert step["received"] + step["released"] == went
    assert shown["process"]["rejected"] == {"invalid": 24, "conflict": 1}
    for name in (run.PICTURE, run.PAGE, run.DATABASE, run.STORE):
        assert (tmp_path / "demo" / name).exists()
    assert spark.range(1).count() == 1, "the caller's session is left running"
