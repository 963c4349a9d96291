"""All bounds of inturn, by name: numbers, sizes and times."""

from typing import Final

REMEMBERED_REVISIONS: Final = 64
"""Number of applied revisions that a group remembers by digest from step to step. An older copy can no longer be told
from a conflict and is counted as stale."""

REMEMBERED_CONFLICTS: Final = 256
"""Number of conflicting contents that a group remembers from step to step, those of its highest places. A further copy
of one of them is a duplicate; a copy of any other is reported again."""

REMEMBERED_IDS: Final = 1024
"""Number of applied ids below its watermark that a ``Timestamp`` group remembers. An older copy is below the watermark,
so it is rejected as late. ``Arrival`` has no position that could refuse an old copy, so it remembers every id."""

REMEMBERED_TOGETHER: Final = 128
"""Number of applied ids that a worker writes together with their ``Arrival`` group. Further ids get rows of their own,
which are read for incoming ids: a turn writes only what is new, however many ids there are."""

HELD_AT_ONCE: Final = 1_000
"""Number of held messages of a group that a worker reads at a time; of a group that holds more, a turn reads only those
that it may release."""

FIRST_TURN: Final = -(2**63)
"""The first place that a message can have: places are kept in 64 bits."""

SNAPSHOT_EVERY: Final = 1_000
"""The most messages applied again to restore a state that a failing handler changed in place."""

CHUNK_ROWS: Final = 50_000
"""Number of rows that the kernel processes at a time."""

SORT_ROWS: Final = 1_000_000
"""Number of rows that a task sorts in memory; beyond that it sorts runs on disk and merges them."""

SORT_BYTES: Final = 256 * 1024 * 1024
"""Number of bytes that a task sorts in memory; beyond that it sorts runs on disk and merges them."""

MERGE_ROWS: Final = 20_000
"""Number of rows of each sorted run in memory while runs are merged."""

LEVELS: Final = 8
"""Number of levels of a store before the newest are merged; every step searches every level."""

ROW_GROUP_ROWS: Final = 32_768
"""Number of rows in a row group of a data file, and so in a reader's memory at a time."""

BUCKETS: Final = 8
"""Number of slices of the hash space among which a new store divides its groups, by default."""

MAX_BUCKETS: Final = 65_536
"""The most slices that a store can have."""

VALUE_DEPTH: Final = 100
"""The deepest nesting of values in a state, an output or a body."""

NAME_LENGTH: Final = 200
"""The longest name of a pipeline, a queue or a reader, in characters."""

VERSION: Final = 2**31 - 1
"""The greatest version of a pipeline."""

REVISION: Final = 2**63 - 1
"""The greatest revision: it is kept in 64 bits. ``Gapless`` takes none as great: the next one would not fit."""

START: Final = -(2**63) + 1
"""The smallest start of ``Gapless``: the revision before it must fit into 64 bits too."""

DURATION_US: Final = 1_000 * 365 * 86_400 * 1_000_000
"""The longest lateness, wait and pause: a thousand years, in microseconds. A longer one is refused."""

SEQUENCE_BITS: Final = 44
"""Number of bits of a sequence number that count the messages of one queue: 17 million million of them."""

VISIBILITY_S: Final = 43_200
"""The longest lease of a message at a time: twelve hours, as in SQS."""

DELAY_S: Final = 365 * 86_400
"""The longest time for which a message is hidden after its send, or after it was given back."""

RETRY_GROWTH: Final = 1_000
"""The greatest factor between the retry delays of one attempt and the next."""

KEPT_S: Final = 1_000 * 365 * 86_400
"""The longest finite retention and deduplication window; None is for ever."""

MAX_RECEIVES: Final = 1_000
"""The most attempts that a queue can allow before a message goes to its dead-letter queue, as in SQS."""

MAX_DEPTH: Final = 2**SEQUENCE_BITS
"""The greatest ``max_depth`` of a queue: no queue can give out more sequence numbers."""

PRIORITY: Final = 100
"""The highest priority of a group, and with a minus sign the lowest."""

PRIORITY_LEAD: Final = 2**32
"""The greatest ``priority_lead`` of a queue, so that the lead of the highest priority is a sequence number."""

BODY_BYTES: Final = 1_048_576
"""The longest body, with its attributes, as in SQS."""

ID_LENGTH: Final = 1_000
"""The longest name of a group and the longest deduplication id, in characters."""

KNOWN_NAMES: Final = 1_000
"""Number of names too long for an index of PostgreSQL that a process remembers."""

SHOWN_LENGTH: Final = 200
"""Number of characters of a foreign text shown in a table, in a sentence or in an error."""

RECEIVE_MESSAGES: Final = 1_000
"""The most messages of one receive."""

RATE_TIMES: Final = 1_000_000
"""The most messages, and the longest burst, of a rate."""

RATES_AT_ONCE: Final = 100
"""Number of rate limits of groups that are no longer in force and that one transaction forgets."""

READ_MESSAGES: Final = 10_000
"""The most messages that a reader or a peek takes at a time."""

RESULT_ROWS: Final = 1_000
"""Number of rows of a pipeline's results in memory at a time."""

DECISION_FILES: Final = 20
"""Number of a Spark store's last files of decisions among which those of a group are found."""

HISTORY_ROWS: Final = 10_000
"""Number of a pipeline's last decisions, and of its last rejected messages, among which those of a group are found."""

BRIEFS_AT_ONCE: Final = 10_000
"""Number of groups that are not open in memory at a time, to sum them up."""

EXPIRE_AT_ONCE: Final = 1_000
"""Number of expired leases, and of messages past their retention, that one command clears away; the next goes on."""

LOG_BLOCK: Final = 4_096
"""Number of sequence numbers of a kept log that are measured, and indexed by group, together."""

LOG_LOOK_MS: Final = 1_000
"""The longest time after which a receive looks again for messages to remove from a log."""

KEPT_BYTES: Final = 2**62
"""The greatest ``keep_bytes`` of a queue."""

NOTED_SPANS: Final = 100_000
"""Number of leases, delays and locks beginning in the future of its clock that a process notes at a time."""

HEADS_AT_ONCE: Final = 64
"""Number of groups that receives look up together."""

NEWEST_MESSAGES: Final = 4_096
"""The least number of a queue's newest messages: those that are not in the index by group yet."""

KNOWN_GROUPS: Final = 100_000
"""Number of groups with messages that a process remembers."""

UNCOUNTED_MESSAGES: Final = 256
"""The most messages sent before the row of their queue counts them."""

CLOCK_SLACK_MS: Final = 3_600_000
"""Time beyond its window for which a deduplication id stays on disk, so that it is known after the clock was set
back."""

SWEEP_ROWS: Final = 128
"""The least number of remembered deduplication ids searched at once for outdated ones."""

COMMANDS_AT_ONCE: Final = 1_000
"""Number of commands in one transaction."""

TRANSACTION_S: Final = 10
"""The longest time for which a caller's transaction may hold the only write lock before it is rolled back."""

POLL_S: Final = 0.05
"""The longest delay until a waiting receive sees messages sent by another process."""

BUSY_S: Final = 30
"""Time for which a command waits for another process that holds the write lock."""

ERROR_LENGTH: Final = 20_000
"""Number of characters of an error and its traceback that are kept with a parked group."""

BROKER_ACTIVE: Final = 100
"""Number of tasks of a ``QueueBroker`` active at once, by default."""

BROKER_QUEUED: Final = 10_000
"""The most waiting tasks of a ``QueueBroker``, by default."""

BROKER_REMEMBERED: Final = 100_000
"""Number of deduplication ids that a ``QueueBroker`` remembers; beyond it the oldest is forgotten before its window
ends."""

BROKER_OVERTAKINGS: Final = 16
"""Number of tasks without a group in a row after which one of a group has its turn, with ``ungrouped-first``."""

BROKER_BURST_S: Final = 0.001
"""Time for which a worker of a ``QueueBroker`` runs one task after the other before it yields to the event loop; tasks
that await something yield by themselves. The first two of a burst do not count."""

BROKER_WAIT_S: Final = 100 * 365 * 86_400
"""The longest wait for a turn that has a timer; a longer one is for ever."""

BROKER_STUCK_S: Final = 5
"""Time after a task was queued at which a ``QueueBroker`` checks whether all its slots wait for its own queue."""

KEY_LOCK_S: Final = 60
"""Time for which an idempotency key is in progress, by default: after a crash nobody runs its operation for that
long."""

KEY_LOCK_MAX_S: Final = 43_200
"""The longest time for which an idempotency key is in progress at once: twelve hours, as with a message."""

KEY_KEPT_S: Final = 86_400
"""Time for which a completed idempotency key is remembered, by default."""

KEY_EXPIRE_AT_ONCE: Final = 4
"""Number of expired keys that one change clears away. One change makes one key at most, so the rest goes soon."""

KEY_TOKEN_SHARDS: Final = 1_024
"""Number of token counters in Redis: clients that lock keys of one counter at the same time retry."""

KEY_TRIES: Final = 100
"""Number of tries in Redis when another client has changed the key or its counter meanwhile. Of the clients that try at
the same time one always succeeds."""

FORGET_AT_ONCE: Final = 10
"""Number of outdated receives or signatures that are forgotten whenever one is remembered: more than come."""

STATE_BYTES: Final = 1_048_576
"""The longest state of a session."""

SOURCE_ROWS: Final = 100_000
"""The most messages that a micro-batch of Spark takes out of a queue's log, by default."""

SOURCE_TASK_ROWS: Final = 20_000
"""Number of messages of a queue's log that justify another task of Spark."""

SOURCE_ARROW_ROWS: Final = 10_000
"""The most messages handed to Spark at once, as ``spark.sql.execution.arrow.maxRecordsPerBatch`` has it."""

SOURCE_ARROW_BYTES: Final = 8 * 1024 * 1024
"""Total length of the bodies handed to Spark at once after which no more are added."""

SOURCE_FETCH_ROWS: Final = 64
"""Number of messages of a queue's log fetched before their bodies are measured: the longest make 64 MB."""

SOURCE_RELEASE_ROWS: Final = 1_000
"""Number of messages acknowledged for Spark in one transaction."""

WORKER_CONCURRENCY: Final = 8
"""Number of groups that a worker processes at once, by default."""

WORKER_IDLE_S: Final = 0.2
"""The longest delay until an idle worker sees a decision, a wait that is over, or a stop."""

WORKER_AHEAD_S: Final = 0.1
"""Time for which a worker takes messages ahead, about: no other worker can have the messages that it has taken."""

WORKER_ASLEEP: Final = 256
"""Number of a worker's groups that wait for another attempt beside those in their turns; further ones keep their turn
while they wait."""

PARK_AGAIN_MS: Final = 10_000
"""Time for which a message is hidden whose group a consumer could not park, since a receiver holds a message of it."""

WORKER_GRACE_S: Final = 30.0
"""Time for which a stopped worker waits for the turns that have begun, by default."""

SIGNAL_REPEAT_S: Final = 1.0
"""Time after the first signal that stops a process in which a SIGINT counts as the same one, sent to it twice; a person
who presses Ctrl-C again, since it takes too long, does so later."""

UNAVAILABLE_PAUSE_S: Final = 5.0
"""The longest pause before a worker or a consumer tries a database again that was unavailable; the first is short."""

IDLE_AGAIN_S: Final = 1.0
"""Time after which a worker looks again at an idle group of which it cannot have the messages in the queue yet."""

WORKER_LOOK_S: Final = 0.2
"""Time after which a service looks whether its workers and processes still run."""

WORKER_PROCESSES: Final = 256
"""Maximum of ``--processes`` of ``inturn work``."""

WORKER_RESTART_S: Final = 1.0
"""Pause before a killed process of ``inturn work`` is started again."""

DECIDED_AT_ONCE: Final = 1_000
"""Number of groups that are read at a time to decide about them, or for a dry run."""

DECISIONS_AT_ONCE: Final = 10_000
"""The most decisions that a step on Spark takes, and that one file of them holds: the plan of a step has them all."""

GROUPS_AT_ONCE: Final = 100
"""Number of groups whose wait is over, and of decisions, that a worker takes up at a time."""

OUTBOX_OUTPUTS: Final = 100
"""Number of a group's outputs taken out of the outbox at a time."""

OUTBOX_NOTES: Final = 1_000
"""Number of notes about groups with new outputs that one claim draws at a time, with PostgreSQL."""

DELIVER_PAUSE_S: Final = 0.01
"""The shortest pause before an output is delivered again, so that one that fails at once does not keep a core busy."""

DELIVER_TIMEOUT_S: Final = 30.0
"""Time for which a receiver of outputs may be silent before the delivery has failed."""

DELIVER_DENIED_S: Final = 300.0
"""Time for which an output is delivered again that its endpoint denies by 401, 403 or 404, by default: a deploy, or a
key that is being rotated, does not last as long."""

DELIVER_RETRY_AFTER_S: Final = 3_600.0
"""The longest pause that a receiver of outputs can ask for, as by ``Retry-After``."""

DELIVER_POLL_S: Final = 0.1
"""The longest wait for the acknowledgement of a record of Kafka at a time."""

DELIVERY_REFUSED_MS: Final = 253_370_764_800_000
"""The time of the next attempt of a refused delivery: the year 9999. Nothing else is due so late."""

CHAIN_PAUSE_S: Final = 10.0
"""Pause before an output of the outbox that cannot be sent to the queue of a chain is tried again."""

OUTBOX_LEASE_S: Final = 30.0
"""Time for which only one worker delivers the outputs of a group, unless that worker keeps them for longer."""

TURN_LEASE_S: Final = 30.0
"""Time for which nobody else begins a turn of decisions or of a wait that is over, unless its worker extends it."""

ALONE_S: Final = 10.0
"""Time for which a worker begins nothing beside what its process may die of, and for which that waits for each of the
others to end. What has run for longer holds nothing up: it may never end."""

WORKER_LEASE_MS: Final = 200
"""The shortest lease of a worker, whatever its queue's setting: the worker needs time to extend it."""

WORKER_DOUBTFUL: Final = 10
"""Number of groups that a worker tries with a handler whose every result was wrong, before it ends."""

WORKER_GATHER_S: Final = 0.005
"""Time for which a worker gathers finished turns into one transaction, while there are others that can begin."""

FIGURES_ROWS: Final = 100_000
"""Number of a pipeline's groups that are not open, and of its outputs, that are counted for metrics."""

FIGURES_PARTITIONS: Final = 100
"""The most partitions of a source that metrics show one by one. Those of a source with more, such as a folder of many
files, are summed up."""

FIGURES_S: Final = 1.0
"""Time for which the figures of a database are shown again before they are read anew, however often a page is asked."""

LOG_EVENTS: Final = 10
"""Number of records of one event, of one pipeline or queue, that are logged within ``LOG_WINDOW_S``."""

LOG_WINDOW_S: Final = 60.0
"""Time after which an event is logged again, with the number of those that were not."""

LOG_NAMES: Final = 1_000
"""Number of events of pipelines and queues whose records are counted at a time."""

NAMED_FIELDS: Final = 5
"""Number of differing fields that the detail of a conflict names."""

NAMED_FILES: Final = 5
"""Number of missing files of a store that an error names; further ones are counted."""

RESTORED_TOKENS: Final = 2**32
"""Step by which the fencing tokens of a queue jump when it is restored: more than the abandoned history can have given
out."""

INCARNATIONS: Final = 1_000
"""Number of a queue's newest incarnations that are kept in any case; older ones are kept only as far as a reader is
behind them."""

CONSOLE_ANSWER_S: Final = 3.0
"""Time for which a page of the console waits for a database that is locked or does not answer."""

CONSOLE_LISTENERS: Final = 200
"""The most open pages that a console tells of changes."""
