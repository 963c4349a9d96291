"""A progress line for the command line while Spark works."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from inturn.core.texts import visible

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_S = 0.2


@contextmanager
def show_progress(spark: "SparkSession", title: str, *, quiet: bool = False) -> Iterator[None]:
    """Show the number of finished Spark tasks while the block runs, on standard error and only at a terminal.

    Args:
        spark: the session that works.
        title: title of the progress line.
        quiet: whether to show nothing.
    """
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[tasks]}"),
    )
    done = threading.Event()
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        task_id = progress.add_task(visible(title), total=None, tasks="")

        def poll() -> None:
            while not done.wait(_POLL_S):
                finished, total = _tasks(spark)
                if total:
                    progress.update(task_id, completed=finished, total=total, tasks=f"{finished}/{total} tasks")

        watcher = threading.Thread(target=poll, name="inturn-progress", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


def _tasks(spark: "SparkSession") -> tuple[int, int]:
    """Return the finished and the total tasks of the running stages; 0, 0 if Spark does not report them."""
    try:
        tracker = spark.sparkContext.statusTracker()
    except Exception:  # noqa: BLE001 - Connect has no tracker, and says so with an error of its own
        return 0, 0
    infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    stages = [info for info in infos if info is not None]
    return sum(info.numCompletedTasks for info in stages), sum(info.numTasks for info in stages)
