"""Loading of the pipeline that a command names; Spark is not needed."""

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import isfunction
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from inturn.core.errors import InturnError, PipelineError
from inturn.core.pipeline.definition import Pipeline

if TYPE_CHECKING:
    from inturn.worker import ToQueue


def load(where: str, modules: dict[str, ModuleType] | None = None) -> Pipeline:
    """Return the pipeline at ``ledger.py:ledger`` or ``package.module:name``.

    Args:
        where: its file or module, and its name.
        modules: the loaded modules by file or module name; each is run only once.

    Raises:
        PipelineError: if it does not exist or cannot be loaded.
    """
    place, name, module = _module_of(where, "the pipeline", "ledger", modules)
    pipeline = getattr(module, name, None)
    if not isinstance(pipeline, Pipeline):
        existing = [key for key, value in vars(module).items() if isinstance(value, Pipeline)]
        raise PipelineError(f"no pipeline {name!r} in {place}; existing pipelines: {', '.join(existing) or 'none'}")
    return pipeline


def load_deliver(where: str, modules: dict[str, ModuleType]) -> "Callable[..., Any] | ToQueue":
    """Return the function, or the ``inturn.ToQueue``, at ``app.py:post`` or ``package.module:name``.

    Raises:
        PipelineError: if it does not exist or cannot be loaded.
    """
    from inturn.worker import ToQueue

    place, name, module = _module_of(where, "the function", "post", modules)
    value: Callable[..., Any] | ToQueue | None = getattr(module, name, None)
    if not callable(value) and not isinstance(value, ToQueue):
        raise PipelineError(f"no function or inturn.ToQueue {name!r} in {place}; {_functions(module)}")
    return value


def load_function(where: str, modules: dict[str, ModuleType]) -> Callable[..., Any]:
    """Return the function at ``app.py:post`` or ``package.module:name``.

    Raises:
        PipelineError: if it does not exist or cannot be loaded.
    """
    place, name, module = _module_of(where, "the function", "post", modules)
    function: Callable[..., Any] | None = getattr(module, name, None)
    if not callable(function):
        raise PipelineError(f"no function {name!r} in {place}; {_functions(module)}")
    return function


def _functions(module: ModuleType) -> str:
    """Return a text with the functions that a module defines."""
    existing = [
        name for name, value in vars(module).items() if isfunction(value) and value.__module__ == module.__name__
    ]
    return f"existing functions: {', '.join(existing) or 'none'}"


def _module_of(
    where: str, noun: str, example: str, modules: dict[str, ModuleType] | None
) -> tuple[str, str, ModuleType]:
    place, _, name = where.rpartition(":")
    if not place or not name:
        raise PipelineError(f"{where!r} does not name {noun}; expected {example}.py:{example} or package.module:name")
    modules = {} if modules is None else modules
    if place not in modules:
        modules[place] = _from_file(Path(place)) if place.endswith(".py") else _from_name(place)
    return place, name, modules[place]


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise PipelineError(f"file {path} does not exist")
    sys.path.insert(0, str(path.resolve().parent))  # so that it can import its neighbours
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise PipelineError(f"{path} cannot be loaded as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    with _named(path):
        spec.loader.exec_module(module)
    return module


def _from_name(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        with _named(name):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise PipelineError(f"no module {error.name!r} in the current directory or the installed packages") from error


@contextmanager
def _named(where: Path | str) -> Iterator[None]:
    """Turn an error in the user's module into one that names its location.

    Raises:
        PipelineError: in its place; inturn's errors and missing modules are raised unchanged.
    """
    try:
        yield
    except (InturnError, ModuleNotFoundError):
        raise
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        position = (
            f"{error.filename}, line {error.lineno}"
            if isinstance(error, SyntaxError)
            else f"{last.filename}, line {last.lineno}"
        )
        message = error.msg if isinstance(error, SyntaxError) else error
        raise PipelineError(f"{where} cannot be loaded: {type(error).__name__}: {message} ({position})") from error
