"""An address that is written in another way than inturn's makes no file, and its password is told to nobody."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

import inturn
from inturn.cli import app
from inturn.core.errors import InputError
from inturn.spark.source.messages import names_queue
from inturn.spark.source.options import queue_location

TOLD = "write postgresql://me@db"


def ran(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    return " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize(
    "target",
    [
        "host=127.0.0.1 port=1 dbname=shop user=me password=xqjzwk",
        "password=xqjzwk",
        " dbname = shop password = 'xqj zwk'",
        "service=shop password=xqjzwk",
        "HOST=127.0.0.1 Password=xqjzwk",
        "sslpassword=xqjzwk host=127.0.0.1",
        "postgresql:/me:xqjzwk@127.0.0.1/shop",
        "postgresql:me:xqjzwk@127.0.0.1/shop",
        "postgres:/me:xqjzwk@127.0.0.1/shop",
        "PostgreSQL://me:xqjzwk@127.0.0.1:1/shop",
        "postgresql+psycopg://me:xqjzwk@127.0.0.1:1/shop",
        "jdbc:postgresql://127.0.0.1:1/shop?password=xqjzwk",
    ],
)
def test_a_misspelt_database_url_creates_no_file_and_is_not_shown(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is it told, since a password may be anywhere in it."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=TOLD) as refused:
        inturn.open(target)
    outputs = [str(refused.value)]
    outputs += [ran("queue", "list", target), ran("keys", "list", target), ran("serve", "--db", target)]
    outputs += [
        ran("queue", "create", f"{target}#q"),
        ran("send", f"{target}#q", "x"),
        ran("explain", f"{target}#p", "g"),
    ]
    outputs += [ran("parked", "list", target), ran("groups", f"{target}#q"), ran("receive", f"{target}#q")]
    with pytest.raises(InputError, match=TOLD):
        queue_location({"path": target, "queue": "q"})
    with pytest.raises(InputError, match=TOLD):
        names_queue(target)
    for output in outputs:
        assert TOLD in " ".join(output.split()).replace("│ ", ""), output
        assert "xqj" not in output, output
    assert not list(tmp_path.iterdir())


def test_database_file_names_like_a_url_are_accepted_as_paths(tmp_path: Path) -> None:
    inturn.open(tmp_path / "host=a").close()
    inturn.open(f"{tmp_path}/postgres:").close()
    assert {file.name for file in tmp_path.iterdir()} == {"host=a", "postgres:"}
