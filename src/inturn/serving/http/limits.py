"""The bounds of the HTTP server on its clients, by name."""

from typing import Final

from inturn.core.limits import BODY_BYTES as MESSAGE_BYTES

HEADER_BYTES: Final = 64 * 1024
"""The maximum length of target and headers of an HTTP request together; with GET, the target contains the message."""

HEADERS: Final = 100
"""The maximum number of headers of an HTTP request."""

BODY_BYTES: Final = 4 * MESSAGE_BYTES
"""The longest body of an HTTP request: JSON or percent-encoding makes the longest message up to three times as long."""

PENDING_BYTES: Final = 64 * 1024 * 1024
"""The maximum number of bytes that all HTTP connections together hold of requests that the handler does not have yet:
headers, incomplete bodies, and requests that wait behind another. These clients are not authorized yet."""

PENDING_LEAST: Final = 16 * 1024 * 1024
"""The minimum of that setting: half of it holds two bodies of the maximum length."""

CONNECTIONS: Final = 1_000
"""The maximum number of HTTP connections, just below the usual limit of 1,024 open files per process."""

RESERVED: Final = 16
"""Number of connections beyond the maximum that are still read, so that health checks are answered; other requests on
them are refused. If there are more, the oldest of them is closed."""

RETRY_AFTER_S: Final = 1
"""Seconds after which a client that was refused for lack of capacity should retry."""

PIPELINED: Final = 16
"""Number of requests of an HTTP connection that wait behind an unanswered one before reading pauses."""

READ_BYTES: Final = 16 * 1024
"""Number of bytes read from an HTTP connection at a time."""

BLOCK_BYTES: Final = 64 * 1024
"""Size of the blocks in which the body of an HTTP request is kept until it is complete."""

IDLE_S: Final = 75.0
"""Time for which an HTTP connection is kept open without a request."""

REQUEST_S: Final = 60.0
"""Time in which a client must send one HTTP request, headers and body."""

UNREAD_S: Final = 30.0
"""Time for which an HTTP client may leave its answers unread."""

LINGER_S: Final = 2.0
"""Time for which the server still reads from a refused HTTP client: if it closed at once, the client could lose the
answer."""
