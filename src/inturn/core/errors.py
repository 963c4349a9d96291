"""The errors of inturn, in one tree, so that a caller can catch as widely as it wants.

```
InturnError
├── PipelineError      the definition contradicts itself; raised when the pipeline is defined
├── InputError         the data does not fit the pipeline: a missing column, a wrong type
│   ├── InvalidMessage one message cannot be placed, and the pipeline has on_invalid="fail"
│   ├── NoSuchGroup    no group has this name; also a KeyError
│   ├── GroupMoved     a decision is about a group that has changed since the operator saw it
│   └── ValueRefused   a value would not be read back unchanged; in a state or output it parks the group
├── HandlerError       the handler returned an invalid result, such as one that is not (state, outputs)
├── StateError         a state cannot be stored, or the state type changed in a way that loses data
├── GapError           the wait for a gap has expired and the policy has then="fail"
├── StoreError         the store cannot be used
│   ├── NoSuchDatabase no database has this name or address, or it has no inturn tables yet
│   ├── StoreUnavailable  not at the moment: its connection is lost, a lock is held for too long, its disk is full
│   ├── StoreConflict  another writer committed this step first; nothing was written
│   └── StoreMismatch  the store belongs to another pipeline, a newer inturn, or another history than remembered
├── QueueError         a queue cannot fulfil a request
│   ├── NoSuchQueue    no queue has this name
│   ├── QueueExists    a queue of this name exists, with other settings
│   ├── LeaseExpired   the lease has ended: another receiver may have the message, or may have processed it
│   ├── RevisionMismatch the group's last revision is not expected_revision
│   ├── WriterHeld     another producer holds the writer's lease of the group
│   ├── QueueFull      the queue has max_depth messages; of a QueueBroker: the limit of waiting tasks is reached
│   └── TransactionOver the caller's transaction took too long and was rolled back
├── KeyRefused         the operation of an idempotency key was not run, or was not settled
│   ├── KeyInProgress  another caller is running it; retry after ``retry_after_s``
│   ├── KeyConflict    the key was used for another payload
│   └── LockLost       the lock has ended: another caller may run, or has run, the operation of the key
├── TaskNotRun         a task did not get its slot in a QueueBroker: it has not run, and never will
│   ├── QueueFull      as above
│   ├── SlotTimeout    its deadline passed while it waited; also a TimeoutError
│   └── BrokerStopped  the broker was stopped
├── SourceError        a source of records cannot be read
│   ├── PositionGone   it no longer has the remembered position
│   └── RejectedFull   it stores the maximum number of rejected records
├── DeliveryError      an output could not be delivered; it is tried again
│   └── DeliveryRefused its receiver will never accept it; its group's outputs wait for an operator
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
    """A message without a group or a place, in a pipeline that stops at the first such message."""


class ValueRefused(InputError):
    """A value in a body, a state or an output that would not be read back unchanged; the text names path and type."""


class NoSuchGroup(InputError, KeyError):
    """A request for a group that the pipeline does not have."""

    def __str__(self) -> str:
        return InputError.__str__(self)  # a KeyError would quote it


class GroupMoved(InputError):
    """A decision about a group that has changed since the operator saw it; nothing was recorded."""


class HandlerError(InturnError):
    """A handler with an invalid result, such as one that is not ``(state, outputs)``."""


class StateError(InturnError):
    """A state that cannot be stored, or whose type no longer fits the store."""


class GapError(InturnError):
    """A gap whose wait has expired under ``then="fail"``."""


class StoreError(InturnError):
    """A store that cannot be used."""


class NoSuchDatabase(StoreError):
    """A database that does not exist, or a PostgreSQL database in which inturn's tables were not created yet."""


class StoreUnavailable(StoreError):
    """A store that cannot be used at the moment; nothing was changed, unless the text says that this is unknown.

    The connection is lost, another transaction has held a lock for too long, or the disk is full. A worker and a
    consumer wait until it can be used again.
    """


class StoreConflict(StoreError):
    """A conflict with another writer, which committed the step first; nothing was changed."""


class StoreMismatch(StoreError):
    """A store of another pipeline or a newer format, or a store that does not contain the remembered place."""


class QueueError(InturnError):
    """A request that a queue cannot fulfil."""


class NoSuchQueue(QueueError):
    """A request for a queue that does not exist."""


class QueueExists(QueueError):
    """A request to create a queue that exists with other settings."""


class LeaseExpired(QueueError):
    """A lease that has ended; nothing was changed. Another receiver may have the message, or may have processed it."""


class RevisionMismatch(QueueError):
    """A send whose expected revision is not the last revision of its group; nothing was sent.

    Attributes:
        expected: last revision that the sender expected.
        last: last revision that the queue assigned; 0: none.
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
        holder: name of the group's writer; None: the group has never had a writer.
    """

    def __init__(self, message: str, holder: str | None) -> None:
        super().__init__(message, holder)
        self.holder = holder

    def __str__(self) -> str:
        return str(self.args[0])


class TransactionOver(QueueError):
    """A transaction that took longer than ``limits.TRANSACTION_S`` and was rolled back completely."""


class KeyRefused(InturnError):
    """An operation of an idempotency key that was not run, or was not settled."""


class KeyInProgress(KeyRefused):
    """A key whose operation another caller is running; its outcome is not known yet.

    Attributes:
        retry_after_s: seconds until the other caller's lock ends, if it is not extended.
    """

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message, retry_after_s)
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return str(self.args[0])


class KeyConflict(KeyRefused):
    """A key that was used for another payload, so the requests are not the same. Nothing was run."""


class LockLost(KeyRefused):
    """A key's lock that has ended; nothing was changed. Another caller may run, or has run, the operation."""


class TaskNotRun(InturnError):
    """A task that did not get its slot: it has not run, and never will."""


class QueueFull(QueueError, TaskNotRun):
    """A full queue, to which nothing was added; try again later, or wait for room.

    A queue of a database has ``max_depth`` messages: ``send(…, wait_s=…)`` waits. A ``QueueBroker`` has ``max_queued``
    waiting tasks: ``put`` waits.
    """


class SlotTimeout(TaskNotRun, TimeoutError):
    """A deadline that passed while the task waited for its slot."""


class BrokerStopped(TaskNotRun):
    """A stop of the broker while the task waited, or before it was offered."""


class SourceError(InturnError):
    """A source of records that cannot be read."""


class RejectedFull(SourceError):
    """A source that stores its maximum number of rejected records, each the only copy; resend or purge them."""


class PositionGone(SourceError):
    """A position that the source no longer has; nothing is read until an operator decides where reading continues.

    Attributes:
        partition: the partition, if it is not the requested one.
    """

    def __init__(self, text: str, partition: str | None = None) -> None:
        super().__init__(text)
        self.partition = partition


class DeliveryError(InturnError):
    """An output that could not be delivered this time; the worker tries it again.

    Args:
        args: the reason.
        retry_after_s: minimum time until the next attempt, in seconds; at most ``limits.DELIVER_RETRY_AFTER_S``.
    """

    retry_after_s: float = 0.0

    def __init__(self, *args: object, retry_after_s: float = 0.0) -> None:
        super().__init__(*args)
        self.retry_after_s = retry_after_s


class DeliveryRefused(DeliveryError):
    """An output that its receiver will never accept; raised by ``deliver``, so that its group waits for an operator."""


class SetupError(InturnError):
    """Something outside this code that is missing or too old: an extra, Java, a module on the workers."""


class Retryable(InturnError):
    """A handler's request for another attempt at a message, because it may succeed then; see ``Retry``."""
