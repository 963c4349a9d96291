"""What Spark could not do with somebody's data, in one line in place of a page of Java."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from inturn.core.errors import InputError


@contextmanager
def told(what: str) -> Iterator[None]:
    """Say of Spark's errors what could not be done, and why.

    Args:
        what: what could not be done: ``cannot read events/``.

    Raises:
        InputError: in place of Spark's error.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        msg = f"{what}: {_reason(error)}"
        raise InputError(msg) from error


def _reason(error: Exception) -> str:
    """The first words of an error; of one that came as Java raised it, those of each cause that adds some."""
    java: Any = getattr(error, "java_exception", None)
    words: list[str] = [] if java is not None else [str(error).splitlines()[0]]
    while java is not None:
        text = (java.getMessage() or "").strip().splitlines()
        if text and not any(text[0] in each or each in text[0] for each in words):
            words.append(text[0])
        java = java.getCause()
    return ": ".join(words) or type(error).__name__
