"""Features of the installed PySpark: inturn works on 3.5 and newer, and its errors name what a version lacks."""

from importlib.util import find_spec

import pyspark

from inturn.core.errors import SetupError

WRAPS_SOURCES = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"
"""The setting with which Spark 4.0 and 4.1 support "available now" for Python sources.

The query then reads everything that is available at its start, and ends.
"""


def has_python_sources() -> bool:
    """Return whether sources can be written in Python: from 4.0 on."""
    return find_spec("pyspark.sql.datasource") is not None


def has_read_limits() -> bool:
    """Return whether Python sources support read limits and the trigger "available now": from 4.2 on."""
    return find_spec("pyspark.sql.streaming.datasource") is not None


def lacking(feature: str, needed: str, instead: str) -> SetupError:
    """Return the error for a feature that the installed PySpark lacks, with the version that has it and a remedy."""
    return SetupError(
        f"{feature} needs Spark {needed} or newer, but PySpark {pyspark.__version__} is installed; {instead}"
    )


def unwrapped(feature: str) -> SetupError:
    """Return the error for a feature with a Python source that could end before it has read all that was available.

    Without the setting, Spark treats the trigger "available now" as "once": it runs one micro-batch whatever the
    limits, and after a crash only the one that is repeated.
    """
    return lacking(feature, "4.2", f"upgrade, or first call spark.conf.set({WRAPS_SOURCES!r}, 'true')")
