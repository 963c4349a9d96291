"""All bounds of the endpoint, by name, beside those of the queues in ``inturn.core.limits``."""

from typing import Final

from inturn.core.limits import BODY_BYTES

CLOCK_SKEW_S: Final = 900
"""The greatest difference between the time of a signed request and the server's, in either direction, as in SQS."""

PRESIGNED_S: Final = 604_800
"""The longest validity of a presigned URL: a week, as in SQS."""

CLAIMS: Final = 1_024
"""Number of signing clients whose derived keys are cached."""

CLAIM_BYTES: Final = 1_024
"""The longest description of a signature by its client that is cached."""

PATHS: Final = 1_024
"""Number of paths whose canonical form is cached."""

DATES: Final = 256
"""Number of the latest times of signed requests that are cached as numbers."""

REPLAYS: Final = 250_000
"""Number of signatures remembered to refuse repeated requests, where that is configured."""

GRACE_S: Final = 10.0
"""Time that running requests have when the SQS endpoint is stopped, by default."""

HEALTH_S: Final = 5.0
"""The longest write to the store at which the endpoint is still healthy."""

FORM_FIELDS: Final = 2_000
"""The most fields of a form: a full batch of ten messages with ten attributes each has some four hundred."""

FORM_DEPTH: Final = 10
"""The most parts of a form field's name: with all parts that SDKs insert, an attribute in a batch has nine."""

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
"""The longest name of a queue created over SQS, its ``.fifo`` included."""

SEND_DELAY_S: Final = 900
"""The longest delay of a message or a queue over SQS."""

RECEIVE_WAIT_S: Final = 20
"""The longest wait of a receive over SQS."""

RETENTION_S: Final = (60, 1_209_600)
"""The shortest and the longest retention over SQS."""

RECEIVE_ATTEMPT_S: Final = 300
"""Time for which a receive can be repeated with its attempt id, as in SQS."""

QUEUE_TAGS: Final = 50
"""The most tags of a queue, as in SQS."""

LIST_RESULTS: Final = 1_000
"""The most queues listed at a time, as in SQS."""

POLICY_ACTIONS: Final = 7
"""The most actions of one permission, as in SQS."""

POLICY_BYTES: Final = 8_192
"""The longest policy of a queue, as in SQS."""

POLICIES: Final = 1_024
"""Number of parsed policies that are cached."""

PURGE_S: Final = 60
"""Time after a purge for which the next is refused over SQS."""

MOVES_PER_S: Final = 500
"""The most messages that a move task moves in a second, as in SQS; also the default."""

MOVES_AT_ONCE: Final = 50
"""The most messages that a move task moves in one transaction."""

SHARED_S: Final = 1.0
"""Interval at which a server checks its database for changed access keys and for move tasks that need a server."""

MOVER_S: Final = 5
"""Time for which a move task waits for its server before another takes it over; longer than between two steps of the
slowest."""

MOVE_TASKS: Final = 10
"""The most move tasks of a queue that are remembered, the running one included, as in SQS."""

DECISIONS: Final = 4_096
"""Number of combinations of key, action and queue whose permission is cached."""

FAILURE_TOLD_S: Final = 60.0
"""Time after a failure, or a refused request, until the next one of its kind is written to the endpoint's log."""

FAILURE_KINDS: Final = 100
"""Number of kinds of failures that the endpoint's log distinguishes at a time; further ones are one kind."""

CREDENTIAL_BYTES: Final = 512
"""Number of bytes of a request searched for the region of its credential: a key's id has at most 128 bytes."""

URLS: Final = 4_096
"""Number of queue URLs whose queue is cached."""

URL_LENGTH: Final = 512
"""The longest cached URL: a queue's own are shorter."""

CALLERS: Final = 4_096
"""Number of keys, each in one region, whose names of queues are cached."""

HTTP_HEADER_BYTES: Final = 64 * 1024
"""The longest target and headers of an HTTP request, together: a target holds a message where a client sends by GET."""

HTTP_HEADERS: Final = 100
"""The most headers of an HTTP request."""

HTTP_BODY_BYTES: Final = 4 * BODY_BYTES
"""The longest body of an HTTP request: the longest message is up to three times as long in JSON or percent-encoded."""

HTTP_PENDING_BYTES: Final = 64 * 1024 * 1024
"""The most bytes that all HTTP connections together may hold of requests before the handler gets them: heads,
unfinished bodies, and requests that wait behind another. These clients are not authorized yet."""

HTTP_PENDING_LEAST: Final = 16 * 1024 * 1024
"""The least value of that setting: half of it has room for two of the longest bodies."""

HTTP_CONNECTIONS: Final = 1_000
"""The most HTTP connections at a time, just below the 1,024 open files that a process is commonly allowed."""

HTTP_RESERVED: Final = 16
"""Number of connections beyond the most that are still read, so that health checks are answered; all other requests on
them are refused for too many connections. The newest is read: the oldest of these is cut."""

HTTP_RETRY_AFTER_S: Final = 1
"""Seconds after which a client that found no room should come again."""

HTTP_PIPELINED: Final = 16
"""Number of requests of an HTTP connection that wait behind an unanswered one before reading pauses."""

HTTP_READ_BYTES: Final = 16 * 1024
"""Number of bytes read from an HTTP connection at a time."""

HTTP_BLOCK_BYTES: Final = 64 * 1024
"""Size of the blocks in which the body of an HTTP request is kept until it is complete."""

HTTP_IDLE_S: Final = 75.0
"""Time for which an HTTP connection is kept open without a request."""

HTTP_REQUEST_S: Final = 60.0
"""Time in which a client must send one HTTP request, headers and body."""

HTTP_UNREAD_S: Final = 30.0
"""Time for which an HTTP client may leave its answers unread."""

GARBAGE_OBJECTS: Final = 20_000
"""Number of new objects in a server before it searches them for cycles; a request makes none."""

HTTP_LINGER_S: Final = 2.0
"""Time for which a refused HTTP client is still read after its answer: closed at once, it would lose the answer."""

HOSTS: Final = 64
"""Number of host names used by clients for which it is cached whether an endpoint without keys owns them."""
