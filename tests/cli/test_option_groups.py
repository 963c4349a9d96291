"""Parameters of commands as options: texts as help, dataclasses as groups, parameters in errors as options."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from inturn.cli.errors import Commands, with_options
from inturn.cli.option_groups import expanded, given_options
from inturn.core.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Wait:
    """Options about waiting."""

    wait_s: Annotated[float, typer.Option(min=0, help="Seconds to wait.")] = 1.0
    quiet: Annotated[bool, "Print nothing."] = False
    where: Annotated[str | None, typer.Option("--from", help="Source.")] = None
    hidden: int = 7


@dataclass(frozen=True, kw_only=True)
class LongWait(Wait):
    """Options that also have what :class:`Wait` hides."""

    hidden: Annotated[int, "No longer hidden."] = 8


@pytest.fixture
def seen() -> list[Any]:
    return []


@pytest.fixture
def app(seen: list[Any]) -> Commands:
    app = Commands()

    @app.command()
    def short(
        name: Annotated[str, typer.Argument(help="Name.")],
        *,
        wait: Wait,
        config: Annotated[Path | None, "File."] = None,
    ) -> None:
        """Wait."""
        seen.append((name, wait))
        if name == "fails":
            raise InputError("wait_s is 2.0, but quiet is False; pass quiet=, or wait_s='next'")

    @app.command()
    def long(wait: LongWait) -> None:
        """Wait longer."""
        seen.append(wait)

    return app


def run(app: Commands, *arguments: str) -> Any:
    return CliRunner().invoke(app, arguments)


def test_dataclass_fields_become_options_passed_as_one_value(app: Commands, seen: list[Any]) -> None:
    assert run(app, "short", "a").exit_code == 0
    assert run(app, "short", "b", "--wait-s", "2", "--quiet", "--from", "x").exit_code == 0
    assert seen == [("a", Wait()), ("b", Wait(wait_s=2.0, quiet=True, where="x"))]


def test_a_derived_option_group_keeps_the_order_of_its_base(app: Commands, seen: list[Any]) -> None:
    assert run(app, "long", "--hidden", "9").exit_code == 0
    assert seen == [LongWait(hidden=9)]
    text = run(app, "long", "--help").stdout
    assert text.index("--quiet") < text.index("--from") < text.index("--hidden")


def test_help_shows_texts_ranges_and_metavars_without_no_flags(app: Commands) -> None:
    text = run(app, "short", "--help").stdout
    for part in ("NAME", "Seconds to wait.", "x>=0", "[default: 1.0]", "Print nothing.", "--from"):
        assert part in text
    assert "--no-quiet" not in text
    assert "hidden" not in text


def test_usage_errors_have_typers_texts(app: Commands) -> None:
    assert "Invalid value for '--wait-s'" in run(app, "short", "a", "--wait-s", "-1").stderr
    done = run(app, "short")
    assert (done.exit_code, "Missing argument 'NAME'" in done.stderr) == (2, True)


def test_one_option_in_two_groups_is_refused() -> None:
    def command(one: Wait, two: LongWait) -> None: ...

    with pytest.raises(ValueError, match="duplicate parameter name: 'wait_s'"):
        expanded(command)


def test_given_omits_none_and_unset_flags() -> None:
    assert given_options(Wait(wait_s=0.0)) == {"wait_s": 0.0, "hidden": 7}
    assert given_options(Wait(quiet=True, where="")) == {"wait_s": 1.0, "quiet": True, "where": "", "hidden": 7}


def test_parameters_in_an_error_are_named_as_options(app: Commands) -> None:
    done = run(app, "short", "fails", "--wait-s", "2")
    assert done.exit_code == 1
    expected = "--wait-s is 2.0, but --quiet is False; pass --quiet, or --wait-s next"
    assert done.stderr == f"InputError: {expected}\n"


def test_with_a_config_file_errors_keep_the_parameter_names(app: Commands) -> None:
    done = run(app, "short", "fails", "--config", "waits.toml", "--wait-s", "2")
    assert "InputError: wait_s is 2.0, but quiet is False; pass quiet=, or wait_s='next'" in done.stderr


OPTIONS = {"dead_letter": "--dead-letter", "group": "--group", "to": "--to", "max_receives": "--max-receives"}
OPTIONS |= {"outputs_format": "--outputs"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dead_letter is 'x' and max_receives is None", "--dead-letter is 'x' and --max-receives is not set"),
        ("group is 3; expected a text", "--group is 3; expected a text"),
        ("send again, or with a longer to=", "send again, or with a longer --to"),
        ("it needs dead_letter='next'; omit group=, or to=", "it needs --dead-letter next; omit --group, or --to"),
        ("outputs_format is 'csv'; expected 'parquet'", "--outputs is 'csv'; expected 'parquet'"),
        ("to is [1]; expected a text", "--to is [1]; expected a text"),
    ],
)
def test_with_options_replaces_parameter_names(text: str, expected: str) -> None:
    assert with_options(text, OPTIONS) == expected


@pytest.mark.parametrize(
    "text",
    [
        "the group is parked; a group and to",
        "group is missing in line 5",
        "no queue 'dead_letter'; expected \"group=\"",
        "call configure(dead_letter=…)",
        "my-dead_letter and dead_letters",
        "no file logs/group=5/missing.csv, nor x to=5.db",
        "postgresql://127.0.0.1/x?group=5&to=: not reached",
        "the handler failed: ValueError: to=5 and group is 3",
        "column a is missing, but group is 'b'",
        "the queue 'a' has 2 messages with max_receives=2",
    ],
)
def test_with_options_leaves_user_text_unchanged(text: str) -> None:
    assert with_options(text, OPTIONS) == text
