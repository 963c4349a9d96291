"""The bounds of sources and webhooks, each with its reason."""

from typing import Final

INGEST_RECORDS: Final = 1_000
"""Number of a source's records that one transaction takes at most, by default."""

INGEST_BYTES: Final = 16 * 1_048_576
"""Size of the records that one transaction takes at most, in bytes, by default, unless one record is larger: keys,
bodies and headers. A process holds a small multiple of it: 142 MB with bodies of 10 MB, where 80 of them took 866."""

INGEST_LEASE_S: Final = 10.0
"""Length of the lease on a source's partition: how long another instance waits for one that died."""

INGEST_LEASE_AT_LEAST_S: Final = 0.1
"""The shortest lease: it is renewed three times within it, each time by a transaction."""

INGEST_LEASE_AT_MOST_S: Final = 86_400.0
"""The longest lease: a day, after which somebody has looked."""

INGEST_CALL_S: Final = 600.0
"""Time after which a call to a source counts as hung: the leases on its partitions are not renewed any more."""

INGEST_POLL_S: Final = 0.5
"""Time for which a source waits for records at a time, and so the longest delay of a stop."""

INGEST_REQUEST_S: Final = 5.0
"""Time within which a source's broker answers a question, such as which partitions there are."""

INGEST_ROUND_S: Final = 60.0
"""Time after which a source whose records are read or committed without an end is in trouble, for its health."""

RABBITMQ_PREFETCH: Final = 500
"""Number of messages that RabbitMQ hands out before the first of them is committed, by default."""

RABBITMQ_HELD_BYTES: Final = 256 * 1_048_576
"""Size of the messages that RabbitMQ has handed out and that wait in memory, in bytes, above which the log says so: it
has no bound in bytes."""

RABBITMQ_HEARTBEAT_S: Final = 10
"""Time without a word after which a connection to RabbitMQ is checked; twice that, and it is lost."""

BROKER_CALL_S: Final = 30.0
"""The longest wait for the answer of a broker."""

SQS_VISIBILITY_S: Final = 30
"""Time for which messages of SQS are hidden at a time while they wait for the commit, by default."""

SQS_CALLS: Final = 8
"""Number of calls to SQS at a time."""

INGEST_PAUSE_S: Final = 0.2
"""The first pause after an error of a source or a full queue; it doubles, up to :data:`INGEST_PAUSE_AT_MOST_S`."""

INGEST_PAUSE_AT_MOST_S: Final = 30.0
"""The longest pause after errors of a source. It is reached after 51 s of pauses, more than the restart of a broker
takes: then an error is lasting, and ends a run that is only to catch up."""

UNKNOWN_SCHEMA_S: Final = 10.0
"""Time for which a schema registry is not asked again for a schema that it does not have."""

FOLDER_RECORD_BYTES: Final = 16 * 1_048_576
"""The longest part of a line, and of a field in CSV, that is read of a file: a longer one is never held whole."""

FOLDER_PASSED_BYTES: Final = 32 * 1_048_576
"""Size of what may follow a record of a compressed file before the next one, such as blank lines, in bytes. In the file
a thousandth of it is enough, and a poll has nothing to return meanwhile: 32 MiB of blank lines took 7 seconds."""

FOLDER_DIGEST_BYTES: Final = 65_536
"""Length of the beginning and of the end of a file by which it is known, with its size."""

PARTITION_REMEMBERED_S: Final = 7 * 86_400
"""Time for which a partition is remembered that was read to its end and removed, such as a file: a week, after which a
restored copy of it would be read again."""

PARTITIONS_FORGOTTEN: Final = 1_000
"""Number of removed partitions that one look notes, and that it forgets, at most."""

REASON_LENGTH: Final = 1_000
"""Number of characters of the reason that is kept with a rejected record."""

REJECTED_RECORDS: Final = 10_000
"""Number of rejected records that a source keeps, by default: enough to see each kind of fault. A commit with rejected
records counts those that are kept; 10,000 took 0.8 ms in SQLite and 1.2 ms in PostgreSQL."""

REJECTED_BYTES: Final = 256 * 1_048_576
"""Size of the rejected records that a source keeps, in bytes, by default: the database grows no further by them."""

RESEND_BYTES: Final = 16 * 1_048_576
"""Size of the rejected records that one transaction of a resend takes, in bytes, unless one record is larger."""

WEBHOOK_TOLERANCE_S: Final = 300.0
"""How old the time of a webhook's signature may be, by default, as Standard Webhooks and Stripe have it."""

WEBHOOK_RETRIES_S: Final = 345_600
"""Least time for which a webhook's queue remembers ids: four days. The schedule of Standard Webhooks ends after 75 h 35
min, Stripe's after three days."""

WEBHOOK_RETRY_AFTER_S: Final = 1
"""Seconds after which the sender of a webhook that could not be stored should send it again."""
