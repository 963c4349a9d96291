"""The source lines of a handler as they were when it was loaded, for tracebacks of a process that runs for long.

Python reads a changed file again before it prints a traceback. So the traceback of a handler whose file is edited while
its worker still runs would show lines that it never ran.
"""

import functools
import inspect
import linecache
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NamedTuple


class _LoadedSource(NamedTuple):
    """The lines of a module; ``spec`` is another object after it was loaded again."""

    spec: object
    path: str
    lines: list[str]


_kept: dict[int, _LoadedSource] = {}
"""The lines by the identity of the module's namespace."""
_mutex = threading.RLock()  # the text of an error may print another
_MOST = 100
"""Maximum number of exceptions of a chain that are inspected."""


def without_partials(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that a :class:`functools.partial` calls; any other is returned as it is."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def keep_source_lines(function: Callable[..., Any]) -> None:
    """Keep the lines of a function's module as they are now: call it when the function has just been defined."""
    with suppress(Exception):  # whatever the object of a stranger answers, it may be a handler
        plain: Any = inspect.unwrap(without_partials(function))
        own, path = plain.__globals__, plain.__code__.co_filename
        if _loaded(own, path) is None and stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - pipelines are many
            linecache.checkcache(path)
            _kept[id(own)] = _LoadedSource(_spec(own), path, linecache.getlines(path))


@contextmanager
def lines_as_loaded(error: BaseException) -> Iterator[None]:
    """Let the tracebacks of an error and of its causes show the lines that ran, while the block runs."""
    files = {source.path: source for frame in _frames(error) if (source := _of(frame)) is not None}
    if not files:
        yield
        return
    with _mutex:
        before = {path: linecache.cache.get(path) for path in files}
        for path, source in files.items():
            # Without a time Python does not look whether the file has changed.
            linecache.cache[path] = (sum(map(len, source.lines)), None, source.lines, path)
        try:
            yield
        finally:
            for path, entry in before.items():
                if entry is None:
                    linecache.cache.pop(path, None)
                else:
                    linecache.cache[path] = entry


def _loaded(own: dict[str, Any], path: str) -> _LoadedSource | None:
    """Return what is kept of a module as it is loaded now."""
    source = _kept.get(id(own))
    return source if source is not None and source.path == path and source.spec is _spec(own) else None


def _spec(own: dict[str, Any]) -> object:
    """Return the object that is another one after each load of a module."""
    spec: object = own.get("__spec__")
    return own["__name__"] if spec is None else spec  # a script is loaded once


def _of(frame: FrameType) -> _LoadedSource | None:
    with suppress(Exception):
        return _loaded(frame.f_globals, frame.f_code.co_filename)
    return None


def _frames(error: BaseException) -> Iterator[FrameType]:
    """Yield the frames of an exception and of those that it came from."""
    pending, seen = [error], set[int]()
    while pending and len(seen) < _MOST:
        current = pending.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        trace = current.__traceback__
        while trace is not None:
            yield trace.tb_frame
            trace = trace.tb_next
        pending += [other for other in (current.__cause__, current.__context__) if other is not None]
