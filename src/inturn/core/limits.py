"""All bounds of inturn, by name: numbers, sizes and times."""

from typing import Final

REMEMBERED_REVISIONS: Final = 64
"""Number of applied revisions of which a group remembers the digests from step to step. A copy of an older one cannot
be distinguished from a conflict, so it is counted as stale."""

REMEMBERED_CONFLICTS: Final = 256
"""Number of conflicting contents that a group remembers from step to step: those at its highest places. A further copy
of a remembered content is a duplicate; a copy of any other is reported again."""

REMEMBERED_IDS: Final = 1024
"""Number of applied ids below its watermark that a ``Timestamp`` group remembers. A copy with an older id is below the
watermark, so it is rejected as late. An ``Arrival`` group has no position by which it could refuse an old copy, so it
remembers every id."""

REMEMBERED_TOGETHER: Final = 128
"""Number of applied ids that a worker stores together with their ``Arrival`` group. Each further id gets its own row,
and a task reads only the rows of incoming ids. So a task writes only what is new, however many ids there are."""

HELD_AT_ONCE: Final = 1_000
"""Maximum number of held messages of a group that a worker reads at a time. Of a group that holds more, a task reads
only the messages that it may release."""

FIRST_TURN: Final = -(2**63)
"""Smallest place of a message: places are stored as 64-bit integers."""

SNAPSHOT_EVERY: Final = 1_000
"""Maximum number of messages that are applied again to restore a state that a failing handler changed in place."""

CHUNK_ROWS: Final = 50_000
"""Number of rows that the kernel processes at a time."""

SORT_ROWS: Final = 1_000_000
"""Number of rows that a task sorts in memory; beyond that it sorts runs on disk and merges them."""

SORT_BYTES: Final = 256 * 1024 * 1024
"""Number of bytes that a task sorts in memory; beyond that it sorts runs on disk and merges them."""

MERGE_ROWS: Final = 20_000
"""Number of rows of each sorted run that are in memory while runs are merged."""

LEVELS: Final = 8
"""Number of levels at which a store merges the newest ones; every step searches every level."""

ROW_GROUP_ROWS: Final = 32_768
"""Number of rows in a row group of a data file. A reader has one row group in memory at a time."""

BUCKETS: Final = 8
"""Default number of slices of the hash space among which a new store divides its groups."""

MAX_BUCKETS: Final = 65_536
"""Maximum number of slices of a store."""

VALUE_DEPTH: Final = 100
"""Maximum nesting depth of values in a state, an output or a body."""

NAME_LENGTH: Final = 200
"""Maximum length of the name of a pipeline, a queue or a reader, in characters."""

VERSION: Final = 2**31 - 1
"""Maximum version of a pipeline."""

REVISION: Final = 2**63 - 1
"""Maximum 64-bit revision. ``Gapless`` refuses a message with this revision: the next one would not fit into 64
bits."""

START: Final = -(2**63) + 1
"""Minimum ``start`` of ``Gapless``: the revision before it must fit into 64 bits too."""

DURATION_US: Final = 1_000 * 365 * 86_400 * 1_000_000
"""Maximum lateness, wait and pause: a thousand years, in microseconds. A longer one is refused."""

SEQUENCE_BITS: Final = 44
"""Number of bits of a sequence number that count the messages of one queue: up to 17 trillion messages."""

VISIBILITY_S: Final = 43_200
"""Maximum duration of a lease, from each receive or extension: twelve hours, as in SQS."""

DELAY_S: Final = 365 * 86_400
"""Maximum time for which a message is hidden after it was sent or nacked."""

RETRY_GROWTH: Final = 1_000
"""Maximum factor between one retry delay and the next."""

KEPT_S: Final = 1_000 * 365 * 86_400
"""Maximum finite retention and deduplication window; None means forever."""

MAX_RECEIVES: Final = 1_000
"""Maximum number of attempts that a queue can allow before a message is moved to its dead-letter queue, as in SQS."""

MAX_DEPTH: Final = 2**SEQUENCE_BITS
"""Maximum ``max_depth`` of a queue: no queue can assign more sequence numbers."""

PRIORITY: Final = 100
"""Maximum priority of a group; the minimum is the same number with a minus sign."""

PRIORITY_LEAD: Final = 2**32
"""Maximum ``priority_lead`` of a queue: with it the lead of the highest priority is still a sequence number."""

BODY_BYTES: Final = 1_048_576
"""Maximum size of a body together with its attributes, as in SQS."""

ID_LENGTH: Final = 1_000
"""Maximum length of a group's name and of a deduplication id, in characters."""

KNOWN_NAMES: Final = 1_000
"""Number of names that a process remembers because they are too long for an index of PostgreSQL."""

SHOWN_LENGTH: Final = 200
"""Maximum number of characters of a foreign text that a table, a sentence or an error shows."""

RECEIVE_MESSAGES: Final = 1_000
"""Maximum number of messages of one receive."""

RATE_TIMES: Final = 1_000_000
"""Maximum number of messages, and maximum burst, of a rate."""

RATES_AT_ONCE: Final = 100
"""Maximum number of rate limits of groups that one transaction deletes because they are no longer in force."""

READ_MESSAGES: Final = 10_000
"""Maximum number of messages that a reader or a peek returns at a time."""

RESULT_ROWS: Final = 1_000
"""Number of rows of a pipeline's results that are in memory at a time."""

DECISION_FILES: Final = 20
"""Number of the latest decision files of a Spark store in which the decisions about a group are searched."""

HISTORY_ROWS: Final = 10_000
"""Number of a pipeline's latest decisions, and of its latest rejected messages, in which those of a group are
searched."""

BRIEFS_AT_ONCE: Final = 10_000
"""Number of groups that are not open and that are in memory at a time to be summarized."""

EXPIRE_AT_ONCE: Final = 1_000
"""Maximum number of expired leases, and of messages past their retention, that one command removes; the next command
continues."""

LOG_BLOCK: Final = 4_096
"""Number of sequence numbers of a kept log that are measured, and indexed by group, together."""

LOG_LOOK_MS: Final = 1_000
"""Maximum time after which a receive checks again for messages to remove from a log."""

KEPT_BYTES: Final = 2**62
"""Maximum ``keep_bytes`` of a queue."""

NOTED_SPANS: Final = 100_000
"""Maximum number of leases, delays and locks that a process records at a time because they begin in the future of its
clock."""

HEADS_AT_ONCE: Final = 64
"""Number of groups that receives look up together."""

NEWEST_MESSAGES: Final = 4_096
"""Minimum number of a queue's newest messages: the messages that are not yet in the index by group."""

KNOWN_GROUPS: Final = 100_000
"""Number of groups with messages that a process remembers."""

UNCOUNTED_MESSAGES: Final = 256
"""Maximum number of sent messages that the row of their queue does not count yet."""

CLOCK_SLACK_MS: Final = 3_600_000
"""Time beyond its window for which a deduplication id is stored, so that it is still known after the clock was set
back."""

SWEEP_ROWS: Final = 128
"""Minimum number of remembered deduplication ids that are searched at once for expired ones."""

COMMANDS_AT_ONCE: Final = 1_000
"""Maximum number of commands in one transaction."""

TRANSACTION_S: Final = 10
"""Maximum time for which a caller's transaction may hold the only write lock before it is rolled back."""

POLL_S: Final = 0.05
"""Maximum delay until a waiting receive sees messages sent by another process."""

BUSY_S: Final = 30
"""Time for which a command waits for another process that holds the write lock."""

ERROR_LENGTH: Final = 20_000
"""Maximum number of characters of an error and its traceback that are stored with a parked group."""

BROKER_ACTIVE: Final = 100
"""Default number of tasks of a ``QueueBroker`` that are active at once."""

BROKER_QUEUED: Final = 10_000
"""Default maximum number of waiting tasks of a ``QueueBroker``."""

BROKER_REMEMBERED: Final = 100_000
"""Number of deduplication ids that a ``QueueBroker`` remembers; beyond it the oldest is forgotten before its window
ends."""

BROKER_OVERTAKINGS: Final = 16
"""Number of consecutive tasks without a group after which a task of a group runs, with ``ungrouped-first``."""

BROKER_BURST_S: Final = 0.001
"""Time for which a worker of a ``QueueBroker`` runs one task after another before it yields to the event loop; tasks
that await something yield anyway. The first two tasks of a burst do not count."""

BROKER_WAIT_S: Final = 100 * 365 * 86_400
"""Maximum wait for a slot for which a timer is set; a longer wait has no time-out."""

BROKER_STUCK_S: Final = 5
"""Time after a task was queued at which a ``QueueBroker`` checks whether all its slots wait for its own queue."""

KEY_LOCK_S: Final = 60
"""Default time for which an idempotency key is in progress: after a crash no caller runs its operation for that
long."""

KEY_LOCK_MAX_S: Final = 43_200
"""Maximum time for which an idempotency key is in progress, from each lock or extension: twelve hours, as with the
lease of a message."""

KEY_KEPT_S: Final = 86_400
"""Default time for which a completed idempotency key is remembered."""

KEY_EXPIRE_AT_ONCE: Final = 4
"""Number of expired keys that one change removes. One change creates at most one key, so the others are removed
soon."""

KEY_TOKEN_SHARDS: Final = 1_024
"""Number of token counters in Redis. Clients that lock keys of one counter at the same time retry."""

KEY_TRIES: Final = 100
"""Maximum number of attempts in Redis when another client has changed the key or its counter in the meantime. Of the
clients that try at the same time, one always succeeds."""

FORGET_AT_ONCE: Final = 10
"""Number of outdated receives or signatures that are forgotten whenever one is remembered: more than are added."""

STATE_BYTES: Final = 1_048_576
"""Maximum size of the state of a session."""

SOURCE_ROWS: Final = 100_000
"""Default maximum number of messages that a micro-batch of Spark reads from a queue's log."""

SOURCE_TASK_ROWS: Final = 20_000
"""Number of messages of a queue's log for each Spark task."""

SOURCE_ARROW_ROWS: Final = 10_000
"""Maximum number of messages passed to Spark at once, like ``spark.sql.execution.arrow.maxRecordsPerBatch``."""

SOURCE_ARROW_BYTES: Final = 8 * 1024 * 1024
"""Total length of the bodies passed to Spark at once; no more are added once it is reached."""

SOURCE_FETCH_ROWS: Final = 64
"""Number of messages of a queue's log that are fetched before their bodies are measured: 64 MB if all have the maximum
size."""

SOURCE_RELEASE_ROWS: Final = 1_000
"""Number of messages acknowledged for Spark in one transaction."""

WORKER_CONCURRENCY: Final = 8
"""Default number of groups that a worker processes at once."""

WORKER_IDLE_S: Final = 0.2
"""Maximum delay until an idle worker sees a decision, an expired wait or a stop."""

WORKER_AHEAD_S: Final = 0.1
"""Approximate time for which a worker receives messages in advance. No other worker can receive these messages."""

WORKER_ASLEEP: Final = 256
"""Number of a worker's groups that may wait for another attempt in addition to the groups with running tasks; further
groups keep their place in the pool while they wait."""

PARK_AGAIN_MS: Final = 10_000
"""Time for which a message is hidden if a consumer could not park its group because a receiver holds a message of the
group."""

WORKER_GRACE_S: Final = 30.0
"""Default time for which a stopped worker waits for the tasks that have begun."""

SIGNAL_REPEAT_S: Final = 1.0
"""Time after the first stop signal of a process in which a SIGINT counts as the same signal, sent twice. A user who
presses Ctrl-C again because the stop takes too long does so later."""

UNAVAILABLE_PAUSE_S: Final = 5.0
"""Maximum pause before a worker or a consumer tries an unavailable database again; the first pause is short."""

IDLE_AGAIN_S: Final = 1.0
"""Time after which a worker checks an idle group again whose messages in the queue it cannot receive yet."""

WORKER_LOOK_S: Final = 0.2
"""Interval at which a service checks whether its workers and processes still run."""

WORKER_PROCESSES: Final = 256
"""Maximum of ``--processes`` of ``inturn work``."""

WORKER_RESTART_S: Final = 1.0
"""Pause before a killed process of ``inturn work`` is restarted."""

DECIDED_AT_ONCE: Final = 1_000
"""Number of groups that are read at a time for decisions about them, or for a dry run."""

DECISIONS_AT_ONCE: Final = 10_000
"""Maximum number of decisions that a step on Spark applies, and that one decision file contains: the plan of a step
contains all of them."""

GROUPS_AT_ONCE: Final = 100
"""Maximum number of groups with an expired wait, and of decisions, that a worker reads at a time."""

OUTBOX_OUTPUTS: Final = 100
"""Maximum number of a group's outputs that are read from the outbox at a time."""

OUTBOX_NOTES: Final = 1_000
"""Maximum number of notes about groups with new outputs that one claim reads at a time, with PostgreSQL."""

DELIVER_PAUSE_S: Final = 0.01
"""Minimum pause before an output is delivered again, so that a delivery that fails at once does not keep a core
busy."""

DELIVER_TIMEOUT_S: Final = 30.0
"""Time for which a receiver of outputs may be silent before the delivery fails."""

DELIVER_DENIED_S: Final = 300.0
"""Default time for which an output is delivered again after its endpoint denied it with 401, 403 or 404: a deployment
or the rotation of a key takes less time."""

DELIVER_RETRY_AFTER_S: Final = 3_600.0
"""Maximum pause that a receiver of outputs can request, for instance with ``Retry-After``."""

DELIVER_POLL_S: Final = 0.1
"""Maximum duration of one wait for the acknowledgement of a Kafka record."""

DELIVERY_REFUSED_MS: Final = 253_370_764_800_000
"""Time of the next attempt of a refused delivery: the year 9999. No other delivery is due so late."""

CHAIN_PAUSE_S: Final = 10.0
"""Pause before another attempt at an output of the outbox that cannot be sent to the queue of a chain."""

OUTBOX_LEASE_S: Final = 30.0
"""Time for which only one worker delivers the outputs of a group, unless that worker extends it."""

TASK_LEASE_S: Final = 30.0
"""Time for which no other worker begins a task for decisions or an expired wait, unless its worker extends it."""

ALONE_S: Final = 10.0
"""Maximum time for which a worker starts no other work next to work that may have killed its process, and for which
that work waits for each of the others to end. Work that has run for longer delays nothing: it may never end."""

WORKER_LEASE_MS: Final = 200
"""Minimum lease of a worker, whatever the setting of its queue: the worker needs time to extend it."""

WORKER_DOUBTFUL: Final = 10
"""Number of groups that a worker tries with a handler that has returned only invalid results; then the worker ends."""

WORKER_GATHER_S: Final = 0.005
"""Time for which a worker collects finished tasks into one transaction while other tasks can begin."""

FIGURES_ROWS: Final = 100_000
"""Maximum number of a pipeline's groups that are not open, and of its outputs, that are counted for metrics."""

FIGURES_PARTITIONS: Final = 100
"""Maximum number of partitions of a source that metrics show one by one. The partitions of a source with more, such as
a folder of many files, are summed up."""

FIGURES_S: Final = 1.0
"""Time for which the figures of a database are shown again before they are read anew, however often a page is
requested."""

LOG_EVENTS: Final = 10
"""Maximum number of records of one event, of one pipeline or queue, that are logged within ``LOG_WINDOW_S``."""

LOG_WINDOW_S: Final = 60.0
"""Time after which an event is logged again, with the number of records that were not logged."""

LOG_NAMES: Final = 1_000
"""Maximum number of events of pipelines and queues whose records are counted at a time."""

NAMED_FIELDS: Final = 5
"""Maximum number of differing fields that the detail of a conflict names."""

NAMED_FILES: Final = 5
"""Maximum number of missing files of a store that an error names; further ones are counted."""

RESTORED_TOKENS: Final = 2**32
"""Increment of the fencing tokens of a queue when it is restored: more than the abandoned history can have given
out."""

INCARNATIONS: Final = 1_000
"""Number of a queue's newest incarnations that are always kept; older ones are kept only while a reader has not read
past them."""

CONSOLE_ANSWER_S: Final = 3.0
"""Time for which a page of the console waits for a database that is locked or does not answer."""

CONSOLE_LISTENERS: Final = 200
"""Maximum number of open pages that a console notifies of changes."""
