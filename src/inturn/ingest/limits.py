"""The bounds of sources and webhooks, each with its reason."""

from typing import Final

INGEST_RECORDS: Final = 1_000
"""Maximum number of records in one transaction, by default."""

INGEST_BYTES: Final = 16 * 1_048_576
"""Maximum size of the records in one transaction, in bytes, by default, unless one record is larger: keys, bodies and
headers. A process holds a small multiple of it: 142 MB with bodies of 10 MB, where 80 of them took 866."""

INGEST_LEASE_S: Final = 10.0
"""Lease on a source's partition: the time another instance waits for one that died."""

INGEST_LEASE_MIN_S: Final = 0.1
"""The shortest lease: it is renewed three times within it, each time by a transaction."""

INGEST_LEASE_MAX_S: Final = 86_400.0
"""The longest lease: a day."""

INGEST_CALL_S: Final = 600.0
"""Time after which a call to a source counts as hung: the leases on its partitions are no longer renewed."""

INGEST_POLL_S: Final = 0.5
"""Time of one poll for records, and so the longest delay of a stop."""

INGEST_REQUEST_S: Final = 5.0
"""Time within which a source's broker must answer a request, such as for its partitions."""

INGEST_STALL_S: Final = 60.0
"""Time without a finished round after which a source is reported as failing."""

RABBITMQ_PREFETCH: Final = 500
"""Number of messages that RabbitMQ delivers before the first of them is committed, by default."""

RABBITMQ_HELD_BYTES: Final = 256 * 1_048_576
"""Size of the delivered messages of RabbitMQ in memory, in bytes, above which a warning is logged: RabbitMQ has no
bound in bytes."""

RABBITMQ_HEARTBEAT_S: Final = 10
"""Time of silence after which a connection to RabbitMQ is checked; after twice that time it counts as lost."""

BROKER_CALL_S: Final = 30.0
"""The longest wait for the answer of a broker."""

SQS_VISIBILITY_S: Final = 30
"""Time for which messages of SQS are hidden at a time while they wait for the commit, by default."""

SQS_CALLS: Final = 8
"""Number of calls to SQS at a time."""

INGEST_PAUSE_S: Final = 0.2
"""The first pause after an error of a source or a full queue; it doubles, up to :data:`INGEST_PAUSE_MAX_S`."""

INGEST_PAUSE_MAX_S: Final = 30.0
"""The longest pause after errors of a source. It is reached after 51 s of pauses, more than the restart of a broker
takes: then the error counts as lasting, and ends a run with ``until="caught up"``."""

UNKNOWN_SCHEMA_S: Final = 10.0
"""Time after which an unknown schema is requested from the registry again."""

FOLDER_RECORD_BYTES: Final = 16 * 1_048_576
"""Maximum length of a line, and of a field in CSV, that is held in memory."""

FOLDER_SKIPPED_BYTES: Final = 32 * 1_048_576
"""Maximum size between two records of a compressed file, such as of blank lines, in bytes. Compressed, it may be a
thousandth of that, and a poll returns nothing meanwhile: 32 MiB of blank lines took 7 seconds."""

FOLDER_DIGEST_BYTES: Final = 65_536
"""Length of the beginning and of the end of a file that identify it, together with its size."""

PARTITION_REMEMBERED_S: Final = 7 * 86_400
"""Time for which a removed partition is remembered after it was read to its end, such as a file: a week, after which a
restored copy would be read again."""

PARTITIONS_FORGOTTEN: Final = 1_000
"""Maximum number of removed partitions that one refresh marks, and that it forgets."""

REASON_LENGTH: Final = 1_000
"""Maximum number of characters in the reason stored with a rejected record."""

REJECTED_RECORDS: Final = 10_000
"""Maximum number of stored rejected records of a source, by default: enough to see each kind of fault. A commit with
rejected records counts the stored ones; 10,000 took 0.8 ms in SQLite and 1.2 ms in PostgreSQL."""

REJECTED_BYTES: Final = 256 * 1_048_576
"""Maximum size of the stored rejected records of a source, in bytes, by default."""

RESEND_BYTES: Final = 16 * 1_048_576
"""Maximum size of the rejected records in one transaction of a resend, in bytes, unless one record is larger."""

WEBHOOK_TOLERANCE_S: Final = 300.0
"""Maximum age of a webhook's signature, by default, as in Standard Webhooks and Stripe."""

WEBHOOK_RETRIES_S: Final = 345_600
"""Minimum time for which a webhook's queue remembers ids: four days. The schedule of Standard Webhooks ends after 75 h
35 min, Stripe's after three days."""

WEBHOOK_RETRY_AFTER_S: Final = 1
"""Value of ``Retry-After`` when a webhook's request could not be stored."""
