"""All bounds of the endpoint, by name; those of the queues are in ``inturn.core.limits``."""

from typing import Final

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
"""Number of signatures remembered to refuse repeated requests, if that is configured."""

GRACE_S: Final = 10.0
"""Time that running requests have when the SQS endpoint is stopped, by default."""

HEALTH_S: Final = 5.0
"""The longest write to the store at which the endpoint is still healthy."""

FORM_FIELDS: Final = 2_000
"""The maximum number of fields in a form: a full batch of ten messages with ten attributes each has about 400."""

FORM_DEPTH: Final = 10
"""The maximum number of parts in a form field's name; an attribute in a batch has nine with those that SDKs insert."""

BATCH_ENTRIES: Final = 10
"""The maximum number of entries in a batch, and of messages in one receive, over SQS."""

BATCH_ID_LENGTH: Final = 80
"""The longest id of a batch's entry, as in SQS."""

MESSAGE_ATTRIBUTES: Final = 10
"""The maximum number of attributes of a message over SQS."""

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
"""The maximum number of tags of a queue, as in SQS."""

LIST_RESULTS: Final = 1_000
"""The maximum number of queues in one list, as in SQS."""

POLICY_ACTIONS: Final = 7
"""The maximum number of actions in one permission, as in SQS."""

POLICY_BYTES: Final = 8_192
"""The longest policy of a queue, as in SQS."""

POLICIES: Final = 1_024
"""Number of parsed policies that are cached."""

PURGE_S: Final = 60
"""Time after a purge for which the next is refused over SQS."""

MOVES_PER_S: Final = 500
"""The maximum number of messages that a move task moves per second, as in SQS; also the default."""

MOVES_AT_ONCE: Final = 50
"""The maximum number of messages that a move task moves in one transaction."""

SHARED_S: Final = 1.0
"""Interval at which a server checks its database for changed access keys and for move tasks that need a server."""

MOVE_FULL_S: Final = 1
"""Pause of a move task while the target queue is full, in seconds."""

MOVER_S: Final = 5
"""Time after the last step of a move task until another server takes it over; longer than the longest time between two
steps."""

MOVE_TASKS: Final = 10
"""The maximum number of move tasks stored with a queue, including the running one, as in SQS."""

DECISIONS: Final = 4_096
"""Number of combinations of key, action and queue whose permission is cached."""

CREDENTIAL_BYTES: Final = 512
"""Number of bytes of a request searched for the region of its credential: a key's id has at most 128 bytes."""

URLS: Final = 4_096
"""Number of queue URLs whose queue is cached."""

URL_LENGTH: Final = 512
"""The longest cached URL: a queue's own are shorter."""

CALLERS: Final = 4_096
"""Number of keys, each in one region, whose names of queues are cached."""

GARBAGE_OBJECTS: Final = 20_000
"""Number of new objects before the garbage collector searches them for cycles; a request creates no cycles."""

HOSTS: Final = 64
"""Number of host names used by clients for which it is cached whether an endpoint without keys owns them."""
