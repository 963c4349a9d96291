"""Every bound in inturn, by name: what is kept, how long, how much at a time."""

from typing import Final

REMEMBERED_REVISIONS: Final = 64
"""How many applied revisions a group remembers by digest from step to step. An older copy cannot be told
from a conflict any more and is counted as stale."""

REMEMBERED_IDS: Final = 1024
"""How many applied ids below its watermark a ``Timestamp`` group remembers. An older copy is below the
watermark, so it is rejected as late. ``Arrival`` has no position that could refuse an old copy, so there
every id is remembered."""

REMEMBERED_TOGETHER: Final = 128
"""How many applied ids a worker writes together with their ``Arrival`` group. Beyond that they get rows of their own,
which are read by the ids that come: a turn writes what is new, however many ids there are."""

HELD_AT_ONCE: Final = 1_000
"""How many held messages of a group a worker reads at a time; of a group that holds more a turn reads only those that
it may let go."""

FIRST_TURN: Final = -(2**63)
"""The first place that a message can have: places are kept in 64 bits."""

SNAPSHOT_EVERY: Final = 1_000
"""How many messages at most are applied again to restore a state that a failing handler changed in place."""

CHUNK_ROWS: Final = 50_000
"""How many rows the kernel takes at a time."""

SORT_ROWS: Final = 1_000_000
"""How many rows a task sorts in memory; beyond that it sorts runs on disk and merges them."""

SORT_BYTES: Final = 256 * 1024 * 1024
"""How many bytes a task sorts in memory; beyond that it sorts runs on disk and merges them."""

MERGE_ROWS: Final = 20_000
"""How many rows of each sorted run are in memory while runs are merged."""

LEVELS: Final = 8
"""How many levels a store has before the newest are merged; every level is looked through by every step."""

ROW_GROUP_ROWS: Final = 32_768
"""How many rows a row group of a data file holds, and so how many a reader has in memory at a time."""

BUCKETS: Final = 8
"""Into how many slices of the hash space a new store divides its groups, if the user does not say."""

MAX_BUCKETS: Final = 65_536
"""The most slices a store can have."""

VALUE_DEPTH: Final = 100
"""How deeply the values of a state, an output or a body may be nested."""

NAME_LENGTH: Final = 200
"""The longest name of a pipeline."""

VERSION: Final = 2**31 - 1
"""The greatest version of a pipeline."""

REVISION: Final = 2**63 - 1
"""The greatest revision: it is kept in 64 bits. ``Gapless`` takes none as great: the next one would not fit."""

START: Final = -(2**63) + 1
"""The smallest start of ``Gapless``: the one before it fits into 64 bits too."""

DURATION_US: Final = 1_000 * 365 * 86_400 * 1_000_000
"""The longest lateness, wait and pause: a thousand years, in microseconds. What is longer is for ever."""

SEQUENCE_BITS: Final = 44
"""How many bits of a sequence number count the messages of one queue: 17 million million of them."""

VISIBILITY_S: Final = 43_200
"""The longest a message is leased at a time: twelve hours, as in SQS."""

DELAY_S: Final = 365 * 86_400
"""The longest a message is hidden after its send, or after it was given back."""

RETRY_GROWTH: Final = 1_000
"""The most by which a retry delay is multiplied from one attempt to the next."""

KEPT_S: Final = 1_000 * 365 * 86_400
"""The longest retention and the longest deduplication window that are numbers: what is longer is for ever, None."""

MAX_RECEIVES: Final = 1_000
"""The most attempts that a queue can allow before a message goes to its dead-letter queue, as in SQS."""

BODY_BYTES: Final = 1_048_576
"""The longest body, with its attributes, as in SQS."""

ID_LENGTH: Final = 1_000
"""The longest name of a group and the longest deduplication id, in characters."""

KNOWN_NAMES: Final = 1_000
"""How many names that are too long for an index of PostgreSQL a process remembers."""

SHOWN_LENGTH: Final = 200
"""So many characters of somebody's text are shown in a table, in a sentence or in an error."""

RECEIVE_MESSAGES: Final = 1_000
"""The most messages of one receive."""

READ_MESSAGES: Final = 10_000
"""The most messages that a reader or a peek takes at a time."""

EXPIRE_AT_ONCE: Final = 1_000
"""How many leases that are over, and messages past their retention, one command clears away; the next goes on."""

NOTED_SPANS: Final = 100_000
"""How many leases, delays and locks that began in the future of its clock a process notes; then the next of them."""

HEADS_AT_ONCE: Final = 64
"""How many groups are looked up together by receives."""

NEWEST_MESSAGES: Final = 4_096
"""How many messages of a queue are the newest at least: those that are not in the index by group yet."""

KNOWN_GROUPS: Final = 100_000
"""How many groups a process remembers to have messages."""

UNCOUNTED_MESSAGES: Final = 256
"""How many messages are sent at most before the row of their queue counts them."""

CLOCK_SLACK_MS: Final = 3_600_000
"""How much longer than its window a deduplication id is on disk, so that it is known after the clock was set back."""

SWEEP_ROWS: Final = 128
"""How many remembered deduplication ids are looked through at once, at least, for those that are too old."""

COMMANDS_AT_ONCE: Final = 1_000
"""How many commands go into one transaction."""

TRANSACTION_S: Final = 10
"""How long a caller's transaction may hold the only write lock before it is rolled back."""

CACHE_BYTES: Final = 64 * 1024 * 1024
"""How much of an SQLite file is kept in memory at most: with SQLite's own 2 MB a receive costs half as much again where
a million messages lie in a thousand groups."""

WAL_BYTES: Final = 16 * 1024 * 1024
"""How large the write-ahead log of an SQLite file stays at most after somebody has read for so long that it grew."""

WAL_PAGES: Final = 1_000
"""Of how many pages what is in the write-ahead log of an SQLite file goes into the file, as SQLite itself has it."""

RESERVE_BYTES: Final = 1024 * 1024
"""In what steps the room beside an SQLite file grows that is given up when the disk is full: so much at least."""

RESERVE_CLOSED_BYTES: Final = 256 * 1024
"""How large it is while nobody has the file open."""

RESERVE_MAX_BYTES: Final = 64 * 1024 * 1024
"""How large it gets at most; what more may be needed must be free on the disk for a message to be sent."""

RESERVE_LOOK_S: Final = 1.0
"""How often it is looked at, at least, while something is sent."""

STATEMENTS: Final = 256
"""How many statements of SQLite are kept prepared: all that the store has, those for many rows at once among them."""

POLL_S: Final = 0.05
"""How long it takes at most until a waiting receive sees what another process has sent."""

LIST_AT_ONCE: Final = 128
"""How many new messages at least are looked at together for who can receive them, over PostgreSQL."""

LISTEN_POLL_S: Final = 0.5
"""How often a waiting receive looks over PostgreSQL although nobody has told of anything: a lease that another process
had may be over, and what was told may have been lost with a connection."""

LISTEN_PAUSE_S: Final = 0.001
"""How long who listens lets notifications gather."""

RECONNECT_S: Final = 10
"""How long a lost connection to PostgreSQL is sought again before a transaction is given up."""

LOCK_S: Final = 0.1
"""How long a command waits over PostgreSQL for a lock that a lasting transaction has, before others have their turn; it
is tried again until ``BUSY_S`` have passed."""

RUN_AGAIN: Final = 20
"""How often a transaction is run again that another was in the way of, over PostgreSQL."""

BUSY_S: Final = 30
"""How long a command waits for another process that holds the write lock."""

ERROR_LENGTH: Final = 20_000
"""How many characters of an error and its traceback are kept with a parked group."""

BROKER_ACTIVE: Final = 100
"""How many tasks of a ``QueueBroker`` are active at once, if the user does not say."""

BROKER_QUEUED: Final = 10_000
"""How many tasks of a ``QueueBroker`` wait at most, if the user does not say."""

BROKER_BURST_S: Final = 0.001
"""For how long a worker of a ``QueueBroker`` runs one task after the other before it lets the event loop see to
others; tasks that wait for something do so by themselves. The first two of a burst do not count."""

BROKER_WAIT_S: Final = 100 * 365 * 86_400
"""The longest wait for a turn that has a timer: what is longer is for ever."""

BROKER_STUCK_S: Final = 5
"""How long after something was queued a ``QueueBroker`` looks whether all its slots wait for its own queue."""

KEY_LOCK_S: Final = 60
"""How long an idempotency key is in progress, if the user does not say: after a crash nobody runs it for so long."""

KEY_LOCK_MAX_S: Final = 43_200
"""The longest an idempotency key is in progress at a time: twelve hours, as with a message."""

KEY_KEPT_S: Final = 86_400
"""How long a completed idempotency key is known, if the user does not say."""

KEY_EXPIRE_AT_ONCE: Final = 4
"""How many keys whose lifetime is over one change clears away. One change makes one at most, so the rest goes soon."""

KEY_TOKEN_SHARDS: Final = 1_024
"""How many counters of tokens there are in Redis: clients that lock keys of one counter at one time try again."""

KEY_TRIES: Final = 100
"""How often Redis is asked again when somebody else has changed the key or its counter meanwhile. One of those who try
at one time always succeeds."""

CLOCK_SKEW_S: Final = 900
"""How far the time of a signed request may be from the server's, in either direction, as in SQS."""

PRESIGNED_S: Final = 604_800
"""The longest that a presigned URL is valid: a week, as in SQS."""

CLAIMS: Final = 1_024
"""Of how many signing clients the derived keys are kept at hand."""

CLAIM_BYTES: Final = 1_024
"""How long what a client says of its signature may be to be kept at hand."""

PATHS: Final = 1_024
"""Of how many paths the canonical form is kept at hand."""

DATES: Final = 256
"""Of how many of the latest times of signed requests the number is kept at hand."""

REPLAYS: Final = 250_000
"""How many signatures are remembered so that a request that comes again is refused, where that is asked for."""

GRACE_S: Final = 10.0
"""How long requests that are under way may take when the SQS endpoint is stopped, if the user does not say."""

FIGURES_S: Final = 1.0
"""For how long what was found of the queues' figures and of the endpoint's health is told to whoever asks again."""

HEALTH_S: Final = 5.0
"""How long the store may take to be written until the endpoint is not well."""

FORM_FIELDS: Final = 2_000
"""The most fields of a form: a full batch of ten messages with ten attributes each has some four hundred."""

FORM_DEPTH: Final = 10
"""The most parts of a form field's name: with everything that SDKs put between, an attribute in a batch has nine."""

BATCH_ENTRIES: Final = 10
"""The most entries of a batch, and the most messages of one receive, over SQS."""

BATCH_ID_LENGTH: Final = 80
"""The longest id of a batch's entry, as in SQS."""

MESSAGE_ATTRIBUTES: Final = 10
"""The most attributes of a message over SQS."""

ATTRIBUTE_NAME_LENGTH: Final = 256
"""The longest name, and the longest type, of a message's attribute over SQS."""

TOKEN_LENGTH: Final = 128
"""The longest group, deduplication id and receive attempt id over SQS."""

QUEUE_NAME_LENGTH: Final = 80
"""The longest name of a queue that is made over SQS, its ``.fifo`` included."""

SEND_DELAY_S: Final = 900
"""The longest delay that can be asked for over SQS, of a message or of a queue."""

RECEIVE_WAIT_S: Final = 20
"""The longest that a receive waits over SQS."""

RETENTION_S: Final = (60, 1_209_600)
"""The shortest and the longest retention that can be asked for over SQS."""

RECEIVE_ATTEMPT_S: Final = 300
"""How long a receive can be asked for again by its attempt id, as in SQS."""

RECEIVE_ATTEMPTS: Final = 10_000
"""How many receives with an attempt id are remembered; beyond that the oldest is forgotten."""

QUEUE_TAGS: Final = 50
"""The most tags of a queue, as in SQS."""

LIST_RESULTS: Final = 1_000
"""The most queues that are listed at a time, as in SQS."""

POLICY_ACTIONS: Final = 7
"""The most actions that one permission is for, as in SQS."""

POLICY_BYTES: Final = 8_192
"""The longest policy of a queue, as in SQS."""

POLICIES: Final = 1_024
"""How many parsed policies are kept at hand."""

PURGE_S: Final = 60
"""How long after a purge the next is refused over SQS."""

MOVES_PER_S: Final = 500
"""The most messages that a move task moves in a second, as in SQS; so many if the request does not say."""

MOVES_AT_ONCE: Final = 50
"""The most messages that a move task moves in one transaction."""

DEAD_LINE_S: Final = 30
"""After how long a line to PostgreSQL over which nothing comes any more, not even that something was received, is given
up."""

MIGRATION_TRIES: Final = 10
"""How often the tables of a database that is at work are tried to be brought up to date, if transactions are in the
way."""

SHARED_S: Final = 1.0
"""How often a server looks whether access keys of its database were changed, and whether a move task wants somebody to
go on with it."""

FORGET_AT_ONCE: Final = 10
"""How many outdated receives or signatures are forgotten whenever one is remembered: more than come."""

MOVER_S: Final = 5
"""How long a move task waits for the server that does it, before another goes on with it; longer than between two
steps of the slowest."""

MOVE_TASKS: Final = 10
"""How many move tasks of a queue are known, the running one included, as in SQS."""

DECISIONS: Final = 4_096
"""Of how many keys, actions and queues it is kept at hand whether the key may do that."""

FAILURE_TOLD_S: Final = 60.0
"""How long after a failure, or a refused request, the next one of its kind is told to the endpoint's log."""

FAILURE_KINDS: Final = 100
"""How many kinds of failures the endpoint's log tells apart at a time; further ones are one kind."""

CREDENTIAL_BYTES: Final = 512
"""How much of a request is looked at for the region of its credential: a key's id has at most 128 bytes."""

URLS: Final = 4_096
"""Of how many queues' URLs it is kept at hand which queue they name."""

URL_LENGTH: Final = 512
"""The longest of them: a queue's own are shorter."""

CALLERS: Final = 4_096
"""Of how many keys in how many regions it is kept at hand how queues are named to them."""

HTTP_HEADER_BYTES: Final = 64 * 1024
"""The longest target and headers of an HTTP request, together: a target holds a message where a client sends by GET."""

HTTP_HEADERS: Final = 100
"""The most headers of an HTTP request."""

HTTP_BODY_BYTES: Final = 4 * BODY_BYTES
"""The longest body of an HTTP request: the longest message is up to three times as long in JSON or percent-encoded."""

HTTP_PENDING_BYTES: Final = 64 * 1024 * 1024
"""How many bytes all HTTP connections together may hold of requests that are not with the handler yet: heads, bodies
that are unfinished, and what waits behind another request. Nobody knows yet whether those who send them may."""

HTTP_PENDING_LEAST: Final = 16 * 1024 * 1024
"""The least that this can be set to: half of it has room for two of the longest bodies."""

HTTP_CONNECTIONS: Final = 1_000
"""The most HTTP connections at a time, just below the 1,024 open files that a process is commonly allowed."""

HTTP_RESERVED: Final = 16
"""How many connections beyond the most are listened to, so that whoever asks for the health is answered; all others are
told that there are too many. The newest is listened to: the oldest of so many is cut."""

HTTP_RETRY_AFTER_S: Final = 1
"""After how many seconds a client should come again for which there was no room."""

HTTP_PIPELINED: Final = 16
"""How many requests of an HTTP connection wait behind one that is not answered before no more is read."""

HTTP_READ_BYTES: Final = 16 * 1024
"""How much is read from an HTTP connection at a time."""

HTTP_BLOCK_BYTES: Final = 64 * 1024
"""In blocks of what size the body of an HTTP request is kept until it is whole."""

HTTP_IDLE_S: Final = 75.0
"""How long an HTTP connection is kept open without a request."""

HTTP_REQUEST_S: Final = 60.0
"""How long a client may take to send one HTTP request, headers and body."""

HTTP_UNREAD_S: Final = 30.0
"""How long an HTTP client may leave its answers unread."""

GARBAGE_OBJECTS: Final = 20_000
"""How many new objects a server has before it looks for cycles among them; a request makes none."""

HTTP_LINGER_S: Final = 2.0
"""How long a refused HTTP client is listened to after it was told: closed at once, it would lose what it was told."""

HOSTS: Final = 64
"""Of how many names by which clients call an endpoint without keys it is kept at hand whether they are its own."""

STATE_BYTES: Final = 1_048_576
"""The longest state of a session."""

SOURCE_ROWS: Final = 100_000
"""The most messages that a micro-batch of Spark takes out of a queue's log, if the user does not say."""

SOURCE_TASK_ROWS: Final = 20_000
"""How many messages of a queue's log make another task of Spark worth while."""

SOURCE_ARROW_ROWS: Final = 10_000
"""The most messages that are handed to Spark at once, as ``spark.sql.execution.arrow.maxRecordsPerBatch`` has it."""

SOURCE_ARROW_BYTES: Final = 8 * 1024 * 1024
"""How long the bodies that are handed to Spark at once get before no more are added."""

SOURCE_FETCH_ROWS: Final = 64
"""How many messages of a queue's log are fetched before their bodies are measured: the longest make 64 MB."""

SOURCE_RELEASE_ROWS: Final = 1_000
"""How many messages are acknowledged for Spark in one transaction."""

WORKER_CONCURRENCY: Final = 8
"""How many groups a worker has in their turns at once, if the user does not say."""

WORKER_IDLE_S: Final = 0.2
"""How long it takes at most until a worker that has nothing to do sees a decision, a wait that is over, or a stop."""

WORKER_AHEAD_S: Final = 0.1
"""A worker takes messages for about so long a time ahead: what it has taken, no other can have."""

WORKER_ASLEEP: Final = 256
"""How many of a worker's groups wait for another attempt beside those that are in their turns; further ones wait in
the place of one."""

WORKER_GRACE_S: Final = 30.0
"""How long a worker that is stopped waits for the turns that have begun, if the user does not say."""

GROUPS_AT_ONCE: Final = 100
"""How many groups whose wait is over, and how many decisions, a worker takes up at a time."""

OUTBOX_OUTPUTS: Final = 100
"""How many outputs of a group are taken out of the outbox at a time."""

OUTBOX_NOTES: Final = 1_000
"""How many notes about groups with new outputs who claims some draws at a time, with PostgreSQL."""

DELIVER_PAUSE_S: Final = 0.01
"""The shortest pause before an output is delivered again, so that one that fails at once does not keep a core busy."""

OUTBOX_LEASE_S: Final = 30.0
"""How long nobody else delivers the outputs of a group that a worker delivers, unless it has them for longer."""

WORKER_LEASE_MS: Final = 200
"""The shortest lease of a worker, whatever its queue says: it has to have time to prolong it."""

WORKER_GATHER_S: Final = 0.005
"""For how long a worker gathers turns that are done into one transaction, while there are others that can begin."""

NAMED_FILES: Final = 5
"""How many missing files of a store an error names; of further ones it says how many there are."""

RESTORED_TOKENS: Final = 2**32
"""By how much the fencing tokens of a queue go on when it is restored: more than the history that is given up can have
given out."""

INCARNATIONS: Final = 1_000
"""How many of a queue's newest incarnations are kept in any case; older ones only as far as a reader is behind them."""
