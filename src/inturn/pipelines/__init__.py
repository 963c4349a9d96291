"""Ready-made pipelines: the newest row, its versions, counts, sums and phantom records, each a ``Pipeline``."""

from inturn.pipelines.changes import history, latest
from inturn.pipelines.phantoms import phantom
from inturn.pipelines.totals import count, sum  # noqa: A004 - pipelines.sum, as SQL names it

__all__ = ["count", "history", "latest", "phantom", "sum"]
