"""The hash of a group, and the buckets of hashes that divide the groups among tasks."""

import xxhash

_SEED = 42
"""The seed of Spark's ``xxhash64``."""


def group_hash(group: str) -> int:
    """Return Spark's ``xxhash64`` of a group's text form: XXH64 of its UTF-8, signed, with seed 42."""
    unsigned = xxhash.xxh64_intdigest(group.encode("utf-8", "surrogatepass"), seed=_SEED)
    return unsigned - (1 << 64) if unsigned >= 1 << 63 else unsigned


def bucket_bounds(bucket: int, buckets: int) -> tuple[int, int]:
    """Return the least and the greatest hash of a bucket; the high 32 bits divide the hash range into equal parts."""
    low, end = (-(-(number << 32) // buckets) - (1 << 31) for number in (bucket, bucket + 1))
    return low << 32, (end << 32) - 1


def bucket_sql(hash_: str, buckets: int) -> str:
    """Return the Spark SQL of the bucket of a hash, given as SQL: the same division as :func:`bucket_bounds`."""
    return f"CAST(shiftright((shiftright({hash_}, 32) + {1 << 31}L) * {buckets}, 32) AS int)"
