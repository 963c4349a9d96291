"""The delay before a message is received again, if the caller specifies none."""

from inturn.core.queue.delivery import DeliveryState, is_hidden, nacked_state
from inturn.core.queue.messages import QueueSettings

_MASK = 2**64 - 1


def retry_ms(settings: QueueSettings, number: int, attempts: int) -> int:
    """Return the delay before the next attempt, in milliseconds, after so many receives.

    The same message has the same delay in every store: the jitter is a hash of its number and the attempt.
    """
    delay, most = settings.retry_delay_s, settings.retry_max_s
    if delay <= 0:
        return 0
    for _ in range(attempts - 1):
        if delay >= most or settings.retry_growth <= 1:
            break
        delay *= settings.retry_growth
    return round(min(delay, most) * (1 - settings.retry_jitter * _fraction(number, attempts)) * 1000)


def _fraction(number: int, attempts: int) -> float:
    """Return a number from 0 to 1 that looks random: the finalizer of splitmix64."""
    mixed = (number * 0x9E3779B97F4A7C15 + attempts * 0xD1B54A32D192ED03) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return ((mixed ^ (mixed >> 31)) >> 11) / 2**53


def nacked(
    hold: DeliveryState, settings: QueueSettings, number: int, *, is_head: bool, delay_ms: int | None, now_ms: int
) -> DeliveryState | None:
    """Return the state of a message after its holder nacks it; ``delay_ms`` None: with the queue's own delay."""
    if delay_ms is None:
        delay_ms = retry_ms(settings, number, hold.attempts) if is_head and not hold.deferred else 0
    return nacked_state(hold, is_head=is_head, delay_ms=delay_ms, now_ms=now_ms)


def ended(
    hold: DeliveryState, settings: QueueSettings, number: int, *, is_head: bool, now_ms: int
) -> DeliveryState | None:
    """Return the state of a message whose lease or delay is over; a retry delay counts from the deadline."""
    deadline_ms = now_ms if hold.until_ms is None else hold.until_ms
    if hold.token is not None:
        hold = hold._replace(lapsed=True)
        retried = nacked(hold, settings, number, is_head=is_head, delay_ms=None, now_ms=deadline_ms)
        if is_hidden(retried, now_ms):
            return retried
    return nacked_state(hold, is_head=is_head)
