"""Every command over hostile data: none crashes, none commands the terminal, and JSON gives all of it back."""

import contextlib
import csv
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from click.testing import Result
from rich.console import Console
from typer.testing import CliRunner

import inturn
from audit_reports import full
from hostile import HOSTILE, NO_NAMES
from inturn.cli import app
from inturn.cli import run as run_command
from inturn.cli.audit import show
from inturn.cli.output import plain_console, print_json
from inturn.core.pipeline.journal import Counts
from inturn.queue import Queue, QueueSettings
from inturn.spark.audit.report import (
    ConsumerCost,
    FaultKind,
    GapSummary,
    GroupSizes,
    LogColumns,
    ProposedGrade,
    RevisionGap,
)
from inturn.spark.columns.hashing import group_hash
from inturn.spark.driver.step import Report
from kernel_harness import Bench

NAMES = [text for name, text in HOSTILE.items() if name not in NO_NAMES]
QUEUE, READER = "[/x] [bold]q :boom:", "[/r] [red]"
FOLDER = "we[i]rd \x1b[31m"
COPY = "[bold] \x1b.db"
NO_DATA = {
    "version": "it prints versions",
    "lab": "hostile groups are in tests/cli/test_lab_command.py",
    "demo": "its data is its own",
    "serve": "its log is tested in tests/sqs/test_security.py",
    "console": "its pages are attacked in tests/console",
    "run": "needs Spark; what it prints is tested below",
    "audit": "needs Spark; what it prints is tested below",
    "forget": "it removes data: tests/erasure",
}
"""Commands that are not run here, and why."""
LEDGER = """
from hostile import HOSTILE
from inturn import Gapless, Pipeline

def keep(state, message):
    if message.get("raise") is not None:
        raise ValueError(HOSTILE[message["raise"]])
    return {"text": message["text"]}, [message["text"]]

ledger = Pipeline(name="[/p] [bold]", group="g", order=Gapless("r"), id="id", handler=keep)
"""
SOURCES = r"""
[[sources]]
kind = "folder"
name = "[/s] [bold]"
queue = "shop.db#[/ingested]"
path = "[drop] \u001b"
mapping = { group = "body.g", id = "body.id" }
"""
APP = """
def refuse(message):
    raise ValueError(message.body)
"""


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that commands change."""
    return _filled(tmp_path_factory.mktemp("changed") / FOLDER)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that nothing changes."""
    return _filled(tmp_path_factory.mktemp("whole") / FOLDER)


@pytest.fixture
def folder(whole: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(whole)
    return whole


def _filled(root: Path) -> Path:
    """Fill a folder with a queue and two stores full of hostile texts, one of a worker and one as Spark writes it."""
    from inturn.definitions import load

    root.mkdir()
    with contextlib.chdir(root):
        Path("ledger.py").write_text(LEDGER)
        Path("app.py").write_text(APP)
        pipeline = load("ledger.py:ledger")
        with inturn.open("shop.db", durable=False) as db:
            db.queue("[/dead]")
            _fill(db.queue(QUEUE, QueueSettings(dead_letter="[/dead]", max_receives=5)), db.queue("[/dead]"))
            db.queue("consumed").send_many([inturn.queue.draft(text, group=text) for text in NAMES])
            work = db.queue("work")
            messages = [*_messages()]
            work.send_many([inturn.queue.draft(message) for message in messages])
            work.send({"g": "a\0b", "r": 1, "text": "x"})
            inturn.work(pipeline, work, until="empty")
        schema = pa.schema({name: pa.string() for name in ("g", "id", "text", "raise")} | {"r": pa.int64()})
        bench = Bench(pipeline, schema, root=root / "store")
        bench.hash_of = group_hash  # type: ignore[method-assign]
        bench.step([*messages, {"g": "a\0b", "r": 1, "id": "i", "text": "x", "raise": None}])
        strange = Path("store/decisions/new/[/x] \x1b.json")
        strange.parent.mkdir(parents=True, exist_ok=True)
        strange.write_text('{"[/y]": "\\ud800"}')
        Path("lines.jsonl").write_text("\n".join(json.dumps(message) for message in messages[:10]))
        Path("[drop] \x1b").mkdir()
        Path("[drop] \x1b/[f] \x1b.jsonl").write_text("\n".join([*map(json.dumps, messages[:40]), "[/x] \x1b"]))
        Path("ingest.toml").write_text(SOURCES)
    return root


def _fill(queue: Queue, dead: Queue) -> None:
    for index, text in enumerate(NAMES):
        queue.send({"text": text}, group=text, dedup_id=f"{index}{text}"[:1_000], attributes={"a": text})
        queue.send(text, group=text)
    for text in HOSTILE.values():
        dead.send("x")
        (message,) = dead.receive()
        message.reject(text, to=dead.name)
    for text in NAMES[::2]:
        queue.park(text, f"parked: {text}")
    queue.reader(READER).read(1)


def _messages() -> Iterator[dict[str, Any]]:
    for index, text in enumerate(NAMES):
        yield {"g": text, "r": 1, "id": f"{index}", "text": text, "raise": None}
        yield {"g": text, "r": 3, "id": text, "text": text, "raise": None}
    for name in HOSTILE:
        yield {"g": f"raises {name}", "r": 1, "id": "i", "text": "x", "raise": name}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def harmless(text: str) -> None:
    """Nothing in it commands a terminal; and no line of it is endless, but for bodies, which are shown whole."""
    assert not re.search(r"[^\n\x20-\x7e\xa0-\uffff\U00010000-\U0003ffff]", text), ascii(text)[:2_000]
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u2028\u2029\ufeff]", text)
    text.encode()


AT, PLACES = f"shop.db#{QUEUE}", ["shop.db#[/p] [bold]", "store"]
GROUPS = [*NAMES, "caf\udce9", "", "nobody"]
DRY = ("--dry-run", "--pipeline", "ledger.py:ledger", "--sample", 50)
PATTERNS = [("--group", "[[]*"), ("--group", "\x1b*", "--error", "[/x]*"), ("--error", "*"), ("--all",), ()]
EXPLAINED = [*GROUPS[::2], "nobody", "", "a\\x00b", *map("raises {}".format, list(HOSTILE)[::2])]
CASES: dict[str, list[tuple[object, ...]]] = {
    "queue create": [("shop.db#[/new]",), (AT,), ("shop.db#\x1b",)],
    "queue list": [("shop.db",), ("[/none].db",)],
    "queue configure": [(AT, "retention_s=null"), (AT, "[/none]=1"), ("shop.db#[/none]", "max_depth=1")],
    "queue show": [(AT,), ("shop.db#[/none]",)],
    "queue purge": [("shop.db#[/new]", "--yes")],
    "queue delete": [("shop.db#[/new]", "--yes")],
    "queue park": [(AT, group, group) for group in GROUPS],
    "queue resume": [(AT, group) for group in GROUPS],
    "groups": [(AT,), (AT, *NAMES), *((AT, group) for group in GROUPS)],
    "redrive": [("shop.db#[/dead]",), ("shop.db#[/dead]", "--to", "[/none]")],
    "send": [(AT, "x", "--group", group, "--dedup-id", group) for group in GROUPS],
    "receive": [(AT, "--max-messages", 500, "--keep"), ("shop.db#[/dead]", "--max-messages", 500)],
    "peek": [(AT, "--limit", 500), ("shop.db#[/dead]", "--limit", 500)],
    "ack": [(AT, "[/x]"), (AT, "1:1")],
    "nack": [(AT, "[/x]"), (AT, "1:1")],
    "states": [
        (place, *more) for place in PLACES for more in ((), ("--limit", 500), *(("--group", g) for g in GROUPS))
    ],
    "outputs": [(place, *more) for place in PLACES for more in ((), ("--limit", 500), ("--group", NAMES[0]))],
    "rejected": [(place, *more) for place in PLACES for more in ((), ("--limit", 500), ("--group", NAMES[0]))],
    "pipelines": [("shop.db",), (AT,), ("[/none].db",)],
    "parked list": [(place,) for place in PLACES],
    "parked show": [(place, group) for place in PLACES for group in (*GROUPS, "raises closing markup")],
    "explain": [(place, name) for place in PLACES for name in EXPLAINED],
    **{
        f"parked {verb}": [
            *((place, group, "--by", "[/by]", "--why", group) for place in PLACES for group in GROUPS[::3]),
            *((place, *GROUPS[:-2], *more, "--why", "[/x]") for place in PLACES for more in ((), DRY)),
            *((place, *globs, *more, "--why", "\x1b") for place in PLACES for globs in PATTERNS for more in (DRY, ())),
        ]
        for verb in ("skip", "resume", "give-up")
    },
    "parked drop": [
        *((place, "raises markup", "--why", "\x1b[/x]", "--wait-s", 0) for place in PLACES),
        *((place, *globs, *more, "--why", "[/x]") for place in PLACES for globs in PATTERNS for more in (DRY, ())),
    ],
    "parked replace": [
        (place, "raises closing markup", "--content", content, "--wait-s", 0)
        for place in PLACES
        for content in ('{"text": "[/x]\\u001b"}', '{"text": "\\ud800"}', "[/x]", '{"[/x]": 1}', '{"[/y]": 1}')
    ]
    + [(place, "raises markup", "--content", '{"text": "[/x]"}', "--wait-s", 0, *DRY) for place in PLACES],
    "upgrade": [(place, *more) for place in PLACES for more in ((), (*GROUPS[::3], "--wait-s", 0), (*GROUPS, *DRY))],
    "parked tidy": [("store",), ("store",)],
    "parked redeliver": [(place, *names) for place in PLACES for names in (("--all",), GROUPS, ("a\\x00b",), ())],
    "backup": [("shop.db", COPY), ("shop.db", COPY), ("[/none].db", "x.db")],
    "restore": [(COPY, "[red]\x1b.db", "--replace"), (COPY, "[red]\x1b.db"), ("[/none].db", "x.db")],
    "publish": [("store",), ("store", "--json"), ("shop.db",)],
    "vacuum": [("store",), ("store", "--older-than", "0 seconds"), ("store", "--older-than", "[/x]"), ("shop.db",)],
    "check": [
        ("ledger.py:ledger", "--from", "lines.jsonl", "--engines", "replay,worker"),
        ("[/x].py:x", "--from", "y"),
    ],
    "ingest check": [("ingest.toml",), ("ingest.toml", "--limit", 100), ("lines.jsonl",), ("[/none].toml",)],
    "ingest run": [("ingest.toml", "--until-caught-up"), ("ingest.toml", "--only", "[/none]"), ("lines.jsonl",)],
    "ingest status": [("shop.db",), ("shop.db#[/none]",), ("[/none].db",)],
    "ingest rejected": [("shop.db#[/s] [bold]",), ("shop.db#[/none]",), ("shop.db",)],
    "ingest moved": [("shop.db#[/s] [bold]",), ("shop.db#[/none]",), ("shop.db",)],
    "ingest accept": [("shop.db#[/s] [bold]",), ("shop.db#[/s] [bold]", "--group", "\x1b[/x]"), ("shop.db",)],
    "ingest resend": [
        ("shop.db#[/s] [bold]", "ingest.toml", "--all", "--dry-run"),
        ("shop.db#[/s] [bold]", "ingest.toml", "--all"),
        ("shop.db#[/none]\x1b", "ingest.toml", "--partition", "\x1b"),
        ("shop.db#[/s] [bold]", "[/none]\x1b.toml", "--all"),
    ],
    "ingest purge": [
        ("shop.db#[/s] [bold]", "--all", "--dry-run"),
        ("shop.db#[/s] [bold]", "--partition", "[/x]\x1b", "--yes"),
        ("shop.db#[/none]\x1b", "--all"),
    ],
    "ingest pause": [("shop.db#[/s] [bold]",), ("shop.db#[/none]", "--partition", "\x1b")],
    "ingest resume": [("shop.db#[/s] [bold]",), ("shop.db#[/s] [bold]", "--partition", "\x1b")],
    "ingest seek": [("shop.db#[/s] [bold]", "start"), ("shop.db#[/s] [bold]", "[/x]")],
    "keys add": [("shop.db", "[/x]"), ("shop.db", "\x1b")],
    "keys list": [("shop.db",)],
    "keys remove": [("shop.db", "[/x]\x1b")],
    "keys reseal": [("shop.db", "--sealing-key-file", "[/none]\x1b"), ("shop.db",)],
    "work": [
        ("ledger.py:ledger", "--queue", "shop.db#work", "--until-empty"),
        ("ledger.py:ledger", "--queue", "shop.db#[/none]"),
        ("[/x].py:\x1b", "--queue", AT),
    ],
    "consume": [
        ("app.py:refuse", "--queue", "shop.db#consumed", "--retries", 0, "--until-empty"),
        ("app.py:refuse", "--queue", "shop.db#[/none]\x1b"),
        ("[/x].py:\x1b", "--queue", AT),
        ("app.py:refuse", "--queue", AT, "--rate-limit", "[/x]\x1b"),
    ],
}
"""What each command is given, in an order in which they may come."""
INGEST = ["ingest", "run", "ingest.toml", "--until-caught-up"]
BEFORE = {
    f"ingest {verb}": INGEST for verb in ("rejected", "resend", "purge", "moved", "accept", "pause", "resume", "seek")
}
BEFORE |= {f"queue {verb}": ["queue", "create", "shop.db#[/new]"] for verb in ("purge", "delete")}
BEFORE |= {"restore": ["backup", "shop.db", COPY]}
"""What has to be done before a command has something to do."""
FAIL = {"ack", "backup", "nack", "queue delete", "keys add", "keys list", "keys remove", "parked skip", "parked resume"}
FAIL |= {"consume"}  # it leaves parked groups
FAIL |= {"keys reseal", "publish"}  # deltalake takes no path with control characters
"""Commands that refuse the first of these; all others must take it."""


def commands(command: Any = None, name: str = "") -> Iterator[str]:
    """The names of all commands there are."""
    command = typer.main.get_command(app) if command is None else command
    if not hasattr(command, "commands"):
        yield name
        return
    for part, inner in command.commands.items():
        yield from commands(inner, f"{name} {part}".strip())


def test_every_command_has_a_hostile_data_case() -> None:
    assert set(commands()) == CASES.keys() | NO_DATA.keys()


@pytest.mark.parametrize("as_json", [False, True], ids=["for people", "for programs"])
@pytest.mark.parametrize("name", CASES)
def test_commands_escape_control_characters_in_data(
    changed: Path, name: str, as_json: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(changed)
    monkeypatch.setenv("COLUMNS", "200")
    run(*BEFORE.get(name, ["version"]))  # another process may have run it
    for number, arguments in enumerate(CASES[name]):
        waits = ("--wait-s", 0) if name.startswith("parked ") and "--why" in arguments else ()
        ran = run(*name.split(), *arguments, *waits, *(["--json"] if as_json else []))
        assert ran.exception is None or isinstance(ran.exception, SystemExit), (arguments, ran.exception)
        assert ran.exit_code in (0, 1, 2), arguments
        assert number or ran.exit_code == 0 or name in FAIL, ran.stderr
        harmless(ran.stderr)
        assert "Error: " not in ran.stderr or re.match(r"\w*(Error|Expired|Queue|Mismatch|Refused)\b", ran.stderr)
        assert not re.match(r"(UnicodeEncodeError|MarkupError|ValueError|TypeError|KeyError)", ran.stderr), ran.stderr
        harmless(ran.stdout)
        if as_json and ran.exit_code == 0:
            assert all(isinstance(json.loads(line), dict | list) for line in ran.stdout.splitlines())


def test_json_output_round_trips_hostile_data(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place in PLACES:
        parked = json.loads(run("parked", "list", place, "--json").stdout)
        assert {row["group"] for row in parked} >= set(NAMES)
    print_json(HOSTILE)
    printed = capsys.readouterr().out
    harmless(printed)
    assert json.loads(printed) == HOSTILE


@pytest.mark.parametrize("place", PLACES)
def test_results_round_trip_hostile_data_in_each_format(folder: Path, place: str) -> None:
    states = [json.loads(line) for line in run("states", place, "--json").stdout.splitlines()]
    assert {row["group"]: row["state"] for row in states if row["group"] in NAMES} == {
        name: {"text": name} for name in NAMES
    }
    assert run("states", place, "--to", "states.csv").exit_code == 0
    with Path("states.csv").open(newline="", encoding="utf-8") as file:
        assert [(row["group"], json.loads(row["state"])) for row in csv.DictReader(file)] == [
            (row["group"], row["state"]) for row in states
        ]
    assert run("states", place, "--to", "states.parquet").exit_code == 0
    assert [(row["group"], json.loads(row["state"])) for row in pq.read_table("states.parquet").to_pylist()] == [
        (row["group"], row["state"]) for row in states
    ]
    assert run("states", place, "--to", "states.jsonl").exit_code == 0
    assert [json.loads(line) for line in Path("states.jsonl").read_text().splitlines()] == states
    outputs = [json.loads(line) for line in run("outputs", place, "--json").stdout.splitlines()]
    assert {row["output"] for row in outputs} == set(NAMES)


def test_tables_truncate_long_values_and_print_markup_literally(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    for place in PLACES:
        listed = run("parked", "list", place).stdout
        assert len(listed) < 100_000
        assert "[/x]" in listed
        assert "[bold red]x[/]" in listed
        assert ":boom:" in listed
        assert "\\x1b]0;owned\\x07" in listed
        assert "caf\\udce9.txt" in listed


@pytest.mark.parametrize("place", PLACES)
def test_explain_describes_a_group_whose_messages_were_all_rejected(folder: Path, place: str) -> None:
    explanation = run("explain", place, "a\\x00b").stdout
    assert explanation.startswith("Group a\\x00b has no state: its only message was rejected, 1 as invalid. The last ")
    assert "with a NUL at index 1" in explanation
    document = json.loads(run("explain", place, "a\\x00b", "--json").stdout)
    assert (document["status"], document["reasons"], document["reason"]) == ("rejected", {"invalid": 1}, "invalid")
    assert run("explain", place, "nobody").exit_code == 1


def shown(function: Any) -> str:
    out = StringIO()
    function(Console(file=out, markup=False, emoji=False, highlight=False, width=200))
    return out.getvalue()


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_reports_escape_hostile_names(text: str) -> None:
    gaps = GapSummary(1, 1, 0, 0, None, text, [RevisionGap(text, 0, 3, 5, 4, None, open=False)])
    report = replace(
        full(),
        source=text,
        arrived=text,
        keys=LogColumns(text, text, id=text, ignore=(text,)),
        samples={FaultKind.LATE: [text]},
        gaps=gaps,
        sizes=GroupSizes(2, [(text, 3)], 0.5, [], [ConsumerCost(16, 1, 1.5)]),
        columns=[replace(full().columns[0], name=text, grade=text, verdict=text)],
        grade=ProposedGrade(text, [text], text, [text]),
        files={"page": text},
    )
    if len(text) < 10_000:
        report = replace(
            report, sizes=GroupSizes(2, [(text, 3)], 0.5, [], [replace(full().sizes.consumers[0], consumers=16)])
        )  # type: ignore[union-attr]
        harmless(shown(lambda console: show(report, console)))
    step = Report(text, text, 1, Counts(received=1, rejected={text: 1}), 0.5)
    harmless(shown(lambda console: console.print(run_command._report(step))))


def test_the_plain_console_prints_markup_literally(capsys: pytest.CaptureFixture[str]) -> None:
    plain_console().print("[/x] :boom:")
    assert capsys.readouterr().out == "[/x] :boom:\n"
