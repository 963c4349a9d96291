"""The erasure of a group in a store on Spark; a process that a test kills: python forgetting_store.py STORE GROUP."""

import sys

from inturn.erasure import forget_in_store

if __name__ == "__main__":
    forget_in_store(sys.argv[1], sys.argv[2], by="officer", why="asked for it")
