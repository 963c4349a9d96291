"""Every error that inturn raises, in one tree, so that a caller can catch as widely as it means to.

```
InturnError
├── PipelineError      the definition contradicts itself; raised when the pipeline is defined
├── InputError         the data offered does not fit the pipeline: a missing column, a wrong type
│   ├── InvalidMessage one message cannot be placed, and the pipeline says on_invalid="fail"
│   └── ValueRefused   a value would not come back as it is; in a state or an output it parks the group
├── HandlerError       the handler returned something that is not (state, outputs)
├── StateError         a state cannot be stored, or the state type changed in a way that loses data
├── GapError           a gap outlived its wait and the policy says then="fail"
├── StoreError         the store cannot be used
│   ├── StoreConflict  another writer committed this step first; nothing of ours was written
│   └── StoreMismatch  the store is of another pipeline, a newer inturn, or a history other than was remembered
├── QueueError         a queue cannot do what it was asked
│   ├── NoSuchQueue    there is no queue of that name
│   ├── QueueExists    there is one, with other settings
│   ├── LeaseExpired   the receiver's lease is over: somebody else may have the message, or has done it
│   └── TransactionOver the caller's transaction took too long and was rolled back
├── KeyRefused         what an idempotency key stands for was not run, or was not settled
│   ├── KeyInProgress  somebody else is at it; come again when ``retry_after_s`` has passed
│   ├── KeyConflict    the key was used for another payload
│   └── LockLost       the lock was over: somebody else may run, or has run, what the key stands for
├── TurnError          a task did not get its turn in a QueueBroker: it has not run, and never will
│   ├── QueueFull      as many wait as may
│   ├── TurnTimeout    its deadline passed while it waited; also a TimeoutError
│   └── BrokerStopped  the broker was stopped
├── SetupError         something outside Python is missing or too old: an extra, a Java, a worker's module
└── Retryable          raised by a handler: try this message again before its group is parked
```
"""


class InturnError(Exception):
    """The root of the tree."""


class PipelineError(InturnError):
    """A pipeline's definition contradicts itself."""


class InputError(InturnError):
    """The data offered does not fit the pipeline."""


class InvalidMessage(InputError):
    """A message cannot be placed and the pipeline asked to stop at the first such message."""


class ValueRefused(InputError):
    """A value in a body, a state or an output would not come back as it is; the text names its path and type."""


class HandlerError(InturnError):
    """The handler returned something that is not ``(state, outputs)``."""


class StateError(InturnError):
    """A state cannot be stored, or its type no longer fits the store."""


class GapError(InturnError):
    """A gap outlived its wait under ``then="fail"``."""


class StoreError(InturnError):
    """The store cannot be used."""


class StoreConflict(StoreError):
    """Another writer committed the step first; nothing was changed."""


class StoreMismatch(StoreError):
    """The store belongs to another pipeline or a newer format, or is not the one that a place was remembered of."""


class QueueError(InturnError):
    """A queue cannot do what it was asked."""


class NoSuchQueue(QueueError):
    """There is no queue of that name."""


class QueueExists(QueueError):
    """There is a queue of that name, with other settings."""


class LeaseExpired(QueueError):
    """The lease is over, so nothing was changed: somebody else may have the message, or has done it."""


class TransactionOver(QueueError):
    """The transaction took longer than ``limits.TRANSACTION_S`` and was rolled back; nothing of it was kept."""


class KeyRefused(InturnError):
    """What an idempotency key stands for was not run, or was not settled."""


class KeyInProgress(KeyRefused):
    """Somebody else is at it; whether it will be done nobody knows yet.

    Attributes:
        retry_after_s: in how many seconds the other's lock is over, if it is not extended.
    """

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message, retry_after_s)
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return str(self.args[0])


class KeyConflict(KeyRefused):
    """The key was used for another payload: the two are not the same request. Nothing was run."""


class LockLost(KeyRefused):
    """The lock of a key is over, so nothing was changed: somebody else may run, or has run, what it stands for."""


class TurnError(InturnError):
    """A task did not get its turn: it has not run, and never will."""


class QueueFull(TurnError):
    """As many tasks wait as may; offer it again later, or wait for room with ``put``."""


class TurnTimeout(TurnError, TimeoutError):
    """The deadline passed while the task waited for its turn."""


class BrokerStopped(TurnError):
    """The broker was stopped while the task waited, or before it came."""


class SetupError(InturnError):
    """Something outside this code is missing or too old: an extra, Java, a module on the workers."""


class Retryable(InturnError):
    """Raise it from a handler when another attempt may succeed; see ``Retry``."""
