"""A position that cannot be one of the source is refused where a person gives it, whatever the source."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.testing import CliRunner

import inturn
from ingest.scripted import Log, Scripted
from inturn.cli import app
from inturn.core.errors import InputError
from inturn.database import Database
from inturn.ingest import (
    FolderSource,
    Ingest,
    KafkaSource,
    MessageMapping,
    OutboxSource,
    RabbitSource,
    SourceControl,
    SqsSource,
)
from inturn.ingest.positions import InvalidJson, PositionForm

NUMBERS = {"number": [0, 7, 2**63 - 1], "transaction": [["742", "18"], ("742", "x")], "none": [], "": ["p", [1], -1, 0]}
WRONG: list[Any] = [-1, "abc", 1.5, True, 2**63, [1, 2], ["742"], ["-1", "1"], ["x", "1"], [str(2**64), "1"], {}]


def known(db: Database, form: PositionForm) -> SourceControl:
    """A source whose partitions were claimed once; nobody can reach it any more."""
    source = Scripted(Log(p=[], q=[]))
    source.position_form = form
    Ingest(source, db.queue("q"), MessageMapping(), name="bank").run(until="caught up")
    return SourceControl(db, "bank")


@pytest.mark.parametrize("form", get_args(PositionForm))
def test_a_seek_to_a_position_of_another_form_is_refused(db: Database, form: PositionForm) -> None:
    control = known(db, form)
    assert {partition.position_form for partition in control.partitions()} == {form}
    for position in NUMBERS[form]:
        control.seek(position, "p")
        assert control.partitions()[0].position == json.dumps(position).replace(" ", "")
    control.seek(None)
    before = control.partitions()
    odd = [float("nan"), float("inf"), InvalidJson("x")]
    for position in [*WRONG, *odd] if form else odd:
        with pytest.raises(InputError) as error:
            control.seek(position)
        assert repr(position) in str(error.value)
        assert "start" in str(error.value)
    assert control.partitions() == before


def test_each_source_declares_its_position_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    assert FolderSource(tmp_path).position_form == KafkaSource("127.0.0.1:9", "t").position_form == "number"
    assert OutboxSource("postgresql://127.0.0.1:9/x", "t").position_form == "transaction"
    assert RabbitSource("amqp://127.0.0.1:9", "q").position_form == "none"
    assert SqsSource("http://127.0.0.1:9/1/q").position_form == "none"


@pytest.mark.parametrize("position", ["-1", "abc", '"abc"', "1.5", "NaN", "[1]", "1" + "0" * 30, "-x"])
def test_the_seek_command_names_the_invalid_position_and_the_expected_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, position: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("1.jsonl").write_text("1\n")
    with inturn.open("shop.db") as db:
        mapping = MessageMapping(group="partition")
        Ingest(FolderSource("."), db.queue("q"), mapping, name="bank").run(until="caught up")
        before = SourceControl(db, "bank").partitions()
    result = CliRunner().invoke(app, ["ingest", "seek", "shop.db#bank", position])
    assert result.exit_code != 0
    text = " ".join(result.output.replace("│", " ").split())
    assert position.strip('"').lower()[:20] in text.lower()
    assert "whole number" in text
    assert "start" in text
    with inturn.open("shop.db") as db:
        assert SourceControl(db, "bank").partitions() == before
    assert CliRunner().invoke(app, ["ingest", "seek", "shop.db#bank", "0", "--partition", "1.jsonl"]).exit_code == 0
