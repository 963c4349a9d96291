"""An error in a configuration file names the file, the line, the table, the value and what was expected."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from inturn.cli import consume, work
from inturn.console import read_config
from inturn.core.errors import InputError
from inturn.ingest import config as ingest
from inturn.serving.config_file import convert, file_text, resolved
from inturn.serving.settings import TelemetrySettings
from inturn.sqs import config as server


class Command(NamedTuple):
    """The reader of a command's files, a valid file, and errors in it by kind: a change, and the error."""

    read: Callable[[Path], Any]
    text: str
    errors: dict[str, tuple[tuple[str, str], str]]


COMMANDS = {
    "serve": Command(
        server.load,
        """
[server]
port = 1

[[keys]]
id = "a"
secret = "hunter2"

[[webhooks]]
name = "billing"
queue = "events"
signature = "stripe"
secrets = [
    "whsec",
]

[webhooks.mapping]
group = "body.id"
""",
        {
            "unknown setting": (
                ("group =", "gruop ="),
                "line 18, [[webhooks]] number 1, [webhooks.mapping]: unknown setting 'gruop'; did you mean 'group'?",
            ),
            "wrong type": (
                ("port = 1", "port = '1'"),
                "line 3, [server]: port is '1'; expected a port from 0 to 65535",
            ),
            "wrong type of a secret": (
                ('secret = "hunter2"', "secret = ['hunter2']"),
                "line 7, [[keys]] number 1: secret is of the wrong type; expected a string in quotes",
            ),
            "wrong type in several lines": (
                ('    "whsec",', "    5,"),
                "line 13, [[webhooks]] number 1: secrets is of the wrong type; expected a list of strings",
            ),
            "out of bounds": (
                ("[webhooks.mapping]", "tolerance_s = 0\n[webhooks.mapping]"),
                "line 17, [[webhooks]] number 1: tolerance_s is 0; expected a number of seconds above 0, at most 86400",
            ),
            "no such choice": (
                ('"stripe"', '"striped"'),
                'line 12, [[webhooks]] number 1: signature is \'striped\'; expected "github", "none", ',
            ),
            "missing": (
                ('id = "a"', ""),
                "line 5, [[keys]] number 1: the setting 'id' is missing; expected 1 to 128 letters",
            ),
            "wrong table": (("[[keys]]", "[keys]"), "line 5: keys is a table; expected [[keys]] tables"),
            "no table": (("[server]", "server = 5\n[limits]"), "line 2: server is 5; expected a table"),
            "found later": (
                ("body.id", "bodi.id"),
                "[webhooks.mapping]: group is 'bodi.id'; expected a path that begins",
            ),
        },
    ),
    "work": Command(
        work.read,
        """
processes = 2

[[pipelines]]
pipeline = "app.py:ledger"
queue = "shop.db#payments"

[pipelines.deliver]
kind = "http"
url = "https://example.org"
secret = "hunter2"
headers = { authorization = "hunter2" }
""",
        {
            "unknown setting": (
                ("processes =", "proceses ="),
                "line 2: unknown setting 'proceses'; did you mean 'processes'? Known settings: health, ",
            ),
            "wrong type": (
                ('"https://example.org"', "5"),
                "line 10, [[pipelines]] number 1, [pipelines.deliver]: url is 5; expected a string in quotes",
            ),
            "wrong type in a table of values": (
                ('headers = { authorization = "hunter2" }', 'headers = { b = "hunter2", a = 17 }'),
                "line 12, [[pipelines]] number 1, [pipelines.deliver.headers]: a is of the wrong type; expected a ",
            ),
            "wrong type of a password": (
                ('"https://example.org"', '["amqp://me:hunter2@host"]'),
                "[pipelines.deliver]: url is ['amqp://me@host']; expected a string in quotes",
            ),
            "out of bounds": (("= 2", "= 0"), "line 2: processes is 0; expected a number from 1 to "),
            "no such choice": (
                ('"http"', '"smoke"'),
                'line 9, [[pipelines]] number 1, [pipelines.deliver]: kind is \'smoke\'; expected "http", "kafka", ',
            ),
            "missing": (
                ('queue = "shop.db#payments"', ""),
                "line 4, [[pipelines]] number 1: the setting 'queue' is missing; expected a string in quotes",
            ),
            "missing kind": (
                ('kind = "http"', ""),
                "line 8, [[pipelines]] number 1, [pipelines.deliver]: the setting 'kind' is missing; expected \"http\"",
            ),
            "wrong table": (
                ("[[pipelines]]", "[pipelines]"),
                "line 4: pipelines is a table; expected [[pipelines]] tables",
            ),
            "no table": (
                ("[pipelines.deliver]", "deliver = 5\n[pipelines.delivr]"),
                "line 8, [[pipelines]] number 1: deliver is 5; expected a string in quotes or a table",
            ),
        },
    ),
    "consume": Command(
        consume.read,
        """
grace_s = 5

[[consumers]]
handler = "app.py:handle"
queue = "shop.db#payments"

[[consumers]]
handler = "app.py:handle"
queue = "shop.db#refunds"
retries = 3
concurrency = 2
dead_letter = true
""",
        {
            "unknown setting": (
                ("retries =", "retires ="),
                "line 11, [[consumers]] number 2: unknown setting 'retires'; did you mean 'retries'? Known settings: ",
            ),
            "wrong type": (
                ("dead_letter = true", "dead_letter = 'yes'"),
                "line 13, [[consumers]] number 2: dead_letter is 'yes'; expected true or false",
            ),
            "out of bounds": (
                ("retries = 3", "retries = -1"),
                "line 11, [[consumers]] number 2: retries is -1; expected a whole number, 0 or more",
            ),
            "out of the bounds of a type": (
                ("concurrency = 2", "concurrency = 0"),
                "line 12, [[consumers]] number 2: concurrency is 0; expected a whole number from 1 to ",
            ),
            "missing": (
                ('queue = "shop.db#refunds"', ""),
                "line 8, [[consumers]] number 2: the setting 'queue' is missing; expected a string in quotes",
            ),
            "wrong table": (
                ("[[consumers]]", "[[consumers.a]]"),
                "line 4: consumers is a table; expected [[consumers]] tables",
            ),
        },
    ),
    "ingest": Command(
        ingest.read,
        """
log_level = "info"

[[sources]]
kind = "folder"
name = "a"
queue = "shop.db#payments"
path = "drop"
batch = 1

[sources.mapping]
group = "body.id"
ranks = { draft = 1, paid = 2 }

[[sources]]
kind = "kafka"
name = "b"
queue = "shop.db#payments"
servers = "localhost"
topic = "t"
schema_registry = { url = "http://localhost", value = "avro" }
""",
        {
            "unknown setting": (
                ("servers =", "sever ="),
                "line 19, [[sources]] number 2: unknown setting 'sever'; did you mean 'servers'? Known settings: ",
            ),
            "wrong type": (
                ("paid = 2", "paid = 'x'"),
                "line 13, [[sources]] number 1, [sources.mapping.ranks]: paid is 'x'; expected a whole number",
            ),
            "out of bounds": (
                ("batch = 1", "batch = 0"),
                "line 9, [[sources]] number 1: batch is 0; expected a whole number above 0",
            ),
            "no such choice": (
                ('"avro"', '"arvo"'),
                "line 21, [[sources]] number 2, [sources.schema_registry]: value is 'arvo'; expected \"avro\"",
            ),
            "found later": (
                ("body.id", "bodi.id"),
                "line 12, [[sources]] number 1, [sources.mapping]: group is 'bodi.id'; expected a path that begins",
            ),
            "missing": (
                ('path = "drop"', ""),
                "line 4, [[sources]] number 1: the setting 'path' is missing; expected a string in quotes",
            ),
            "wrong table": (
                ("[sources.mapping]", "mapping = 5\n[other]"),
                "line 11, [[sources]] number 1: mapping is 5; expected a table",
            ),
        },
    ),
    "console": Command(
        read_config,
        """
mask = ["card.*"]

[proxy]
user_header = "X-User"

[[people]]
name = "ann"
role = "admin"
token = "hunter2 and 20 letters"
""",
        {
            "unknown setting": (
                ("user_header =", "user_heder ="),
                "line 5, [proxy]: unknown setting 'user_heder'; did you mean 'user_header'? Known settings: ",
            ),
            "wrong type": (("mask = [", "mask = [5, "), "line 2: mask is [5, 'card.*']; expected a list of strings"),
            "wrong type of a secret": (
                ('"hunter2 and 20 letters"', "20"),
                "line 10, [[people]] number 1: token is of the wrong type; expected a string in quotes",
            ),
            "out of bounds": (
                (" and 20 letters", ""),
                "line 10, [[people]] number 1: token has 7 characters; at least 20 are required",
            ),
            "no such choice": (
                ('"admin"', '"boss"'),
                'line 9, [[people]] number 1: role is \'boss\'; expected "viewer", "operator" or "admin"',
            ),
            "missing": (
                ('user_header = "X-User"', ""),
                "line 4, [proxy]: the setting 'user_header' is missing; expected a string in quotes",
            ),
            "wrong table": (("[proxy]", "[[proxy]]"), "line 4: proxy is a list of tables; expected a table"),
            "unread": (
                ('token = "hunter2 and 20 letters"', 'token_file = "none"'),
                "line 10, [[people]] number 1: token_file is 'none', which cannot be read (",
            ),
        },
    ),
}


def refused(command: str, path: Path) -> str:
    with pytest.raises(InputError) as caught:
        COMMANDS[command].read(path)
    text = str(caught.value)
    assert "hunter2" not in text
    assert text.startswith(f"{path}: ")
    return text.removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("command", "change", "text"),
    [
        pytest.param(name, *error, id=f"{name}: {kind}")
        for name, command in COMMANDS.items()
        for kind, error in command.errors.items()
    ],
)
def test_a_config_error_names_its_line_table_value_and_expectation(
    tmp_path: Path, command: str, change: tuple[str, str], text: str
) -> None:
    path, valid = tmp_path / "c.toml", COMMANDS[command].text
    path.write_text(valid)
    COMMANDS[command].read(path)
    assert change[0] in valid
    for end in ("\n", "\r\n"):
        path.write_bytes(valid.replace(*change).replace("\n", end).encode())
        assert refused(command, path).startswith(text) or text in refused(command, path)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unreadable_config_file_is_reported(tmp_path: Path, command: str) -> None:
    path, valid = tmp_path / "c.toml", COMMANDS[command].text
    assert refused(command, path) == "No such file or directory"
    assert refused(command, tmp_path) == "Is a directory"
    path.write_bytes(valid.encode() + b'secret = "hunter2\xff"')
    assert re.match(rf"line {valid.count(chr(10)) + 1}: not valid UTF-8; save", refused(command, path))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("end", "line", "text"),
    [
        ("secret = hunter2", 1, ": not valid TOML: Invalid value"),
        ('\n\nsecret = """\nhunter2=\n5', 3, ": not valid TOML: Unterminated string"),
        ('a = [\n"hunter2=",\nhunter2=5]', 3, ": not valid TOML: Invalid value"),
        ("[other", 1, ": not valid TOML: Expected ']' at the end of a table declaration"),
    ],
)
def test_a_toml_syntax_error_names_only_the_line(tmp_path: Path, command: str, end: str, line: int, text: str) -> None:
    path, valid = tmp_path / "c.toml", COMMANDS[command].text
    path.write_text(valid + end)
    assert refused(command, path) == f"line {valid.count(chr(10)) + line}{text}"


@pytest.mark.parametrize("value", [f"{'[' * 9000}", "9" * 5000])
def test_an_excessive_toml_value_is_refused(tmp_path: Path, value: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(f"a = {value}")
    assert "not valid TOML" in refused("work", path)


def test_a_config_error_names_the_line_of_the_statement_in_any_notation(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    for text, line in (
        ('# a comment with [server]\n"server".port = "x"', 2),
        ('[server]\nhost = """\nport = 5\n"""\nport = "x"', 5),
        ('server = { host = "h", port = "x" }', 1),
        ("[limits]\nidle_s = 5\n\n[server]\nhost = 'port'\n\n\nport = 'x' # port", 8),
    ):
        path.write_text(text)
        assert refused("serve", path).startswith(f"line {line}, [server]: port is 'x'; expected a port")


def test_settings_from_options_have_the_same_errors() -> None:
    with pytest.raises(InputError, match=r"^log_json is 'yes'; expected true or false$"):
        convert({"log_json": "yes"}, TelemetrySettings)


def test_a_secret_file_that_is_not_utf8_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"hunter2\n\xff")
    with pytest.raises(InputError, match=r"secret: line 2: not valid UTF-8; save the file in this encoding$"):
        file_text(tmp_path / "secret")


@pytest.mark.parametrize(
    ("where", "mark", "found"),
    [
        ("shop.db", "", "conf/shop.db"),
        ("/var/shop.db", "", "/var/shop.db"),
        ("postgresql://host/shop", "", "postgresql://host/shop"),
        ("shop.db#q", "#", "conf/shop.db#q"),
        ("postgresql://host/shop#q", "#", "postgresql://host/shop#q"),
        ("#q", "#", "#q"),
        ("app.py:handle", ":", "conf/app.py:handle"),
        ("package.app:handle", ":", "package.app:handle"),
    ],
)
def test_relative_paths_are_resolved_against_the_config_file(where: str, mark: str, found: str) -> None:
    assert resolved(Path("conf"), where, mark) == found


def test_an_error_in_a_very_long_value_omits_the_line(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    rows = "\n".join(f'{{ name = "q{number}" }},' for number in range(2_000))
    path.write_text(f"queues = [\n{rows}\n{{ nme = 'x' }}]\n")
    assert refused("serve", path).startswith("[[queues]] number 2001: unknown setting 'nme'")


@pytest.mark.parametrize("text", ['keys = "hunter2"', 'keys = ["hunter2"]', "[[server]]\nhost = 'hunter2'"])
def test_a_value_where_a_table_is_expected_is_not_shown(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text)
    refusal = refused("serve", path)
    assert "hunter2" not in refusal
    assert "; expected " in refusal


def test_a_secret_given_as_a_variable_name_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('[[keys]]\nid = "a"\nsecret_env = "hunter2"\n')
    assert refused("serve", path) == (
        "line 3, [[keys]] number 1: secret_env names an environment variable that is not set or is empty; "
        "expected the secret"
    )


def test_a_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes(b"\xef\xbb\xbf" + b'[[keys]]\nid = "a"\n')
    assert refused("serve", path).startswith("line 1, [[keys]] number 1: no secret is set")
