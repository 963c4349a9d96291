"""Refusals of requests, and the HTTP status of each error."""

from inturn.core.errors import GroupMoved, InputError, StoreError


class RequestRefused(InputError):
    """A request that is refused before anything is read or done.

    Args:
        text: why.
        status: the HTTP status.
    """

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


def status_of(error: Exception) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, RequestRefused):
        return error.status
    if isinstance(error, GroupMoved):
        return 409
    return 503 if isinstance(error, StoreError | OSError) else 400
