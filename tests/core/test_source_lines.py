"""A traceback shows a handler's lines as they were when it was loaded, however its file has changed since."""

import functools
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
def test_a_handler_that_was_changed_is_shown_as_it_ran(tmp_path: Path, handler: str) -> None:
    file = tmp_path / "ledger_of_lines.py"
    file.write_text(HANDLER.replace("HERE", handler))
    old = load(f"{file}:ledger")
    assert 'raise ValueError("it failed")' in shown(old.handler)
    file.write_text("# mended\n" * 3 + file.read_text().replace("it failed", "it failed again"))
    assert 'raise ValueError("it failed")' in shown(old.handler)
    new = load(f"{file}:ledger")
    assert 'raise ValueError("it failed again")' in shown(new.handler), "what is loaded anew is shown anew"


def test_handlers_without_a_file_are_taken_as_they_are() -> None:
    class Handler:
        def __call__(self, state: Any, message: Any) -> Any:
            return state, []

    for handler in (divmod, functools.partial(divmod), Handler()):
        inturn.Pipeline(name="ledger", group="account", order=inturn.Gapless("revision"), handler=handler)


def shown(handler: Callable[[Any, Any], Any]) -> str:
    with pytest.raises(ValueError, match="it failed") as told:
        handler({}, {})
    return traceback_of(told.value)
