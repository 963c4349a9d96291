"""The application that a celery worker runs; what its tasks have done is in a file.

A line is added to the file at once and whole, so several workers may write to it.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

from celery import Celery
from celery.exceptions import Reject

QUEUE = os.environ["TEST_QUEUE"]
DONE = Path(os.environ["TEST_FILE"])

app = Celery("tests", broker=os.environ["TEST_BROKER"])
app.conf.update(
    broker_connection_retry_on_startup=False,
    broker_transport_options={
        "is_secure": False,
        "region": os.environ.get("TEST_REGION", "us-east-1"),
        "visibility_timeout": 4,  # so long after a worker's death a task is run by another
        "wait_time_seconds": 1,
        "polling_interval": 0.05,  # so soon a worker asks again that has as many tasks as it may
    },
    task_acks_late=True,
    task_default_queue=QUEUE,
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
)


def note(*entry: Any) -> int:
    """Write down what was done; how often it was, this time included."""
    line = json.dumps(entry) + "\n"
    with DONE.open("a") as file:
        file.write(line)
    return DONE.read_text().splitlines(keepends=True).count(line)


@app.task
def step(group: str, number: int) -> None:
    """One of a group's steps."""
    note(group, number)


@app.task(bind=True)
def hang(self: Any, group: str, number: int) -> None:
    """A step that the first worker that takes it never ends."""
    if note(group, number, "begun") == 1:
        note("worker", os.getpid())
        time.sleep(600)
    note(group, number)


@app.task
def again(name: str) -> None:
    """A task that is rejected the first time, so that the queue gives it once more."""
    if note(name) == 1:
        raise Reject(requeue=True)


@app.task(bind=True)
def retried(self: Any, name: str) -> None:
    """A task that sends itself once more."""
    if note(name) == 1:
        raise self.retry(countdown=0)
