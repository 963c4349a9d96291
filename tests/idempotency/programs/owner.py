"""Locks a key, says so, does something and accepts: python owner.py KIND TARGET. A test kills it on the way.

With a database what it does is a row, in one transaction with the accept.
"""

import sys

import redis

import inturn
from inturn.idempotency import Locked, RedisKeys

if __name__ == "__main__":
    kind, target = sys.argv[1:3]
    if kind == "redis":
        keys = RedisKeys(redis.Redis(host="127.0.0.1", port=int(target)), "payments")
        lock = keys.try_lock("tx-1")
        assert isinstance(lock, Locked)
        print(lock.fencing_token, flush=True)
        sys.stdin.read()
    else:
        db = inturn.open(target)
        keys = db.idempotency_keys("payments")
        lock = keys.try_lock("tx-1")
        assert isinstance(lock, Locked)
        print(lock.fencing_token, flush=True)
        with db.transaction() as tx:
            tx.execute("insert into paid values ('tx-1')")
            keys.accept(lock, "paid", tx=tx)
