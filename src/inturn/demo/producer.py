"""A producer in its own process: sends the messages of one airline to the queue, each when it is due.

python -m inturn.demo.producer flights.db#flights UA.jsonl 1363000000.0
"""

import sys
import time
from bisect import bisect
from pathlib import Path
from typing import Any

import msgspec

import inturn
from inturn.core.queue.messages import Draft
from inturn.queue import draft

PAUSE_S = 0.05
"""The time between two looks at the clock; messages that became due go into one transaction."""


class Post(msgspec.Struct, frozen=True):
    """A message of an airline."""

    due_s: float
    body: dict[str, Any]


def send(source: str, file: Path, began: float) -> None:
    """Send the messages of a file.

    Args:
        source: the queue, ``flights.db#flights``.
        file: messages in the order in which they are due; its name is the airline's.
        began: begin of the run, in seconds since 1970.
    """
    posts = msgspec.json.Decoder(Post).decode_lines(file.read_bytes())
    path, _, name = source.partition("#")
    with inturn.open(path, create=False) as db:
        queue = db.queue(name, create=False)
        sent = 0
        while sent < len(posts):
            due = bisect(posts, time.time() - began, lo=sent, key=lambda post: post.due_s)
            if due > sent:
                queue.send_many([_draft(post.body, file.stem) for post in posts[sent:due]])
            sent = due
            time.sleep(PAUSE_S)


def _draft(body: dict[str, Any], airline: str) -> Draft:
    return draft(body, group=body["tail"], revision=body["revision"], attributes={"airline": airline})


if __name__ == "__main__":
    send(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))
