"""Messages in files, as a stream reads them."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

LIMIT_S = 300
"""How long a test waits for what must come, before it is taken for stuck."""
DDL = "account string, revision bigint, amount bigint"


class Source:
    """A folder into which messages come as files, one a micro-batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self.folder, self._files = spark, folder, 0
        folder.mkdir()

    def put(self, messages: Sequence[dict[str, Any]]) -> None:
        self._files += 1
        path = self.folder / f".{self._files:04d}.json"
        path.write_text("".join(json.dumps(message) + "\n" for message in messages))
        os.utime(path, (self._files, self._files))  # Spark takes the oldest first
        path.rename(self.folder / path.name[1:])

    def df(self) -> DataFrame:
        return self._spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).json(str(self.folder))
