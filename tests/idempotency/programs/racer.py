"""Locks and accepts what it gets of many keys and prints them; others race: python racer.py KIND TARGET KEYS."""

import json
import sys

import redis

import inturn
from inturn.idempotency import IdempotencyKeys, RedisKeys


def keys_of(kind: str, target: str) -> IdempotencyKeys:
    if kind == "redis":
        return RedisKeys(redis.Redis(host="127.0.0.1", port=int(target)), "payments")
    return inturn.open(target, durable=False).idempotency_keys("payments")


if __name__ == "__main__":
    keys = keys_of(*sys.argv[1:3])
    print("ready", flush=True)
    sys.stdin.readline()
    mine = []
    for number in range(int(sys.argv[3])):
        if lock := keys.try_lock(f"tx-{number}"):
            mine.append(lock.key)
            keys.accept(lock, number)
    print(json.dumps(mine))
