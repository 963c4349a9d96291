"""The consumer's transactions: each settles ended attempts and receives messages that can begin.

At most one message of a group is received at a time. So a message begins only when the acknowledgement of the previous
message is committed, and a receive counts as an attempt of exactly the message that is handled. If a process has died,
each message that it held is suspected: such a message is handled while the consumer handles no other, so that only the
message that kills processes is parked.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from inturn.core import limits
from inturn.core.errors import HandlerError, InputError
from inturn.core.pipeline.policies import Retry
from inturn.core.queue.delivery import SettleAction, Settlement, SettleResult
from inturn.core.queue.lapsed import LapsedRule, why_spent
from inturn.core.queue.messages import Delivery, QueueInfo, ReceiveRequest
from inturn.core.queue.sessions import SessionRequest, SessionVerb
from inturn.core.rate import RateLimits
from inturn.queue import Queue
from inturn.queue.message import Message
from inturn.store.commands import Receive, ReceiveLimited, StoreCall, queue_of
from inturn.store.protocols import SessionStore, Store
from inturn.store.rates import receive_within

ExhaustedAction: TypeAlias = Literal["park", "dead-letter"]
"""The actions for a message whose retries are used up."""

AttemptOutcome: TypeAlias = Literal["retried", "parked", "deferred", "dead-lettered", "tried again", "lost"]
"""The outcome of an attempt that failed, or whose lease had expired.

``tried again`` is a message whose retries are used up but whose group cannot be parked yet.
"""


@dataclass
class ConsumedCounts:
    """The outcomes of the messages that a consumer handled.

    Attributes:
        done: acknowledged messages.
        failed: attempts that failed.
        parked: groups that were parked.
        deferred: messages without a group that were deferred.
        dead_lettered: messages that were moved to the dead-letter queue.
        lost: messages whose lease ended before they were settled; another receiver may have them.
    """

    done: int = 0
    failed: int = 0
    parked: int = 0
    deferred: int = 0
    dead_lettered: int = 0
    lost: int = 0


class TaskResult(Enum):
    """The result of one attempt to handle a message."""

    DONE = "done"
    """It is to be acknowledged."""
    COMMITTED = "committed"
    """It was acknowledged in the handler's transaction."""
    FAILED = "failed"
    LOST = "lost"
    """Its lease had expired."""


@dataclass(eq=False, slots=True)
class MessageTask:
    """One attempt to handle a message.

    Attributes:
        message: the message.
        until_ms: the end of its lease; None: it was lost.
        is_alone: whether no other message is handled at the same time.
        result: the result; None: not yet.
        error: the error with its traceback, of a failed attempt.
        error_type: the type of that error.
        handler_error: that error, if the handler did not raise it: it returned a value, or its transaction is not
            suitable.
        fault: an error that ends the whole consumer.
        duration_s: how long the handler took, in seconds; None: it was not called.
    """

    message: Message
    until_ms: int | None
    is_alone: bool = False
    result: TaskResult | None = None
    error: str = ""
    error_type: str = ""
    handler_error: HandlerError | None = None
    fault: BaseException | None = None
    duration_s: float | None = None

    @property
    def ordering_key(self) -> str | int:
        """The group or, without one, the number of the message; per place, one message is handled at a time."""
        return self.message.sequence_number if self.message.group is None else self.message.group

    def settlement(self, act: SettleAction, ms: int = 0, **more: Any) -> Settlement:
        """Return a change of the message."""
        return Settlement(self.message.sequence_number, self.message.fencing_token, act, ms, **more)


class FailedTask(NamedTuple):
    """An attempt that failed, or whose lease had expired, in a transaction.

    Attributes:
        task: the attempt.
        outcome: the outcome for its message.
        pause_s: the pause before the next attempt, in seconds.
    """

    task: MessageTask
    outcome: AttemptOutcome
    pause_s: float = 0.0


@dataclass(slots=True)
class MessageWorkRequest:
    """The input of one transaction.

    Attributes:
        ended: attempts that have ended.
        unstarted: messages to be returned to the queue, since they have not begun.
        extend: attempts whose leases are extended.
        max_messages: the maximum number of messages to receive.
        is_busy: whether other messages are being handled.
        checks_empty: whether to find out if the queue is empty.
    """

    ended: Sequence[MessageTask] = ()
    unstarted: Sequence[MessageTask] = ()
    extend: Sequence[MessageTask] = ()
    max_messages: int = 0
    is_busy: bool = False
    checks_empty: bool = False


@dataclass(slots=True)
class MessageWorkResult:
    """The result of one transaction.

    Attributes:
        now_ms: the time of the transaction.
        received: the messages that can begin.
        is_more: whether a receive at once may find more.
        found_none: whether a receive found that no message is ready.
        due_ms: the time at which there may be more; None: after the next change.
        is_empty: whether the queue has nothing that a receiver can wait for, if requested.
        counts: the outcomes of the ended attempts.
        failed: the ended attempts that failed, or whose lease had expired.
    """

    now_ms: int
    received: list[Delivery] = field(default_factory=list)
    is_more: bool = False
    found_none: bool = False
    due_ms: int | None = None
    is_empty: bool = False
    counts: ConsumedCounts = field(default_factory=ConsumedCounts)
    failed: list[FailedTask] = field(default_factory=list)

    def add_lost(self, task: MessageTask) -> None:
        """Count an attempt whose lease had expired."""
        self.counts.lost += 1
        self.failed.append(FailedTask(task, "lost"))


class MessageUnitOfWork:
    """The transactions of one consumer.

    Args:
        queue: the queue.
        retry: the pauses between attempts, before jitter.
        then: the action for a message whose retries are used up.
        rates: the rate limits.

    Raises:
        NoSuchQueue: if the queue does not exist.
        InputError: if ``then`` does not fit the queue's settings.
    """

    def __init__(self, queue: Queue, retry: Retry, then: ExhaustedAction, rates: RateLimits) -> None:
        self._queue, self._retry, self._exhausted_action, self._rates = queue, retry, then, rates
        self._pauses_s = retry.pauses_s()
        settings = queue.info().settings
        if then not in ("park", "dead-letter"):
            raise InputError(f"then is {then!r}; expected 'park' or 'dead-letter'")
        if then == "dead-letter" and settings.dead_letter is None:
            msg = f"then is 'dead-letter', but queue {queue.name!r} has no dead-letter queue; "
            raise InputError(msg + "set one with configure(dead_letter=…, max_receives=…)")
        if then == "park" and settings.max_receives is not None and settings.max_receives <= retry.times:
            raise InputError(
                f"{retry} cannot be completed: queue {queue.name!r} moves a message to {settings.dead_letter!r} after "
                f"{settings.max_receives} receives; use fewer retries, or then='dead-letter'"
            )
        self.lease_ms = max(settings.visibility_ms, limits.WORKER_LEASE_MS)

    def run(self, request: MessageWorkRequest) -> MessageWorkResult:
        """Run one transaction."""
        return self._queue.writer.run(
            StoreCall(self._queue.name, lambda store, now_ms: self._transact(store, now_ms, request))
        )

    def wait(self, wait_s: float) -> list[Delivery]:
        """Wait for one message, while no other is being handled."""
        receive_request = ReceiveRequest(1, self.lease_ms, lapsed=LapsedRule.ALONE)
        if any(self._rates):
            limited = ReceiveLimited[list[Delivery]](
                self._queue.name, lambda deliveries: deliveries, receive_request, self._rates, wait_s=wait_s
            )
            return self._queue.writer.run(limited)
        return self._queue.writer.run(
            Receive[list[Delivery]](self._queue.name, lambda deliveries: deliveries, receive_request, wait_s=wait_s)
        )

    def exhausted_reason(self, delivery: Delivery) -> str:
        """Return why a message is not tried again after processes have died; empty: it is tried again."""
        return why_spent(delivery.attempts, self._retry.times) if delivery.lapsed else ""

    def _transact(self, store: Store, now_ms: int, request: MessageWorkRequest) -> MessageWorkResult:
        queue, result = queue_of(store, self._queue.name), MessageWorkResult(now_ms)
        self._settle(store, queue, request, result)
        if request.max_messages:
            self._receive(store, queue, request, result)
        if request.checks_empty and result.found_none:
            depth = store.depth(queue, now_ms)
            result.is_empty = not (depth.in_flight or depth.delayed)
        return result

    def _receive(self, store: Store, queue: QueueInfo, request: MessageWorkRequest, result: MessageWorkResult) -> None:
        max_messages = request.max_messages
        rule = LapsedRule.NONE if request.is_busy else LapsedRule.ALONE
        receive_request = ReceiveRequest(1, self.lease_ms, lapsed=rule)
        if any(self._rates):
            limited = receive_request._replace(limit=max_messages)
            within = receive_within(store, queue, limited, self._rates, result.now_ms)
            result.received, result.is_more = within.deliveries, within.is_more
            result.found_none = not (within.deliveries or within.is_more or within.is_stopped)
        else:
            result.received = [
                delivery
                for part in store.receive(queue, [receive_request] * max_messages, result.now_ms)
                for delivery in part
            ]
            result.is_more = len(result.received) == max_messages
            result.found_none = not result.received
        result.due_ms = queue.due_ms

    def _settle(self, store: Store, queue: QueueInfo, request: MessageWorkRequest, result: MessageWorkResult) -> None:
        """Settle messages, then park the groups whose retries are used up."""
        settlements = ((task, self._settlement_of(store, queue, task, result)) for task in request.ended)
        changes = [(task, change) for task, change in settlements if change is not None]
        for task in request.unstarted:
            attempts = task.message.attempts - 1
            changes.append((task, task.settlement(SettleAction.NACK, attempts=attempts)))
        changes += [(task, task.settlement(SettleAction.EXTEND, self.lease_ms)) for task in request.extend]
        if not changes:
            return
        verdicts = store.settle(queue, [change for _, change in changes], result.now_ms)
        for (task, change), verdict in zip(changes, verdicts, strict=True):
            is_done = verdict is SettleResult.DONE
            if change.act is SettleAction.EXTEND:
                task.until_ms = result.now_ms + self.lease_ms if is_done else None
            elif task.result is not None and not is_done:
                result.add_lost(task)
            elif task.result is not None:
                self._count_outcome(store, queue, task, change, result)

    def _settlement_of(
        self, store: Store, queue: QueueInfo, ended: MessageTask, result: MessageWorkResult
    ) -> Settlement | None:
        """Return the change of a message whose attempt has ended; None: no change is needed, and it is counted."""
        if ended.result is TaskResult.DONE:
            return ended.settlement(SettleAction.ACK)
        if ended.result is TaskResult.FAILED:
            result.counts.failed += 1
            return self._after_failure(store, queue, ended)
        if ended.result is TaskResult.COMMITTED:
            result.counts.done += 1
        else:
            result.add_lost(ended)
        return None

    def _after_failure(self, store: Store, queue: QueueInfo, failed: MessageTask) -> Settlement:
        """Return the change of a message after a failed attempt."""
        message = failed.message
        if message.attempts <= self._retry.times:
            # Full jitter: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
            pause_s = self._pauses_s[message.attempts - 1] * random.random()  # noqa: S311 - no secret
            return failed.settlement(SettleAction.NACK, round(pause_s * 1000))
        if self._exhausted_action == "dead-letter":
            dead_letter = queue.settings.dead_letter or ""
            queue_of(store, dead_letter)
            return failed.settlement(SettleAction.MOVE, to=dead_letter, note=failed.error)
        if message.group is None:
            return failed.settlement(SettleAction.DEFER)
        return failed.settlement(SettleAction.NACK, attempts=0)  # after a resume all attempts are new

    def _count_outcome(
        self, store: Store, queue: QueueInfo, ended: MessageTask, change: Settlement, result: MessageWorkResult
    ) -> None:
        """Count the outcome of a message; park its group if its retries are used up."""
        counts, act = result.counts, change.act
        outcome: AttemptOutcome
        pause_ms = change.ms or 0
        if act is SettleAction.ACK:
            counts.done += 1
            return
        if act is SettleAction.DEFER:
            counts.deferred += 1
            outcome = "deferred"
        elif act is SettleAction.MOVE:
            counts.dead_lettered += 1
            outcome = "dead-lettered"
        elif change.attempts is None:
            outcome = "retried"
        elif self._park(store, queue, ended, result.now_ms):
            counts.parked += 1
            outcome = "parked"
        else:
            outcome, pause_ms = "tried again", limits.PARK_AGAIN_MS
        result.failed.append(FailedTask(ended, outcome, pause_ms / 1000))

    def _park(self, store: Store, queue: QueueInfo, ended: MessageTask, now_ms: int) -> bool:
        """Park the group of a message, or hide the message for a time; return whether the group is parked."""
        message = ended.message
        request = SessionRequest(SessionVerb.PARK, note=ended.error)
        answer = cast("SessionStore", store).session(queue, cast("str", message.group), request, now_ms)
        if answer.verdict is SettleResult.DONE:
            return True
        # A receiver holds a deferred message of the group: try again with all attempts when it may be free.
        hidden = Settlement(message.sequence_number, None, SettleAction.EXTEND, limits.PARK_AGAIN_MS)
        store.settle(queue, [hidden], now_ms)
        return False
