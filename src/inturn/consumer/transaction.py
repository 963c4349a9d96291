"""The transaction passed to a handler: it begins at its first use, so that a handler need not hold a lock."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from inturn.core.errors import HandlerError, InputError, LeaseExpired, TransactionOver
from inturn.database import Transaction
from inturn.queue.message import Message
from inturn.queue.operation import operation
from inturn.store.commands import Command, StoreCall
from inturn.store.writer.group_commit import Writer

if TYPE_CHECKING:
    from inturn.store.protocols import SqlStore

T = TypeVar("T")


class AckRefused(Exception):
    """An acknowledgement after the end of the lease, for which the transaction is rolled back."""


class HandlerTransaction:
    """A transaction of the queue's database for one message, to be passed to verbs as ``tx=``.

    It begins at its first use, and includes the message's acknowledgement. From then on it holds the same locks as a
    ``db.transaction()``, so use it last. An unused transaction costs nothing.
    """

    def __init__(self, message: Message, *, is_async: bool) -> None:
        self._message = message
        self._is_async = is_async
        self._transaction: Transaction | None = None
        self._is_over = False

    @property
    def writer(self) -> Self:
        """The runner of its own operations: the transaction itself."""
        return self

    @property
    def identity(self) -> str:
        """The identity of the open database."""
        return self._writer.identity()

    @property
    def is_begun(self) -> bool:
        """True once it was used."""
        return self._transaction is not None

    @operation
    def execute(self, sql: str, parameters: tuple[Any, ...] | Mapping[str, Any] = ()) -> Command[Any]:
        """Run a statement of your own, and return a cursor of sqlite3 or psycopg; see :meth:`Transaction.execute`.

        An async handler awaits ``tx.execute.aio(…)``.
        """
        return StoreCall("", lambda store, _now_ms: cast("SqlStore", store).execute(sql, parameters))

    def run(self, command: Command[T]) -> T:
        """Run a command in this transaction; verbs do so when given ``tx=``."""
        if self._is_async:
            msg = "an async handler must await the operations of its transaction: await tx.execute.aio(…), "
            raise InputError(f"{msg}await queue.send.aio(…, tx=tx)")
        if self._transaction is None:
            self._transaction = self._create().__enter__()
        return self._transaction.run(command)

    async def arun(self, command: Command[T]) -> T:
        """Run a command in this transaction, from an asyncio task."""
        if self._transaction is None:
            self._transaction = await self._create().__aenter__()
        return await self._transaction.arun(command)

    @property
    def _writer(self) -> Writer:
        return self._message.writer

    def _create(self) -> Transaction:
        if self._is_over:
            raise TransactionOver("the transaction has ended: its handler has returned")
        return Transaction(self._writer, cast("SqlStore", self._writer.store))

    def __enter__(self) -> Self:
        """Return the transaction, which has not begun."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Acknowledge the message and commit or, after an error, roll back; nothing if it has not begun."""
        self._is_over = True
        if self._transaction is None:
            return
        try:
            if error is None:
                with acknowledging(self._transaction):
                    self._message.ack(tx=self._transaction)
        except BaseException as ack_error:
            self._transaction.__exit__(type(ack_error), ack_error, ack_error.__traceback__)
            raise
        self._transaction.__exit__(kind, error, trace)


@contextmanager
def acknowledging(tx: object) -> Iterator[None]:
    """Run the acknowledgement of a handled message in a transaction.

    Raises:
        AckRefused: if the lease of the message has expired.
        HandlerError: if ``tx`` is not a transaction of this database.
    """
    if tx is None:  # the acknowledgement would be committed separately, whatever the result of the caller's transaction
        raise HandlerError("the context manager of transaction= returned None; expected a value that tx= accepts")
    try:
        yield
    except LeaseExpired as error:
        raise AckRefused(str(error)) from error
    except InputError as error:
        raise HandlerError(f"the message cannot be acknowledged in transaction=: {error}") from error
