"""The source lines of a handler as they were when it was loaded, for tracebacks of a process that runs for long.

Python reads a changed file again before it prints a traceback. A handler that is mended while its worker still runs
would be shown with lines that it never ran.
"""

import functools
import inspect
import linecache
import os
from collections.abc import Callable
from typing import Any

_kept: dict[str, tuple[int, int]] = {}
"""The time of change and the size of each file whose lines are kept."""


def keep_source_lines(function: Callable[..., Any]) -> None:
    """Keep the lines of a function's file as they are now: call it when the function has just been defined."""
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return  # of C, or an object that is called
    path = code.co_filename
    try:
        found = os.stat(path)  # noqa: PTH116 - pipelines are defined often in tests, and a Path costs as much again
    except OSError:
        return  # of a notebook or a prompt, whose lines Python keeps by itself
    seen = (found.st_mtime_ns, found.st_size)
    if _kept.get(path) == seen and path in linecache.cache:
        return
    linecache.updatecache(path)
    entry: tuple[Any, ...] = linecache.cache.get(path, ())
    if len(entry) == 4:
        linecache.cache[path] = (entry[0], None, *entry[2:])  # without a time the lines are never read again
        _kept[path] = seen
