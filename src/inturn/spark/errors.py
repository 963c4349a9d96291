"""Conversion of Spark's errors about the input to one line, instead of a Java stack trace."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from inturn.core.errors import InputError

_TWICE: Final = re.compile(r"\[COLUMN_ALREADY_EXISTS\][^`]*`(.*?)` already exists")
_MEND: Final = (
    "if they differ only in case, set spark.sql.caseSensitive=true (for a command: "
    "PYSPARK_SUBMIT_ARGS='--conf spark.sql.caseSensitive=true pyspark-shell'), otherwise rename one"
)


@contextmanager
def input_errors(subject: str) -> Iterator[None]:
    """Turn an error of Spark into an :class:`InputError` with what failed, such as ``cannot read events/``, and why."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise InputError(f"{subject}: {reason(error)}") from error


def reason(error: Exception) -> str:
    """Return the first line of an error; for an error from Java, that of each cause that adds information.

    For two columns that Spark treats as one, return the remedy.
    """
    duplicate = _TWICE.search(str(error))
    if duplicate is not None:
        return f"two columns are called {duplicate[1]!r}; {_MEND}"
    java: Any = getattr(error, "java_exception", None)
    words: list[str] = [] if java is not None else [str(error).splitlines()[0]]
    while java is not None:
        text = (java.getMessage() or "").strip().splitlines()
        if text and not any(text[0] in word or word in text[0] for word in words):
            words.append(text[0])
        java = java.getCause()
    return ": ".join(words) or type(error).__name__
