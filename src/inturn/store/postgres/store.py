"""The store over PostgreSQL: its transactions, what is sent, and what can be looked at; see desk.py for the rest."""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

import psycopg
from psycopg import errors

from inturn.core import dedup, limits, session
from inturn.core.delivery import Hold
from inturn.core.envelope import Depth, Draft, Entry, GroupView, QueueInfo, Sent, first_number
from inturn.core.errors import InputError, StoreError
from inturn.core.idempotency import Answer, Request
from inturn.faults import reach
from inturn.store.base import PipelineStore, RunAgain
from inturn.store.postgres.connection import PLANNING, connect, said
from inturn.store.postgres.desk import entry_of, hold_of
from inturn.store.postgres.listener import Listener
from inturn.store.postgres.sessions import Sessions
from inturn.store.postgres.statements import Wire

_ENDS = re.compile(
    r"\s*(begin|start|commit|end|rollback|abort|savepoint|release|prepare\s+transaction|vacuum|set|reset|discard)\b",
    re.IGNORECASE,
)


class PostgresStore(Sessions):
    """Queues in a PostgreSQL database; several processes, on several machines, may use it.

    Args:
        url: ``postgresql://user@host/database``.
        durable: whether a commit waits until the server's disk has it.
        create: whether tables are made if there are none.

    Raises:
        StoreError: if the database cannot be used; the words say why.
    """

    def __init__(self, url: str, *, durable: bool = True, create: bool = True) -> None:
        self._url = url
        self._durable = durable
        connection, self._planning = connect(url, durable=durable, create=create)
        super().__init__(Wire(connection))
        self._transaction = _Transaction(self)
        self._clock = (0, 0.0)  # the server's, and this machine's monotonic one at the same moment
        self._forgotten_ms = 0
        self._listener: Listener | None = None
        with self.transaction():
            (self._channel,) = self._one("channel")

    # --- transactions ---

    def transaction(self) -> "_Transaction":
        """Everything inside is kept when the block ends, or nothing."""
        return self._transaction

    def clock(self) -> int:
        """The server's time, which is the same for all who use it, in milliseconds since 1970."""
        ms, at = self._clock
        return ms + int((time.monotonic() - at) * 1000)

    def begin(self) -> None:
        """Begin, and see what others have changed."""
        try:
            self._locked.clear()
            self._news.clear()
            self._look()
            reach("in transaction")
        except BaseException as error:
            self.roll_back(error)
            raise

    def listen(self, heard: Callable[[], None]) -> float:
        """Have something called when others have put something into a queue.

        Returns:
            After how long it is to be asked all the same, in seconds.
        """
        if self._listener is None:
            self._listener = Listener(self._url, self._channel, self._is_own, heard)
        return limits.LISTEN_POLL_S if self._listener.is_listening else limits.POLL_S

    def _is_own(self, pid: int) -> bool:
        return pid == self.wire.connection.pgconn.backend_pid

    def _look(self) -> None:
        if self.wire.connection.closed:
            self._reconnect()
        try:
            self.wire.say("begin")
            ms, version = self._one("now")
        except psycopg.OperationalError:
            if not self.wire.connection.closed:
                raise
            self._reconnect()  # the server was started again while nothing was done: nothing is lost
            self.wire.say("begin")
            ms, version = self._one("now")
        before = self.clock()
        # What differs by less than a second are the clocks' own jumps, and no reason to set everything right.
        self._clock = (before if before - 1000 < ms < before else ms), time.monotonic()
        self.catalog.look(version)

    def _reconnect(self) -> None:
        pause_s, until = 0.02, time.monotonic() + limits.RECONNECT_S
        while True:
            try:
                connection, self._planning = connect(self._url, durable=self._durable, create=False)
            except StoreError:
                if time.monotonic() + pause_s > until:
                    raise
                time.sleep(pause_s)
                pause_s *= 2
            else:
                self.wire.use(connection)
                self.catalog.forget()
                return

    def commit(self) -> None:
        """Keep what was done."""
        try:
            reach("before commit")
            committed = self.wire.say("commit")
            if self._news:
                self._do("notify", self._channel, ",".join(map(str, sorted(self._news)[:1000])))
        except BaseException as error:
            self.roll_back(error)
            raise
        try:
            self.wire.flush()
        except psycopg.Error as error:
            if committed.is_done:  # others learn of it when they ask again
                return
            if self.wire.connection.closed:
                self.catalog.forget()
                msg = (
                    f"{said(error, self._url)}: the connection was lost during the commit, so nobody knows whether it "
                    "was done; what is sent again with the same dedup_id is not there twice"
                )
                raise StoreError(msg) from error
            self.roll_back(error)
            raise
        reach("after commit")

    def roll_back(self, because: BaseException) -> None:
        """Keep nothing of it.

        Raises:
            RunAgain: if another transaction was in the way.
            StoreError: if that is because of the database; the words say what is wrong.
        """
        self.wire.forget()
        self.catalog.forget()
        with suppress(psycopg.Error):
            if not self.wire.connection.closed:
                self.wire.say("rollback")
                self.wire.flush()
        if isinstance(because, errors.DeadlockDetected | errors.SerializationFailure):
            raise RunAgain(str(because)) from because
        if isinstance(because, psycopg.OperationalError | psycopg.InternalError):
            raise said(because, self._url) from because

    def save(self, name: str, info: QueueInfo | None, *, purge: bool = False) -> None:
        """Make, change or remove a queue."""
        _check_text("the queue's name", name)
        self.catalog.save(name, info, purge=purge)

    # --- sending ---

    def send(self, queue: QueueInfo, drafts: Sequence[Draft], now_ms: int) -> list[Sent]:
        """Put messages at the end of a queue."""
        self.look_at_clock(now_ms)
        if not drafts:
            return []
        settings = queue.settings
        if settings.content_dedup or any(draft.dedup_id is not None for draft in drafts):
            sent = self._send_known(queue, drafts, now_ms)
        else:
            before = self._add(queue, drafts, now_ms)
            sent = [Sent(before + place, duplicate=False) for place in range(1, len(drafts) + 1)]
        self._delay(queue, drafts, sent, now_ms)
        return sent

    def _add(self, queue: QueueInfo, drafts: Sequence[Draft], now_ms: int) -> int:
        """Give numbers, and write; the number before the first."""
        bodies, contents, groups, revisions, ids, _, attributes = map(list, zip(*drafts, strict=True))
        data = [body.encode() if isinstance(body, str) else body for body in bodies]
        for group, dedup_id in zip(groups, ids, strict=True):
            _check_text("the group", group)
            _check_text("the dedup_id", dedup_id)
        self._news.add(queue.number)
        values = (data, contents, groups, revisions, ids, attributes)
        row = self._one("send", queue.number, len(drafts), now_ms, *values)
        if row is None:
            raise self._removed(queue)
        return int(row[0])

    def _removed(self, queue: QueueInfo) -> RunAgain:
        self.catalog.forget()
        return RunAgain(f"the queue {queue.name!r} was removed at the same time")

    def _send_known(self, queue: QueueInfo, drafts: Sequence[Draft], now_ms: int) -> list[Sent]:
        """Put those at the end that are not an earlier message again."""
        settings = queue.settings
        keys = [dedup.known_by(draft, settings) for draft in drafts]
        wanted = [key for key in keys if key is not None]
        for key in wanted:
            _check_text("the dedup_id", key[1])
            _check_text("the group", key[0])
        self._do("lock_numbering", queue.number)
        rows = self._all("known", queue.number, [scope for scope, _ in wanted], [each for _, each in wanted])
        if not rows:
            raise self._removed(queue)
        last = int(rows[0][0])
        known = {
            wanted[place - 1]: dedup.Remembered(number, until_ms)
            for _, place, number, until_ms in rows
            if place is not None
        }
        new: dict[tuple[str, str], dedup.Remembered] = {}
        sent, added = [], []
        for draft, key in zip(drafts, keys, strict=True):
            if key is not None:
                first = known.get(key)
                if first is not None and dedup.is_same(first, now_ms):
                    sent.append(Sent(first.sequence_number, duplicate=True))
                    continue
                known[key] = new[key] = dedup.remembered(last + 1, settings, now_ms)
            last += 1
            sent.append(Sent(last, duplicate=False))
            added.append(draft)
        if new:
            scopes, ids = [scope for scope, _ in new], [each for _, each in new]
            numbers, until = [each.sequence_number for each in new.values()], [each.until_ms for each in new.values()]
            self._do("remember", queue.number, scopes, ids, numbers, until)
            self._forget(len(new), now_ms)
        if added:
            self._add(queue, added, now_ms)
        return sent

    def _forget(self, new: int, now_ms: int) -> None:
        """Forget twice as many of what is too old as have come, so that the table shrinks again."""
        outdated_ms = now_ms - limits.CLOCK_SLACK_MS
        if outdated_ms < self._forgotten_ms:  # the clock went back
            self._forgotten_ms = 0
        self._do("forget", self._forgotten_ms, outdated_ms, 2 * new)

    def _delay(self, queue: QueueInfo, drafts: Sequence[Draft], sent: Sequence[Sent], now_ms: int) -> None:
        usual = queue.settings.delay_ms
        delayed = [
            (number, draft.group, now_ms + delay_ms)
            for draft, (number, is_duplicate) in zip(drafts, sent, strict=True)
            if not is_duplicate and (delay_ms := usual if draft.delay_ms is None else draft.delay_ms)
        ]
        if delayed:
            self._do("delay", queue.number, now_ms, *map(list, zip(*delayed, strict=True)))
            self._touch(queue, [(None, None, 0, min(until_ms for *_, until_ms in delayed))])

    # --- looking ---

    def read(
        self,
        queue: QueueInfo,
        after: int,
        limit: int,
        *,
        pending: bool = False,
        deferred: bool = False,
        group: str | None = None,
    ) -> list[Entry]:
        """The messages after a sequence number."""
        if group is not None:
            rows = self._all("read_group_deferred" if deferred else "read_group", queue.number, group, after, limit)
        elif deferred:
            rows = self._all("read_deferred", queue.number, after, limit)
        else:
            after = max(after, first_number(queue.number))
            rows = self._all("read_pending" if pending else "read", after, first_number(queue.number + 1), limit)
        return [entry_of(row) for row in rows]

    def depth(self, queue: QueueInfo, now_ms: int) -> Depth:
        """How much is in a queue."""
        hidden = self._do("hidden", queue.number, now_ms)
        deferred = self._do("deferred", queue.number)
        last, messages, _ = self.catalog.counts(queue)
        return Depth(messages, *hidden.rows[0], last, *deferred.rows[0])

    def groups(self, queue: QueueInfo, limit: int, now_ms: int, names: Iterable[str] = ()) -> list[GroupView]:
        """Groups with messages, those whose head is oldest first."""
        wanted = list(names)
        if wanted:
            found = [(name, *self._one("group", queue.number, name)) for name in wanted]
        else:
            singles = self._all("ungrouped", queue.number, limit)
            found = [*self._all("groups", queue.number, limit), *((None, 1, number) for (number,) in singles)]
        found = sorted((row for row in found if row[1]), key=lambda row: row[2])
        return [self._view(queue, group, depth, head, now_ms) for group, depth, head in found[:limit]]

    def _view(self, queue: QueueInfo, group: str | None, depth: int, head: int, now_ms: int) -> GroupView:
        row = self._one("one_message", head)
        own = hold_of(row)
        holds: list[Hold] = []
        gate = session.OPEN
        if group is not None:
            holds = [Hold(*hold) for _, *hold in self._all("group_holds", queue.number, group)]
            gate = self.gates.of(queue.number, group)
        why, until_ms, token = session.why(gate, own, holds, now_ms)
        return GroupView(group, depth, head, row[7], why, until_ms, token, own.attempts if own else 0, gate.note)

    # --- what else is in the database ---

    @property
    def pipelines(self) -> PipelineStore:
        """The pipelines."""
        raise NotImplementedError

    def decide(self, space: str, key: str, request: Request, now_ms: int) -> Answer:
        """Decide about an idempotency key."""
        raise NotImplementedError

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> "psycopg.Cursor[Any]":
        """Run a statement of the caller's, planned as the server would plan it.

        Raises:
            StoreError: for one that would end the transaction, or change the connection.
        """
        if _ENDS.match(sql):
            msg = f"{sql.strip()[:60]!r} cannot be run here: leave the block to commit, raise to roll back"
            raise StoreError(msg)
        self.wire.flush()
        connection = self.wire.connection
        cursor = psycopg.Cursor(connection)
        with connection.pipeline():
            self._plan_as(connection, self._planning)
            cursor.execute(sql.encode(), parameters or None, prepare=False)
            self._plan_as(connection, PLANNING)
        return cursor

    @staticmethod
    def _plan_as(connection: "psycopg.Connection[Any]", settings: Mapping[str, str]) -> None:
        calls = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in settings.items())
        connection.execute(f"select {calls}".encode())

    def close(self) -> None:
        """Let go of the database."""
        if self._listener is not None:
            self._listener.stop()
        self.wire.connection.close()


def _check_text(what: str, text: str | None) -> None:
    if text is not None and "\0" in text:
        msg = f"{what} {text!r} has a NUL at {text.index(chr(0))}, which PostgreSQL keeps in no text; leave it out"
        raise InputError(msg)


class _Transaction:
    """One transaction of a store; a plain class, since one that is made of a generator costs as much as a statement."""

    __slots__ = ("_store",)

    def __init__(self, store: PostgresStore) -> None:
        self._store = store

    def __enter__(self) -> None:
        self._store.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._store.commit()
        else:
            self._store.roll_back(error)
