"""A producer in its own process: sends the messages of one airline, each when it is due.

python -m inturn.demo.producer flights.db#flights UA.jsonl 1363000000.0
"""

import sys
import time
from bisect import bisect
from pathlib import Path
from typing import Any

import msgspec

from inturn.demo.senders import sender

PAUSE_S = 0.05
"""The time between two checks of the clock; messages that became due are sent in one transaction."""


class Post(msgspec.Struct, frozen=True):
    """A message of an airline."""

    due_s: float
    body: dict[str, Any]


def send(target: str, file: Path, began: float) -> None:
    """Send the messages of a file.

    Args:
        target: the queue, or a broker's; see :func:`inturn.demo.senders.sender`.
        file: messages in the order in which they are due; its name is the airline's.
        began: begin of the run, in seconds since 1970.
    """
    posts = msgspec.json.Decoder(Post).decode_lines(file.read_bytes())
    with sender(target, file.stem) as send_all:
        sent = 0
        while sent < len(posts):
            due = bisect(posts, time.time() - began, lo=sent, key=lambda post: post.due_s)
            if due > sent:
                send_all([post.body for post in posts[sent:due]])
            sent = due
            time.sleep(PAUSE_S)


if __name__ == "__main__":
    send(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))
