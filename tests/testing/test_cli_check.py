"""`inturn check`: a table and an exit code; what differs and what is not deterministic is named in words."""

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from inturn.cli import app
from inturn.worker import group_task
from waiting import PROGRAM_S

PIPELINES = """
import datetime as dt
import itertools
from dataclasses import dataclass
from inturn import Arrival, Gapless, Monotone, Pipeline

@dataclass(frozen=True)
class Paid:
    account: str
    revision: int
    amount: float
    day: dt.date = dt.date(2024, 1, 1)

def post(state, paid):
    if paid.amount < 0:
        raise ValueError("below zero")
    return {"balance": state.get("balance", 0) + paid.amount}, [paid]

calls = itertools.count()
ledger = Pipeline(name="ledger", group="account", order=Gapless("revision"), message=Paid, handler=post)
came = Pipeline(name="came", group="account", order=Monotone("revision"), message=Paid, handler=post, arrival="n")
timed = Pipeline(name="timed", group="account", order=Arrival(), id="account", arrival="day",
                 message=Paid, handler=post)
plain = Pipeline(name="p", group="account", order=Gapless("revision"), handler=lambda s, m: ({"m": m["amount"]}, []))
counting = Pipeline(name="c", group="account", order=Gapless("revision"), handler=lambda s, m: (s, [next(calls)]))
"""
LINES = [
    '{"account": "a", "revision": 2, "amount": 2.5, "n": 7, "day": "2024-02-01"}',
    '{"account": "a", "revision": 1, "amount": "4", "n": 3}',
    '{"account": "a", "revision": 1, "amount": "4", "n": 9}',
    "",
    '{"account": "b", "revision": 1, "amount": -1, "n": 1, "more": true}',
    '{"account": "b", "revision": 3}',
    '{"account": "b",',
    "[1]",
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "ledger.py").write_text(PIPELINES)
    (tmp_path / "in.jsonl").write_text("\n".join(LINES) + "\n")
    path = list(sys.path)
    yield tmp_path
    sys.path[:] = path
    sys.modules.pop("ledger", None)


def check(name: str, *arguments: Any, source: str = "in.jsonl") -> Result:
    words = ["check", f"ledger.py:{name}", "--from", source, "--engines", "worker"]
    return CliRunner().invoke(app, [*words, "--max-rejected", "50%", *map(str, arguments)])


def document(name: str, *arguments: Any, **more: Any) -> Any:
    ran = check(name, "--json", *arguments, **more)
    assert ran.stderr == ""
    return json.loads(ran.stdout)


def test_check_prints_a_table_of_engines_and_the_unreadable_lines(here: Path) -> None:
    ran = check("ledger")
    assert ran.exit_code == 0, ran.stderr
    table, *sections = ran.stdout.replace("\nUnreadable", "\f").replace("\nAll engines", "\f").split("\f")
    rows = [line.split() for line in table.splitlines()]
    assert rows[0] == ["ledger:", "in.jsonl,", "seed", "0"]
    assert " ".join(rows[1]) == "engine groups messages applied duplicate held rejected outputs s agrees"
    assert rows[2][:8] + rows[2][9:] == ["replay", "2", "4", "2", "1", "1", "0", "2", "reference"]
    assert rows[3][:8] + rows[3][9:] == ["worker", "2", "4", "2", "1", "1", "0", "2", "yes"]
    assert all(len(line) <= 80 for line in table.splitlines())
    reason = "in.jsonl, line 6: amount is null, expected float"
    assert sections[0].strip() == f"as Paid: 3 messages, such as {reason}"
    assert sections[1].strip() == ("agree: 2 groups, 2 messages applied, 2 outputs. The handler is deterministic.")


def test_check_prints_the_result_as_json(here: Path) -> None:
    report = document("ledger", "--seed", 3)
    assert (report["agree"], report["seed"], report["notes"], report["differences"]) == (True, 3, [], [])
    assert report["engines"]["worker"].pop("seconds") >= 0
    assert report["engines"]["worker"] == {
        "agrees": True,
        "groups": 2,
        "received": 4,
        "applied": 2,
        "duplicate_or_stale": 1,
        "held": 1,
        "rejected": {},
        "outputs": 2,
    }
    assert [line.split(": ")[0] for line in report["left_out"]] == [
        "in.jsonl, line 6",
        "in.jsonl, line 7",
        "in.jsonl, line 8 is not a JSON object",
    ]


def test_check_names_a_difference_and_exits_with_1(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = group_task.OutputRecord
    monkeypatch.setattr(group_task, "OutputRecord", lambda *row: original(*row)._replace(effect_id="e"))
    ran = check("ledger")
    assert ran.exit_code == 1
    assert [line.split()[-1] for line in ran.stdout.splitlines()[2:4]] == ["reference", "NO"]
    assert "worker differs in 1 group:\n  group 'a' has different outputs: replay has {'" in ran.stdout
    assert "worker has {'e': {'account': 'a', 'revision': 2, 'amount': 2.5, 'day': '2024-02-01'}}" in ran.stdout
    report = document("ledger")
    assert (report["agree"], report["engines"]["worker"]["agrees"]) == (False, False)
    assert [
        (difference["engine"], difference["group"], difference["what"]) for difference in report["differences"]
    ] == [("worker", "a", "outputs")]


def test_check_names_a_nondeterministic_handler_and_exits_with_1(here: Path) -> None:
    ran = check("counting")
    assert ran.exit_code == 1
    assert ran.stdout.startswith("The handler of pipeline 'c' is not deterministic: after the message {'account'")
    report = document("counting")
    assert not report["agree"]
    assert "one run returned the state {} and the outputs [0], and another" in report["not_deterministic"]


def test_check_reads_a_folder_with_plain_and_gzip_files(here: Path) -> None:
    folder = here / "events"
    folder.mkdir()
    (folder / "b.jsonl").write_text(LINES[0] + "\n")
    with gzip.open(folder / "a.jsonl.gz", "wt") as file:
        file.write(LINES[1] + "\n" + LINES[2] + "\n")
    (folder / "_SUCCESS").write_text("")
    report = document("plain", source="events")
    assert report["engines"]["worker"]["received"] == 3
    assert document("plain", "--limit", 2, source="events")["engines"]["worker"]["received"] == 2


def test_check_sorts_by_the_arrival_column_even_if_the_message_type_lacks_it(here: Path) -> None:
    """In the order of the file, revision 1 would be stale both times."""
    assert document("came")["engines"]["replay"]["applied"] == 2


@pytest.mark.thorough
def test_check_disorder_adds_duplicates_and_reorders_messages(here: Path) -> None:
    messages = [json.dumps({"account": "a", "revision": n, "amount": n, "n": n}) for n in range(1, 200)]
    (here / "many.jsonl").write_text("\n".join(messages))
    clean, bad = (document("came", *more, source="many.jsonl")["engines"]["worker"] for more in ([], ["--disorder"]))
    assert (clean["received"], clean["applied"]) == (199, 199)
    assert bad["received"] > 199 > bad["applied"]


def test_check_fails_above_max_rejected_with_the_most_common_reasons(here: Path) -> None:
    rows = [{"account": "a", "revision": str(n) if n > 2 else n, "amount": n} for n in range(1, 11)]
    rows.append({"account": "a", "revision": None, "amount": 1})
    (here / "texts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    ran = check("plain", "--max-rejected", "10%", source="texts.jsonl")
    assert ran.exit_code == 1
    printed = " ".join(ran.stdout.split())
    assert "9 messages (82%) rejected; --max-rejected is 10%:" in printed
    assert "8 times: invalid: revision is … of type str; expected a … integer" in printed
    assert "1 time: invalid: revision is null" in printed
    assert check("plain", "--max-rejected", "90%", source="texts.jsonl").exit_code == 0
    assert document("plain", "--max-rejected", "1", source="texts.jsonl")["rejections"]["messages"] == 9


def test_check_groups_rejection_reasons_across_files(here: Path) -> None:
    (here / "many").mkdir()
    for name in ("may", "june", "july"):
        (here / "many" / f"{name}.jsonl").write_text('{"account": "a", "revision": 1.5, "amount": 1}\n7\n')
    assert document("came", source="many")["rejections"]["commonest"] == [
        ["it is not a valid Paid: Expected `int`, got `float` - at `$.revision`", 3],
        ["is not a JSON object", 3],
    ]


NOT_DONE = {
    "no such engine": (
        ["ledger", "--engines", "worker,flink"],
        1,
        "InputError: --engines is ['worker', 'flink']; expected one or several of",
    ),
    "no such pipeline": (["none"], 1, "PipelineError: no pipeline 'none' in ledger.py; existing pipelines: ledger, "),
    "no messages wanted": (["ledger", "--limit", 0], 2, "Invalid value for '--limit'"),
    "arrival in days": (
        ["timed", "--disorder"],
        1,
        "InputError: --disorder renumbers 'day', the order of arrival, which is",
    ),
}


@pytest.mark.parametrize("case", NOT_DONE)
def test_check_reports_invalid_arguments_without_a_traceback(here: Path, case: str) -> None:
    arguments, code, words = NOT_DONE[case]
    ran = check(*arguments)
    assert (ran.exit_code, ran.stdout) == (code, "")
    assert words in " ".join(ran.stderr.split())
    assert "Traceback" not in ran.stderr


def test_check_with_the_worker_engine_does_not_import_spark(here: Path) -> None:
    """In a process of its own, in which Spark cannot be imported."""
    import subprocess

    program = (
        "import sys; sys.modules['pyspark'] = sys.modules['pyarrow'] = None\n"
        "from inturn.cli import app; app(['check', 'ledger.py:ledger', '--from', 'in.jsonl', '--engines', 'worker',"
        "'--max-rejected', '50%'])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=PROGRAM_S
    )
    assert ran.returncode == 0, ran.stderr
    assert "All engines agree" in ran.stdout
