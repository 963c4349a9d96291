"""The folder that an audit writes: the page, the JSON, and the offending messages as Parquet."""

import json
import os
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from inturn.core.errors import StoreError
from inturn.spark.audit.log import GOOD, ROW, AuditLog
from inturn.spark.audit.report import AuditReport
from inturn.spark.tables.storage import storage

PAGE, DOCUMENT, MESSAGES, GAPS, LAB = "report.html", "report.json", "messages", "gaps", "lab.html"
_MARK = ".inturn-audit"


class Folder:
    """A folder for one report; the files of an earlier audit are replaced, a folder with other files is refused.

    Args:
        location: a directory, or a URL that Spark and :mod:`inturn.spark.tables.storage` know.

    Raises:
        StoreError: if it contains files that no audit wrote.
    """

    def __init__(self, location: str | os.PathLike[str]) -> None:
        self._files = storage(location)
        if not self._files.exists(_MARK):
            strangers = [name for name in self._files.names("") if not name.startswith(".")]
            if strangers:
                msg = f"{self._files.location} contains {strangers[0]}, which no audit wrote; use another folder"
                raise StoreError(msg)
            self._files.create(_MARK, b"inturn audit created the files in this folder, and overwrites them\n")

    def messages(self, rows: DataFrame, log: AuditLog) -> None:
        """Write the complete messages with faults, with one folder per kind."""
        place = F.timestamp_micros("place") if log.is_time else F.col("place")
        faults = rows.where("kinds is not null").select(
            *ROW,
            F.explode("kinds").alias("kind"),
            "group",
            F.when(F.col("status") == GOOD, F.col("epoch")).alias("epoch"),
            (place if log.keys.place else F.lit(None).cast("bigint")).alias("place"),
            "position",
            F.col("positions").alias("late_positions"),
            (F.col("waited") / 1e6).alias("late_s"),
        )
        whole = faults.join(log.messages(), list(ROW), "left").drop(*ROW)
        whole.write.mode("overwrite").partitionBy("kind").parquet(self._files.where(MESSAGES))

    def gaps(self, holes: DataFrame) -> None:
        """Write the gaps, one row each."""
        table = holes.select(
            "group",
            "epoch",
            "first",
            "last",
            "missing",
            "open",
            "age",
            (F.col("age_us") / 1e6).alias("age_s"),
            F.timestamp_micros("opened_us").alias("opened"),
        )
        table.coalesce(1).write.mode("overwrite").parquet(self._files.where(GAPS))

    def write(self, report: AuditReport) -> AuditReport:
        """Write the page and the JSON, and return the report with the names of the files."""
        names = {"page": PAGE, "document": DOCUMENT, "messages": MESSAGES}
        if report.gaps is not None:
            names["gaps"] = GAPS
        return self._written(replace(report, files={what: self._files.where(name) for what, name in names.items()}))

    def add_lab(self, report: AuditReport, page: str) -> AuditReport:
        """Write the lab's page into the folder, link the other pages to it, and return the report with its file.

        Args:
            report: report that was written to this folder.
            page: the lab's page, as HTML.
        """
        self._files.replace(LAB, page.encode())
        return self._written(replace(report, files={**report.files, "lab": self._files.where(LAB)}))

    def _written(self, whole: AuditReport) -> AuditReport:
        from inturn.spark.audit.page import render

        self._files.replace(PAGE, render(whole).encode())
        self._files.replace(DOCUMENT, json.dumps(whole.to_dict(), ensure_ascii=False, indent=1).encode())
        return whole
