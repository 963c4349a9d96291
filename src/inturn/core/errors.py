"""The errors of inturn, in one tree, so that a caller can catch as widely as it wants.

```
InturnError
├── PipelineError      the definition contradicts itself; raised when the pipeline is defined
├── InputError         the data does not fit the pipeline: a missing column, a wrong type
│   ├── InvalidMessage one message cannot be placed, and the pipeline says on_invalid="fail"
│   ├── NoSuchGroup    there is no group of this name; also a KeyError
│   ├── GroupMoved     a decision is about a group that has moved since the person saw it
│   └── ValueRefused   a value would not come back unchanged; in a state or an output it parks the group
├── HandlerError       the handler returned what its caller cannot use, such as no (state, outputs)
├── StateError         a state cannot be stored, or the state type changed in a way that loses data
├── GapError           a gap outlived its wait and the policy says then="fail"
├── StoreError         the store cannot be used
│   ├── NoSuchDatabase there is no database of this name or address, or it has no tables of inturn yet
│   ├── StoreUnavailable  not now: its connection is lost, a lock is held for too long, its disk is full
│   ├── StoreConflict  another writer committed this step first; nothing of ours was written
│   └── StoreMismatch  the store is of another pipeline, a newer inturn, or another history than remembered
├── QueueError         a queue cannot do what was asked
│   ├── NoSuchQueue    no queue has that name
│   ├── QueueExists    a queue of that name exists, with other settings
│   ├── LeaseExpired   the lease is over: another receiver may have the message, or may have processed it
│   ├── RevisionMismatch the group's last revision is another than expected_revision says
│   ├── WriterHeld     another producer has the group's writer's lease
│   ├── QueueFull      the queue has max_depth messages; of a QueueBroker: the limit of waiting tasks is reached
│   └── TransactionOver the caller's transaction took too long and was rolled back
├── KeyRefused         the operation of an idempotency key was not run, or was not settled
│   ├── KeyInProgress  another caller is running it; retry after ``retry_after_s``
│   ├── KeyConflict    the key was used for another payload
│   └── LockLost       the lock is over: another caller may run, or has run, the operation of the key
├── TurnError          a task did not get its turn in a QueueBroker: it has not run, and never will
│   ├── QueueFull      as above
│   ├── TurnTimeout    its deadline passed while it waited; also a TimeoutError
│   └── BrokerStopped  the broker was stopped
├── SourceError        a source of records cannot be read
│   ├── PositionGone   it does not have the remembered position any more
│   └── RejectedFull   it keeps as many rejected records as it may
├── DeliveryError      an output could not be delivered; it is tried again
│   └── DeliveryRefused it will not be taken as it is; its group's outputs wait for a person
├── SetupError         something outside Python is missing or too old: an extra, a Java, a worker's module
└── Retryable          raised by a handler: try this message again before its group is parked
```
"""


class InturnError(Exception):
    """The base class of all errors of inturn."""


class PipelineError(InturnError):
    """A contradiction in a pipeline's definition."""


class InputError(InturnError):
    """Data that does not fit the pipeline."""


class InvalidMessage(InputError):
    """A message that cannot be placed, in a pipeline that stops at the first such message."""


class ValueRefused(InputError):
    """A value in a body, a state or an output that would not come back unchanged; the text names its path and type."""


class NoSuchGroup(InputError, KeyError):
    """A name of which a pipeline has no group."""

    def __str__(self) -> str:
        return InputError.__str__(self)  # a KeyError would quote it


class GroupMoved(InputError):
    """A decision about a group that is no longer where the person saw it; nothing was recorded."""


class HandlerError(InturnError):
    """A handler that does not do what its caller needs, such as to return ``(state, outputs)``."""


class StateError(InturnError):
    """A state that cannot be stored, or whose type no longer fits the store."""


class GapError(InturnError):
    """A gap that outlived its wait under ``then="fail"``."""


class StoreError(InturnError):
    """A store that cannot be used."""


class NoSuchDatabase(StoreError):
    """A database that does not exist, or, in PostgreSQL, in which nobody has made inturn's tables yet."""


class StoreUnavailable(StoreError):
    """A store that cannot be used at the moment; nothing was changed, unless the text says that nobody knows.

    The connection is lost, another transaction has held a lock for too long, or the disk is full. A worker and a
    consumer wait until it can be used again.
    """


class StoreConflict(StoreError):
    """A conflict with another writer, which committed the step first; nothing was changed."""


class StoreMismatch(StoreError):
    """A store of another pipeline or a newer format, or one that does not contain the remembered place."""


class QueueError(InturnError):
    """A request that a queue cannot fulfil."""


class NoSuchQueue(QueueError):
    """A request for a queue that does not exist."""


class QueueExists(QueueError):
    """A request to create a queue that exists with other settings."""


class LeaseExpired(QueueError):
    """A lease that is over; nothing was changed. Another receiver may have the message, or may have processed it."""


class RevisionMismatch(QueueError):
    """A send that expected another last revision of its group; nothing was sent.

    Attributes:
        expected: last revision that the sender expected.
        last: last revision that the queue gave; 0: none.
    """

    def __init__(self, message: str, expected: int, last: int) -> None:
        super().__init__(message, expected, last)
        self.expected = expected
        self.last = last

    def __str__(self) -> str:
        return str(self.args[0])


class WriterHeld(QueueError):
    """A send, or a request for the writer's lease, in a group whose writer is another producer; nothing was changed.

    Attributes:
        holder: name of the group's writer; None: nobody has ever been it.
    """

    def __init__(self, message: str, holder: str | None) -> None:
        super().__init__(message, holder)
        self.holder = holder

    def __str__(self) -> str:
        return str(self.args[0])


class TransactionOver(QueueError):
    """A transaction that took longer than ``limits.TRANSACTION_S`` and was rolled back; nothing of it was kept."""


class KeyRefused(InturnError):
    """An operation of an idempotency key that was not run, or was not settled."""


class KeyInProgress(KeyRefused):
    """A key whose operation another caller is running; its outcome is not known yet.

    Attributes:
        retry_after_s: seconds until the other caller's lock is over, if it is not extended.
    """

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message, retry_after_s)
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return str(self.args[0])


class KeyConflict(KeyRefused):
    """A key that was used for another payload, so the requests are not the same. Nothing was run."""


class LockLost(KeyRefused):
    """A key's lock that is over; nothing was changed. Another caller may run, or has run, the operation."""


class TurnError(InturnError):
    """A task that did not get its turn: it has not run, and never will."""


class QueueFull(QueueError, TurnError):
    """A full queue, to which nothing was added; try again later, or wait for room.

    A queue of a database has ``max_depth`` messages: ``send(…, wait_s=…)`` waits. A ``QueueBroker`` has ``max_queued``
    waiting tasks: ``put`` waits.
    """


class TurnTimeout(TurnError, TimeoutError):
    """A deadline that passed while the task waited for its turn."""


class BrokerStopped(TurnError):
    """A stop of the broker while the task waited, or before it was offered."""


class SourceError(InturnError):
    """A source of records that cannot be read."""


class RejectedFull(SourceError):
    """A source that keeps as many rejected records as it may, each the only copy; resend or purge them."""


class PositionGone(SourceError):
    """A position that the source does not have any more; nothing is read until a person decides where to go on.

    Attributes:
        partition: the partition, where it is not the one that was asked for.
    """

    def __init__(self, text: str, partition: str | None = None) -> None:
        super().__init__(text)
        self.partition = partition


class DeliveryError(InturnError):
    """An output that could not be delivered this time; the worker tries it again.

    Args:
        args: the reason.
        retry_after_s: the least time until the next attempt, in seconds; at most ``limits.DELIVER_RETRY_AFTER_S``.
    """

    retry_after_s: float = 0.0

    def __init__(self, *args: object, retry_after_s: float = 0.0) -> None:
        super().__init__(*args)
        self.retry_after_s = retry_after_s


class DeliveryRefused(DeliveryError):
    """An output that its receiver will never take; raised by ``deliver``, so that its group waits for a person."""


class SetupError(InturnError):
    """Something outside this code that is missing or too old: an extra, Java, a module on the workers."""


class Retryable(InturnError):
    """A handler's request for another attempt at a message, when that may succeed; see ``Retry``."""
