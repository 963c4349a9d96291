"""The Spark job of a step: its tasks, and an error of a worker as one line instead of a Java stack trace."""

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from inturn.core import errors
from inturn.core.errors import InturnError, SetupError
from inturn.core.pipeline.definition import Pipeline
from inturn.spark.driver.input import StepInput
from inturn.spark.executor.plan import Plan, SliceResult
from inturn.spark.executor.task import RESULT, SliceTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MISSING = r"No module named '(inturn|msgspec|numpy|pandas|pyarrow|pyspark|xxhash)\b|inturn\.spark needs (\w+);"
"""The error of a worker whose Python lacks inturn or one of its dependencies."""


@contextlib.contextmanager
def _job_description(spark: "SparkSession", text: str) -> Iterator[None]:
    """Set the jobs' description in Spark's UI within the block; Spark Connect cannot set it."""
    context = getattr(spark, "sparkContext", None)
    if context is None:
        yield
        return
    before = context.getLocalProperty("spark.job.description")
    context.setJobDescription(text)
    try:
        yield
    finally:
        context.setLocalProperty("spark.job.description", before)


def run_tasks(
    pipeline: Pipeline, df: "DataFrame", step_input: StepInput, plan: Plan, pickled: bytes
) -> list[SliceResult]:
    """Run the tasks and return their results; none if there are no rows and Spark (before 4.1) runs no task."""
    rows = step_input.partitioned(df, plan.buckets).mapInArrow(SliceTask(plan, pickled, list(step_input.read)), RESULT)
    try:
        with _job_description(df.sparkSession, f"inturn {pipeline.name}: step {plan.step}"):
            results = [msgspec.json.decode(row.result, type=SliceResult) for row in rows.collect()]
    except Exception as error:
        missing = re.search(_MISSING, str(error))
        if missing or "PYTHON_VERSION_MISMATCH" in str(error):
            context = getattr(df.sparkSession, "sparkContext", None)
            python = f"the workers' Python, {context.pythonExec}," if context else "the workers' Python"
            fault = (
                f"cannot import {missing[1] or missing[2]}" if missing else "has a different version than the driver's"
            )
            raise SetupError(
                f"{python} {fault}; before the session starts, set PYSPARK_PYTHON to a Python that has inturn[spark], "
                f"on this machine PYSPARK_PYTHON={sys.executable}; on a cluster, install inturn[spark] for its "
                "workers, or send it with spark.addArtifacts or --py-files"
            ) from error
        raise
    for result in results:
        if result.error is not None:
            name, text = result.error
            kind = getattr(errors, name, InturnError)
            raise kind(text)
    if len(results) != plan.buckets and (results or not df.isEmpty()):
        msg = f"{len(results)} tasks returned a result for {plan.buckets} buckets; this engine does not honour "
        raise InturnError(msg + "repartitionById: use Apache Spark")
    return results
