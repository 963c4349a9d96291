"""The bounds of sources, each with its reason."""

from typing import Final

INGEST_RECORDS: Final = 1_000
"""Number of a source's records that one transaction takes at most, by default."""

INGEST_LEASE_S: Final = 10.0
"""Length of the lease on a source's partition: how long another instance waits for one that died."""

INGEST_POLL_S: Final = 0.5
"""Time for which a source waits for records at a time, and so the longest delay of a stop."""

INGEST_REQUEST_S: Final = 5.0
"""Time within which a source's broker answers a question, such as which partitions there are."""

RABBITMQ_PREFETCH: Final = 500
"""Number of messages that RabbitMQ hands out before the first of them is committed, by default."""

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
"""The longest pause after errors of a source."""
