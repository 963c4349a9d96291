"""A traceback shows a handler's lines as they were when it was loaded, however its file has changed since."""

import dataclasses
import functools
import importlib
import inspect
import linecache
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import inturn
from inturn.core.texts import traceback_of
from inturn.definitions import load

HANDLER = """
import functools
import inturn

def apply(state, message):
    raise ValueError("it failed")

def decorated(function):
    @functools.wraps(function)
    def call(state, message):
        return function(state, message)
    return call

ledger = inturn.Pipeline(name="ledger", group="account", order=inturn.Gapless("revision"), handler=HERE)
"""


@pytest.mark.parametrize("handler", ["apply", "decorated(apply)", "functools.partial(apply)"])
def test_a_traceback_shows_the_loaded_lines_of_a_changed_handler_file(tmp_path: Path, handler: str) -> None:
    file = tmp_path / "ledger_of_lines.py"
    file.write_text(HANDLER.replace("HERE", handler))
    old = load(f"{file}:ledger")
    assert 'raise ValueError("it failed")' in shown(old.handler)
    file.write_text("# mended\n" * 3 + file.read_text().replace("it failed", "it failed again"))
    assert 'raise ValueError("it failed")' in shown(old.handler)
    new = load(f"{file}:ledger")
    assert 'raise ValueError("it failed again")' in shown(new.handler), "what is loaded anew is shown anew"


def test_loading_a_handler_again_keeps_the_lines_of_the_old_one(tmp_path: Path) -> None:
    """Neither the lines of the old handler nor what others read of the file."""
    file = tmp_path / "ledger_loaded_twice.py"
    file.write_text(HANDLER.replace("HERE", "apply"))
    old = load(f"{file}:ledger")
    file.write_text("# mended\n" * 3 + file.read_text().replace("it failed", "it failed again"))
    new = load(f"{file}:ledger")
    dataclasses.replace(old, name="other")
    assert 'raise ValueError("it failed")' in shown(old.handler)
    assert 'raise ValueError("it failed again")' in shown(new.handler)
    assert "it failed again" in inspect.getsource(new.handler)
    assert linecache.getline(str(file), 1) == "# mended\n"


def test_a_reloaded_module_shows_its_new_lines_in_tracebacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "ledger_reloaded.py"
    file.write_text(HANDLER.replace("HERE", "apply"))
    module = importlib.import_module("ledger_reloaded")
    file.write_text("# mended\n" * 30 + file.read_text().replace("it failed", "it failed again"))
    importlib.reload(module)
    assert 'raise ValueError("it failed again")' in shown(module.apply)
    assert "it failed again" in inspect.getsource(module.apply)


def test_causes_in_a_traceback_show_the_loaded_lines(tmp_path: Path) -> None:
    file = tmp_path / "ledger_with_a_cause.py"
    file.write_text(HANDLER.replace("HERE", "apply"))
    ledger = load(f"{file}:ledger")
    file.write_text("# mended\n" * 3 + file.read_text())

    def outer(state: Any, message: Any) -> Any:
        try:
            ledger.handler(state, message)
        except ValueError as error:
            raise ValueError("it failed outside") from error

    assert 'raise ValueError("it failed")' in shown(outer)


def test_handlers_without_a_source_file_are_accepted() -> None:
    class Handler:
        def __call__(self, state: Any, message: Any) -> Any:
            return state, []

    class Endless(Handler):
        def __getattr__(self, name: str) -> Any:
            return self

    def loop(state: Any, message: Any) -> Any:
        return state, []

    loop.__wrapped__ = loop  # type: ignore[attr-defined]
    for handler in (divmod, functools.partial(divmod), Handler(), Endless(), loop):
        inturn.Pipeline(name="ledger", group="account", order=inturn.Gapless("revision"), handler=handler)


def shown(handler: Callable[[Any, Any], Any]) -> str:
    with pytest.raises(ValueError, match="it failed") as raised:
        handler({}, {})
    return traceback_of(raised.value)
