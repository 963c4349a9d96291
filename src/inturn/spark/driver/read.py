"""The tables of a store as DataFrames; they contain only what committed steps name."""

import os
from typing import TYPE_CHECKING, Any

from inturn.core.errors import InputError, StoreError
from inturn.core.pipeline.order import StoredOrder
from inturn.core.pipeline.timeline import Status
from inturn.results.state_columns import column_of_field
from inturn.spark.columns.dataframe import check_session
from inturn.spark.columns.names import FIXED_COLUMNS
from inturn.spark.tables.manifest import DataFile, Manifest, SparkStore, StoreIdentity
from inturn.spark.tables.rows import STATE, GroupRows, HeldRows, ddl_of
from inturn.spark.tables.writer import OUTPUTS, REJECTED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLES = ("states", "outputs", "parked", "rejected", "steps")
_STEPS = (
    "step bigint, time timestamp, committed timestamp, seconds double, "
    "received bigint, released bigint, applied bigint, duplicate bigint, stale bigint, held bigint, rejected bigint, "
    "reasons map<string, bigint>, handler string, writer string"
)

_READERS = 64
"""The maximum number of tasks that read a table; with fewer files, there is one task per file."""
_PARKED = (
    "group string, status string, reason string, error string, epoch bigint, revision bigint, id string, "
    "since timestamp, message string, step bigint"
)


def read(spark: "SparkSession", store: str | os.PathLike[str], table: str, *, step: int | None = None) -> "DataFrame":
    """Return one of a store's tables, as it was after a step.

    ``states``: a row per group with its status (open, waiting, parked), its epoch and revision (null where the order
    has none), the number of held messages, the skipped revisions, and a column for each field of its state. The column
    has the field's name, with the prefix ``state_`` if the table has a column of that name. The fields of a state that
    could not be upgraded are null.
    ``outputs``: a row per output, with its effect id. ``parked``: a row per message that waits or is parked, with the
    reason and the error of its group. ``rejected``: a row per message that will not be applied, with the reason.
    ``steps``: a row per step, with its counts.

    If manifests of earlier steps are lost, ``outputs``, ``rejected`` and ``steps`` lack what these named, and a logged
    warning names them; ``states`` and ``parked`` lack nothing.

    Args:
        spark: the session that reads.
        store: the store's directory.
        table: one of the five names.
        step: the step whose result to read; default: the last step.

    Raises:
        InputError: if there is no such table.
        StoreError: if there is no store, or no such step.
    """
    check_session(spark)
    if table not in TABLES:
        raise InputError(f"no table {table!r}; existing tables: {', '.join(TABLES)}")
    source = SparkStore(store)
    about = source.require_identity()
    steps = [number for number in source.found_steps() if step is None or number <= step]
    if step is not None and step not in steps:
        source.manifest(step)
    match table:
        case "steps":
            return _steps(spark, [source.manifest(number) for number in steps])
        case "outputs" | "rejected":
            schema = OUTPUTS if table == "outputs" else REJECTED
            files = [file for number in steps for file in getattr(source.manifest(number), table)]
            return _files(spark, source, files, ddl_of(schema))
    if not steps:
        return spark.createDataFrame([], _PARKED if table == "parked" else "group string, status string, step bigint")
    last = source.manifest(steps[-1])
    if last.vacuumed:
        raise StoreError(f"the {table} after step {last.step} of {source.location} were vacuumed; read a later step")
    return _states(spark, source, about, last) if table == "states" else _parked(spark, source, about, last)


def _files(spark: "SparkSession", source: SparkStore, files: list[DataFile], ddl: str) -> "DataFrame":
    if not files:
        return spark.createDataFrame([], ddl)
    try:
        return spark.read.schema(ddl).parquet(*(source.files.full_name(file.path) for file in files))
    except Exception as error:
        missing = [file.path for file in files if not source.files.exists(file.path)]
        if not missing:
            raise
        more = f" and {len(missing) - 1} more files" if len(missing) > 1 else ""
        msg = f"{source.location} lacks {missing[0]}{more}, which a committed step names; restore it from a backup"
        raise StoreError(msg) from error


def _steps(spark: "SparkSession", manifests: list[Manifest]) -> "DataFrame":
    import datetime as dt

    names = ("received", "released", "applied", "duplicate", "stale", "held")
    rows: list[tuple[Any, ...]] = [
        (
            m.step,
            dt.datetime.fromtimestamp(m.now_us / 1e6, dt.UTC),
            dt.datetime.fromisoformat(m.committed),
            m.seconds,
            *(m.counts[name] for name in names),
            sum(m.counts["rejected"].values()),
            m.counts["rejected"],
            m.handler,
            m.writer,
        )
        for m in manifests
    ]
    return spark.createDataFrame(rows, _STEPS)


def _groups(spark: "SparkSession", source: SparkStore, last: Manifest) -> "DataFrame":
    """Return the newest row of each group; the last columns are the current fields of the state."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    files = [file for level in last.levels for file in level.groups]
    rows = _mapped(spark, files, GroupRows(source.location, last.state))
    if len(last.levels) <= 1:
        return rows
    newest = Window.partitionBy("hash", "group").orderBy(F.col("step").desc())
    return rows.withColumn("__newest", F.row_number().over(newest)).where("__newest = 1").drop("__newest")


def _mapped(spark: "SparkSession", files: list[DataFile], reader: GroupRows | HeldRows) -> "DataFrame":
    """Read Arrow files in Spark's workers, since Spark cannot read the format itself."""
    if not files:
        return spark.createDataFrame([], reader.ddl)
    paths = spark.createDataFrame([(file.path,) for file in files], "path string")
    return paths.repartition(min(len(files), _READERS)).mapInArrow(reader, reader.ddl)


def _states(spark: "SparkSession", source: SparkStore, about: StoreIdentity, last: Manifest) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    rows = _groups(spark, source, last)
    parked = ~F.col("status").isin(Status.OPEN.value, Status.WAITING.value)
    fields = [
        F.col(f"{STATE}{number}").alias(column_of_field(name, FIXED_COLUMNS)) for number, name in enumerate(last.state)
    ]
    return rows.select(
        "group",
        F.when(parked, F.lit("parked")).otherwise(F.col("status")).alias("status"),
        _epoch(about, "epoch").alias("epoch"),
        _revision(about, "reached").alias("revision"),
        "held",
        "skipped",
        "step",
        *fields,
    )


def _parked(spark: "SparkSession", source: SparkStore, about: StoreIdentity, last: Manifest) -> "DataFrame":
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    files = [file for level in last.levels for file in level.held]
    parked = ~F.col("g.status").isin(Status.OPEN.value, Status.WAITING.value)
    held = _mapped(spark, files, HeldRows(source.location))
    live = held.alias("h").join(
        _groups(spark, source, last).alias("g"),
        on=[
            F.col("h.hash") == F.col("g.hash"),
            F.col("h.group") == F.col("g.group"),
            F.col("h.step") >= F.col("g.held_step"),
        ],
    )
    return live.select(
        F.col("h.group").alias("group"),
        F.when(parked, F.lit("parked")).otherwise(F.lit("waiting")).alias("status"),
        F.when(parked, F.col("g.status")).alias("reason"),
        F.col("g.error").alias("error"),
        _epoch(about, "h.epoch").alias("epoch"),
        _revision(about, "h.position").alias("revision"),
        F.col("h.id").alias("id"),
        F.timestamp_micros(F.col("h.since_us")).alias("since"),
        F.col("message"),
        F.col("h.step").alias("step"),
    )


def _epoch(about: StoreIdentity, column: str) -> Any:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    return F.col(column) if StoredOrder.of(about.order).has_epoch else F.lit(None).cast("bigint")


def _revision(about: StoreIdentity, column: str) -> Any:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    return F.col(column) if StoredOrder.of(about.order).grade.has_revisions else F.lit(None).cast("bigint")
