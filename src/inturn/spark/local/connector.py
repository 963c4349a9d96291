"""Spark's connector of Kafka: a jar outside PySpark, which a session has from its start or not at all."""

from collections.abc import Mapping
from typing import Final

import pyspark

from inturn.core.errors import SetupError

_PACKAGES: Final = "spark.jars.packages"
_REMEDY: Final = "download it with its dependencies and pass their paths: --jars a.jar,b.jar"


def connector_package(version: str = pyspark.__version__) -> str:
    """Return the Maven coordinates of the connector for a version of Spark.

    >>> connector_package("3.5.9"), connector_package("4.2.0")
    ('org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.9', 'org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0')
    """
    scala = "2.12" if version.startswith("3.") else "2.13"
    return f"org.apache.spark:spark-sql-kafka-0-10_{scala}:{version}"


def connector_settings(jars: str | None) -> dict[str, str]:
    """Return the settings of a session with the connector.

    Args:
        jars: the connector and its dependencies, with commas; an empty text: Spark has them; None: Spark fetches them
            from Maven Central, or from the repository in ``spark.jars.repositories``, before it starts.
    """
    if jars is None:
        return {_PACKAGES: connector_package()}
    return {"spark.jars": jars} if jars else {}


def missing_connector(error: Exception) -> SetupError | None:
    """Return the error of a session without the connector in place of Spark's; None for another error."""
    text = str(error)
    if "Failed to find data source: kafka" not in text and "DATA_SOURCE_NOT_FOUND" not in text:
        return None
    return SetupError(f"Spark has no Kafka connector ({connector_package()}); {_REMEDY}, or start the cluster with it")


def unfetched_connector(settings: Mapping[str, str]) -> SetupError | None:
    """Return the error of a session that did not start, if it was to fetch the connector; else None."""
    if _PACKAGES not in settings:
        return None
    return SetupError(
        f"Spark did not start; it may be unable to fetch its Kafka connector, {settings[_PACKAGES]}, from Maven: "
        f"check the output above and the access to Maven Central, or {_REMEDY}"
    )
