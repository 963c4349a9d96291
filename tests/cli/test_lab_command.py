"""`inturn lab`: every kind of input in, a table, JSON and a page out; errors that name the value and the mend."""

import csv
import datetime as dt
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from typer.testing import CliRunner

import inturn
from hostile import HOSTILE, NO_NAMES
from inturn.cli import app
from inturn.lab import LabResult, scenario
from inturn.lab.recommend import Recommendation
from inturn.lab.sweep import SweepResult

LEDGER = """
from inturn import Gapless, Pipeline

def apply(state, message):
    balance = state.get("balance", 0)
    if message["amount"] < 0 and balance + message["amount"] < 0:
        return {**state, "declined": state.get("declined", 0) + 1}, []
    return {**state, "balance": balance + message["amount"]}, []

def is_deposit(body):
    return body["amount"] > 0

ledger = Pipeline(name="ledger", group="account", order=Gapless("revision"), handler=apply)
"""
BEGAN = dt.datetime(2026, 11, 25, tzinfo=dt.UTC)
COLUMNS = ("--group", "account", "--order", "revision")
FEW = ("--design", "competing-classic", "--design", "inturn")


def rows(count: int = 200, accounts: int = 5) -> list[dict[str, Any]]:
    """Bookings: deposits, which take long, and withdrawals that need the one before."""
    bookings: list[dict[str, Any]] = []
    for number in range(count):
        revision = 1 + number // accounts
        bookings.append(
            {
                "account": f"{number % accounts:03}",
                "revision": revision,
                "amount": 10 if revision % 2 else -10,
                "received_at": BEGAN + dt.timedelta(microseconds=200 * number),
                "took_ms": 3.0 if revision % 2 else 0.5,
            }
        )
    return bookings


def as_json(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value.isoformat() if isinstance(value, dt.datetime) else value for name, value in row.items()}


def write_json(path: Path) -> None:
    path.write_text("".join(json.dumps(as_json(row)) + "\n" for row in rows()))


def write_gzip(path: Path) -> None:
    path.write_bytes(gzip.compress("".join(json.dumps(as_json(row)) + "\n" for row in rows()).encode()))


def write_csv(path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows(1)[0]))
        writer.writeheader()
        writer.writerows(map(as_json, rows()))


def write_parquet(path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(rows()), path)


def write_folder(path: Path) -> None:
    path.mkdir()
    pq.write_table(pa.Table.from_pylist(rows()[:100]), path / "part-0.parquet")
    pq.write_table(pa.Table.from_pylist(rows()[100:]), path / "part-1.parquet")
    (path / "_SUCCESS").touch()


FILES = {
    "log.jsonl": write_json,
    "log.jsonl.gz": write_gzip,
    "log.csv": write_csv,
    "log.parquet": write_parquet,
    "folder": write_folder,
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    (tmp_path / "ledger.py").write_text(LEDGER)


def lab(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["lab", *map(str, arguments)])


def said(*arguments: object) -> dict[str, Any]:
    ran = lab(*arguments, "--json")
    assert ran.exit_code == 0, ran.stderr
    document: dict[str, Any] = json.loads(ran.stdout)
    return document


def refused(*arguments: object) -> str:
    ran = lab(*arguments)
    assert ran.exit_code == 1, ran.stdout
    assert "Traceback" not in ran.stderr
    return " ".join(ran.stderr.split())


@pytest.mark.parametrize("name", FILES)
def test_every_file_format_gives_the_same_result_and_a_page(name: str, tmp_path: Path) -> None:
    FILES[name](tmp_path / name)
    arguments = (*COLUMNS, "--arrival", "received_at", "--duration", "took_ms", "--pipeline", "ledger.py:ledger", *FEW)
    study = said(name, *arguments, "--out", "lab.html")
    figures = study["result"]["input"]
    assert (figures["messages"], figures["groups"], figures["judged_by"]) == (200, 5, "handler")
    assert (figures["span_us"], figures["work_us"]) == (39_800, 350_000)
    assert figures["hottest_group"] == "000"  # text, and not 0
    wrong = {design["design"]: design["wrong_groups"] for design in study["result"]["designs"]}
    assert wrong["inturn"] == 0
    assert wrong["competing-classic"] > 0
    assert study["page"] == "lab.html"
    assert name in Path("lab.html").read_text()


def test_lab_reads_a_queue_without_changing_it() -> None:
    with inturn.open("shop.db") as db:
        queue = db.queue("payments")
        for row in rows(60):
            body = {"account": row["account"], "revision": row["revision"], "amount": row["amount"]}
            queue.send(body, group=row["account"], revision=row["revision"])
        before = queue.depth()
    study = said("shop.db#payments", "--pipeline", "ledger.py:ledger", "--out", "lab.html", *FEW)
    assert (study["result"]["input"]["messages"], study["result"]["input"]["groups"]) == (60, 5)
    assert study["left_out"] == {"rows": 0, "reasons": []}
    with inturn.open("shop.db") as db:
        assert db.queue("payments").depth() == before
    assert "Files" not in refused("shop.db", *FEW)
    assert "shop.db#payments" in refused("shop.db", *FEW)
    assert "--group is only for files" in refused("shop.db#payments", "--group", "account")


@pytest.mark.parametrize("name", ["transfers", "auctions", "hotel", "webhooks", "hot-group"])
def test_every_scenario_writes_a_page(name: str) -> None:
    ran = lab("--scenario", name, "--out", f"pages/{name}.html")
    assert ran.exit_code == 0, ran.stderr
    assert ran.stdout.strip().endswith(f"page pages/{name}.html")
    chosen = scenario(name)
    page = Path(f"pages/{name}.html").read_text()
    assert chosen.title in page
    assert chosen.description[:40].replace("'", "&#39;") in page


def test_lab_json_converts_to_the_library_types() -> None:
    import msgspec

    study = said("--scenario", "auctions", "--sweep", "consumers=1,2", "--seeds", 1, "--recommend", *FEW)
    assert list(study) == ["result", "sweeps", "recommendation", "left_out", "page"]
    result = msgspec.convert(study["result"], LabResult)
    assert [design.design for design in result.designs] == ["competing-classic", "inturn"]
    assert msgspec.convert(study["sweeps"], list[SweepResult])[0].values == [1, 2]
    assert msgspec.convert(study["recommendation"], Recommendation).design == "inturn"
    assert study["page"] is None


def test_the_same_seed_gives_the_same_output() -> None:
    options = ("--scenario", "transfers", "--failures", "5%", "--seed", 3, "--json")
    assert lab(*options).stdout == lab(*options).stdout
    assert lab(*options).stdout != lab("--scenario", "transfers", "--failures", "5%", "--seed", 4, "--json").stdout


def test_lab_options_set_the_simulation_parameters() -> None:
    options = {
        "consumers": (3, 3),
        "prefetch": (7, 7),
        "batch": (5, 5),
        "partitions": (6, 6),
        "failures": ("2%", 0.02),
        "poison": ("0.01", 0.01),
        "crashes": ("1%", 0.01),
        "restart": ("2s", 2.0),
        "visibility": ("1 minute", 60.0),
        "max-attempts": (4, 4),
        "backoff": ("20ms", 0.02),
        "reorder": ("3s", 3.0),
        "dedup": ("5min", 300.0),
        "seed": (9, 9),
    }
    arguments = [text for name, (value, _) in options.items() for text in (f"--{name}", value)]
    knobs = said("--scenario", "auctions", *arguments, "--handler", "20ms~0.5", *FEW)["result"]["knobs"]
    names = {"failures": "failure_rate", "poison": "poison_rate", "crashes": "crash_rate"}
    names |= {name: f"{name}_s" for name in ("restart", "visibility", "backoff", "reorder", "dedup")}
    for name, (_, value) in options.items():
        assert knobs[names.get(name, name).replace("-", "_")] == pytest.approx(value), name
    assert knobs["handler"] == {"type": "log-normal", "median_ms": 20.0, "sigma": 0.5}


def test_recommend_names_the_cheapest_design_and_why_others_fail() -> None:
    write_json(Path("log.jsonl"))
    ran = lab("log.jsonl", *COLUMNS, "--duration", "took_ms", "--failures", "5%", "--recommend", *FEW)
    assert ran.exit_code == 0, ran.stderr
    assert "Recommended: inturn. " in ran.stdout
    assert "  not competing-classic: " in ran.stdout
    ran = lab("log.jsonl", *COLUMNS, "--recommend", "--p99", "1us", *FEW)
    assert "Nothing to recommend: " in ran.stdout


def test_split_removes_commuting_messages_from_the_order() -> None:
    write_json(Path("log.jsonl"))
    arguments = ("log.jsonl", *COLUMNS, "--pipeline", "ledger.py:ledger", "--commutes", "ledger.py:is_deposit", *FEW)
    unsplit, split = said(*arguments)["result"]["input"], said(*arguments, "--split")["result"]["input"]
    assert (unsplit["commuting"], unsplit["split"]) == (100, False)
    assert (split["commuting"], split["split"]) == (100, True)


def test_rows_without_a_time_arrive_at_intervals_and_arrival_offsets_sort_them() -> None:
    written = [{"g": "a", "r": revision, "at": offset} for revision, offset in ((1, 30), (2, 10), (3, 20))]
    Path("log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in written))
    arguments = ("log.jsonl", "--group", "g", "--order", "r", "--every", "5ms", "--design", "inturn")
    in_order = said(*arguments)["result"]["input"]
    assert (in_order["span_us"], in_order["late"]) == (10_000, 0)
    sorted_ = said(*arguments, "--arrival", "at")["result"]["input"]
    assert (sorted_["span_us"], sorted_["late"]) == (10_000, 1)


def test_invalid_rows_are_left_out_and_counted() -> None:
    lines = ['{"g": "a", "r": 1}', '{"g": null, "r": 2}', '{"g": "a", "r": "two"}', '{"g": "a", "r": "2"}']
    Path("log.jsonl").write_text("\n".join(lines))
    study = said("log.jsonl", "--group", "g", "--order", "r", *FEW)
    assert study["result"]["input"]["messages"] == 2
    assert study["left_out"]["rows"] == 2
    assert "log.jsonl, line 2: the group is missing" in study["left_out"]["reasons"][0]
    assert "log.jsonl, line 3: the revision is" in study["left_out"]["reasons"][1]
    assert "2 rows left out: log.jsonl, line 2" in lab("log.jsonl", "--group", "g", "--order", "r", *FEW).stdout


def test_a_log_of_one_message_is_simulated() -> None:
    Path("one.jsonl").write_text('{"g": 7, "r": 1}')
    ran = lab("one.jsonl", "--group", "g", "--order", "r", "--out", "one.html", "--recommend")
    assert ran.exit_code == 0, ran.stderr
    assert "designs end with the right states" in ran.stdout
    assert Path("one.html").exists()


def test_hostile_group_names_are_escaped_in_table_json_and_page() -> None:
    names = [text for name, text in HOSTILE.items() if name not in NO_NAMES]
    log = [
        {"g": name, "r": revision, "text": HOSTILE["an escape sequence"]} for name in names for revision in (1, 2, 3)
    ]
    Path("log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in log))
    arguments = ("log.jsonl", "--group", "g", "--order", "r", "--failures", "40%", "--follow", f"{HOSTILE['HTML']}:2")
    ran = lab(*arguments, "--out", "lab.html")
    assert ran.exit_code == 0, ran.stderr
    assert not [character for character in ran.stdout if not character.isprintable() and character != "\n"]
    assert "<script>" not in Path("lab.html").read_text()
    assert "&lt;script&gt;" in Path("lab.html").read_text()
    assert said(*arguments)["result"]["followed"] == [HOSTILE["HTML"], 2]


ERRORS: dict[str, tuple[tuple[object, ...], str]] = {
    "nothing": ((), "expected either a log or a scenario"),
    "both": (("log.jsonl", "--scenario", "hotel"), "expected either a log or a scenario"),
    "no such scenario": (("--scenario", "hotels"), "no scenario 'hotels'; expected one of transfers"),
    "a log's option": (("--scenario", "hotel", "--group", "g"), "omit the options of a log"),
    "no group": (("log.jsonl", "--order", "r"), "--group is missing"),
    "no order": (("log.jsonl", "--group", "g"), "--order is missing"),
    "no such file": (("nothing.jsonl", *COLUMNS), "no file or folder nothing.jsonl"),
    "an unknown ending": (("ledger.py", *COLUMNS), "add --format parquet, json or csv"),
    "an unknown form": (("log.jsonl", *COLUMNS, "--format", "xml"), "--format is 'xml'; expected parquet"),
    "an empty log": (("empty.jsonl", *COLUMNS), "empty.jsonl has no message for the lab: it is empty"),
    "an empty table": (("empty.csv", *COLUMNS), "empty.csv has no message for the lab: it is empty"),
    "no such column": (
        ("log.csv", "--group", "acount", "--order", "revision"),
        "--group is 'acount'; the columns of log.csv are 'account'",
    ),
    "no such field": (("log.jsonl", "--group", "acount", "--order", "revision"), "line 1: the group is missing"),
    "not JSON": (("broken.jsonl", *COLUMNS), "broken.jsonl, line 2 is not JSON"),
    "no object": (("list.jsonl", *COLUMNS), "list.jsonl, line 1 is '[1]'; expected a JSON object on each line"),
    "no Parquet": (("log.csv", *COLUMNS, "--format", "parquet"), "cannot read log.csv as parquet"),
    "a dialect of JSON": (("log.jsonl", *COLUMNS, "--delimiter", ";"), "--delimiter is only for CSV files"),
    "no such design": (("--scenario", "hotel", "--design", "kafka"), "no design 'kafka'; expected one of"),
    "a share": (("--scenario", "hotel", "--failures", "200%"), "--failures is '200%'; expected a share"),
    "a time": (("--scenario", "hotel", "--visibility", "30"), "--visibility is '30'; expected a time with its unit"),
    "a handler": (("--scenario", "hotel", "--handler", "9ms-1ms"), "expected the shorter time first"),
    "consumers": (("--scenario", "hotel", "--consumers", "0"), "consumers is 0; expected 1 or more"),
    "a sweep": (("--scenario", "hotel", "--sweep", "speed=1,2"), "expected KNOB=VALUE,VALUE"),
    "a sweep of one": (("--scenario", "hotel", "--sweep", "consumers=2"), "expected at least two values"),
    "whom to follow": (("--scenario", "hotel", "--follow", "guest-1"), "expected GROUP:REVISION"),
    "nobody to follow": (("--scenario", "hotel", "--follow", "nobody:1"), "'nobody', 1); no message has this group"),
    "no such pipeline": (("log.jsonl", *COLUMNS, "--pipeline", "ledger.py:legder"), "no pipeline 'legder'"),
    "where to write": (("--scenario", "auctions", *FEW, "--out", "."), "--out '.' cannot be written"),
}


@pytest.mark.parametrize("which", ERRORS)
def test_lab_errors_name_the_value_and_the_remedy(which: str) -> None:
    write_json(Path("log.jsonl"))
    write_csv(Path("log.csv"))
    Path("empty.jsonl").touch()
    Path("empty.csv").write_text("account,revision\n")
    Path("broken.jsonl").write_text('{"account": "a", "revision": 1}\n{"account": ')
    Path("list.jsonl").write_text("[1]\n")
    arguments, expected = ERRORS[which]
    assert expected in refused(*arguments)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--delimiter", ";"), "account;revision\n007;1\n007;2\n"),
        (("--quote", "'"), "account,revision\n'0,7',1\n'0,7',2\n"),
        (("--null", "NA"), "account,revision\n007,1\nNA,2\n"),
        (("--encoding", "latin-1"), "account,revision\nMünchen,1\nMünchen,2\n"),
    ],
)
def test_csv_options_read_other_dialects(options: tuple[str, ...], text: str) -> None:
    Path("log.csv").write_text(text, encoding="latin-1")
    study = said("log.csv", *COLUMNS, *options, "--design", "inturn")
    assert study["result"]["input"]["messages"] + study["left_out"]["rows"] == 2
    assert study["result"]["input"]["groups"] == 1


@pytest.mark.slow
def test_lab_simulates_300_000_messages() -> None:
    count, groups = 300_000, 2_000
    table = pa.table(
        {
            "account": [f"acct-{number % groups}" for number in range(count)],
            "revision": [1 + number // groups for number in range(count)],
            "at": [number * 300 for number in range(count)],
        }
    )
    pq.write_table(table, "log.parquet")
    study = said("log.parquet", *COLUMNS, "--failures", "1%", "--out", "lab.html")
    assert study["result"]["input"]["messages"] == count
    assert len(study["result"]["designs"]) >= 15
    assert all(sum(design["dispositions"].values()) == count for design in study["result"]["designs"])
    assert Path("lab.html").stat().st_size < 3_000_000


@pytest.mark.slow
def test_the_flights_scenario_writes_a_page() -> None:
    study = said("--scenario", "flights", "--out", "flights.html")
    wrong = {design["design"]: design["wrong_groups"] for design in study["result"]["designs"]}
    assert wrong["inturn"] == 0
    assert wrong["competing-classic"] > 100
    assert "Flights from New York" in Path("flights.html").read_text()
