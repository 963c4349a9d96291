"""What the installed PySpark can do: inturn works on 3.5 and newer, and says by name what a version lacks."""

from importlib.util import find_spec

import pyspark

from inturn.core.errors import SetupError

WRAPS_SOURCES = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"
"""The setting by which Spark 4.0 and 4.1 take from a Python source, too, what is there at the start, and then end."""


def has_python_sources() -> bool:
    """Whether a source can be written in Python: from 4.0 on."""
    return find_spec("pyspark.sql.datasource") is not None


def has_read_limits() -> bool:
    """Whether such a source is told how much to read, and knows the trigger "available now": from 4.2 on."""
    return find_spec("pyspark.sql.streaming.datasource") is not None


def lacking(what: str, needed: str, instead: str) -> SetupError:
    """The error that says what the installed PySpark lacks.

    Args:
        what: what was asked for.
        needed: the first version that has it.
        instead: what to do.
    """
    there = f"PySpark {pyspark.__version__} is installed"
    return SetupError(f"{what} needs Spark {needed} or newer, and {there}; {instead}")


def unwrapped(what: str) -> SetupError:
    """The error that says that a query with a Python source could end before it has taken what was there.

    Without the setting, Spark takes the trigger "available now" for "once": one micro-batch whatever the limits, and
    after a crash none but the one that is repeated.

    Args:
        what: what was asked for.
    """
    return lacking(what, "4.2", f"or set this first: spark.conf.set({WRAPS_SOURCES!r}, 'true')")
