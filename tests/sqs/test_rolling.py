"""A newer version of inturn brings the tables up to date while servers of this one are at work.

The newer version is this one with one more migration, in a directory of its own, so it is really another program.
"""

import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from botocore.exceptions import ClientError
from fleet import Postgres, Server, faults, load

import inturn
from inturn.core import limits
from inturn.core.errors import StoreMismatch
from inturn.testing.history import OK, UNKNOWN, figures
from later_formats import ADDED, BROKEN
from waiting import DEADLINE_S, until

pytestmark = pytest.mark.slow

SOURCE = Path(inturn.__file__).parent
MIGRATIONS = SOURCE / "store" / "postgres" / "migrations"
ADDING = """\
alter table inturn_message add column priority smallint not null default 0;
alter table inturn_queue add column owner text;
alter table inturn_hold add column because text;
create table inturn_next (queue bigint primary key);
"""
BREAKING = """\
-- readable_from: {format}
alter table inturn_queue rename column settings to said;
"""


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    cluster = Postgres()
    yield cluster
    cluster.close()


def newer(directory: Path, number: int, migration: str) -> str:
    """Where a version is that has one more migration."""
    place = directory / f"version{number}"
    if not place.exists():
        shutil.copytree(SOURCE, place / "inturn", ignore=shutil.ignore_patterns("__pycache__"))
    migrations = place / "inturn" / "store" / "postgres" / "migrations"
    migrations.mkdir(exist_ok=True)
    (migrations / f"{number:04}.sql").write_text(migration)
    return str(place)


def version(url: str) -> tuple[int, ...]:
    with psycopg.connect(url) as connection:
        rows = connection.execute("select value from inturn_meta where name in ('version', 'readable_from') order by 1")
        return tuple(value for (value,) in rows)


def waits(url: str) -> bool:
    """Whether somebody waits for those who read inturn_meta, as every transaction does."""
    with psycopg.connect(url) as connection:
        sql = (
            "select count(*) from pg_locks where relation = 'inturn_meta'::regclass "
            "and mode = 'AccessExclusiveLock' and not granted"
        )
        return connection.execute(sql).fetchone() == (1,)


def test_servers_are_upgraded_and_downgraded_one_by_one_under_load(postgres: Postgres, tmp_path: Path) -> None:
    url = f"{postgres.url}&{postgres.schema()}"
    later = newer(tmp_path, ADDED, ADDING)
    with ExitStack() as stack:
        servers = [Server(url, tmp_path, name, bounds={}) for name in ("one", "two")]
        for server in servers:
            stack.callback(server.close)
            server.start().up()
        before = version(url)
        queue = servers[0].make()
        with load(servers, queue, tmp_path) as events:
            for server in servers:
                time.sleep(0.5)
                assert server.stop() == 0
                server.start(PYTHONPATH=later).up()
            time.sleep(0.5)
            assert version(url) == (ADDED,) != before
            assert servers[0].stop() == 0
            servers[0].start().up()  # and back: the older one goes on with what the newer has made of it
            time.sleep(0.5)
        assert faults(events) == []
        counts = figures(events)
        assert counts["messages"] > 50
        assert {name.rpartition(" ")[2] for name in counts if name.startswith("send")} <= {OK, UNKNOWN, "unasked"}
        logs = "".join(server.log.read_text() for server in servers)
        assert not re.findall(r'.*"level": ?"(?:error|warning)".*', logs)


def test_a_server_too_old_for_the_schema_refuses_to_work(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TRANSACTION_S", 120)  # it is open until another server has started
    url = f"{postgres.url}&{postgres.schema()}"
    with ExitStack() as stack:
        old, new = (Server(url, tmp_path, name, bounds={}) for name in ("old", "new"))
        for server in (old, new):
            stack.callback(server.close)
        queue = old.start().up().make()
        send = {"QueueUrl": queue, "MessageGroupId": "g"}
        old.client().send_message(**send, MessageBody="kept", MessageDeduplicationId="1")
        later = newer(tmp_path, BROKEN, BREAKING.format(format=BROKEN))
        statements = Path(later, "inturn", "store", "postgres", "queue.sql")
        text = re.sub(r"\bsettings\b", "said", statements.read_text())
        statements.write_text(text)
        database = stack.enter_context(inturn.open(url))
        with database.transaction() as tx:
            tx.execute("select 1")
            new.start(PYTHONPATH=later)
            until(lambda: waits(url), "it changes the tables under an open transaction")
        new.up()
        assert version(url) == (BROKEN, BROKEN)
        with pytest.raises(StoreMismatch, match="update inturn"):
            database.queue("orders.fifo", create=False)
        with pytest.raises(ClientError) as refused:
            old.client().send_message(**send, MessageBody="lost", MessageDeduplicationId="2")
        assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
        with pytest.raises(urllib.error.HTTPError) as unwell:
            urllib.request.urlopen(f"{old.url}/ready", timeout=DEADLINE_S)  # noqa: S310 - of this test
        assert unwell.value.code == 503
        assert "changed by a newer inturn" in old.log.read_text()
        assert "update inturn" in old.log.read_text()
        messages = new.client().receive_message(QueueUrl=queue, MaxNumberOfMessages=10)["Messages"]
        assert [message["Body"] for message in messages] == ["kept"]
        with pytest.raises(StoreMismatch, match=f"which needs a version that knows format {BROKEN}"):
            inturn.open(url)


def test_every_breaking_migration_declares_readable_from() -> None:
    # without an index whoever is older is slower, no more; a primary key is replaced by a longer one
    drop = r"drop\b(?! index| constraint \w+_pkey,\s+add primary key)"
    breaking = re.compile(rf"^\s*({drop}|truncate|alter table .*\b({drop}|rename|type|set not null)\b)", re.I | re.M)
    assert breaking.search(BREAKING)
    for step in sorted(MIGRATIONS.glob("*.sql")):
        text = step.read_text()
        assert not breaking.search(text) or text.startswith("-- readable_from: "), step.name
