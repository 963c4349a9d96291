"""The erasure of a group in a database; a process that a test kills: python forgetting.py DATABASE GROUP."""

import sys

import inturn
from inturn.core import limits
from inturn.erasure import forget

if __name__ == "__main__":
    limits.EXPIRE_AT_ONCE = 2  # type: ignore[misc]  # several transactions for a few messages
    with inturn.open(sys.argv[1], create=False) as db:
        forget(db, sys.argv[2], by="officer", why="asked for it")
