"""The store over SQLite: transactions, sends and inspection; see deliveries.py for the rest."""

import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from itertools import repeat
from types import TracebackType
from typing import Any, Final

from inturn.core import limits
from inturn.core.errors import InputError, StoreError
from inturn.core.idempotency_keys import KeyAnswer, KeyRequest
from inturn.core.queue import deduplication, delivery, sessions
from inturn.core.queue.delivery import DeliveryState
from inturn.core.queue.messages import (
    Depth,
    Draft,
    GroupView,
    QueueInfo,
    Sent,
    StoredMessage,
    first_number,
)
from inturn.faults import reach
from inturn.store.protocols import RunAgain
from inturn.store.sqlite.backup import backup
from inturn.store.sqlite.connection import connect, said
from inturn.store.sqlite.deliveries import entry_of
from inturn.store.sqlite.file import OWNER_ONLY, Files, let_go
from inturn.store.sqlite.identity import identity_of, lineage_of
from inturn.store.sqlite.keys import SqliteKeys
from inturn.store.sqlite.pipelines import SqlitePipelines
from inturn.store.sqlite.reserve import Reserve
from inturn.store.sqlite.servers import SqliteServers
from inturn.store.sqlite.sessions import SqliteSessions

_NO_ROOM: Final = {"SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"}
_IS_NO_DUPLICATE: Final = False
_FIRST: Final = (0, "", "")  # before every deduplication key
_LAST: Final = (2**63 - 1, "", "")  # after every deduplication key


class SqliteStore(SqliteSessions):
    """Queues in one SQLite file, which several processes may have open.

    Args:
        path: the file, created if it does not exist; ``:memory:`` for none.
        durable: whether a commit waits until it is on the disk. If not, a power failure may lose the last commits,
            though never a part of one; the death of the process loses none.
        mode: permissions of the file, if it is created.

    Raises:
        StoreError: if the file cannot be used; the text says why.
    """

    def __init__(self, path: str, *, durable: bool = True, mode: int = OWNER_ONLY) -> None:
        reserve = Reserve(path)
        connection, self._files, is_full = _opened(path, reserve, durable=durable, mode=mode)
        super().__init__(connection)
        self._reserve = reserve
        self._empty_log(1 if is_full else 0)
        self._path = path
        self.identity: Final = identity_of(self.connection, path)
        self.lineage: Final = lineage_of(self.connection)
        self._waits = True
        self._swept: tuple[int, str, str] = _FIRST  # the deduplication key up to which rows were swept
        self._to_sweep = 0
        self._keys = SqliteKeys(self.connection)
        self._transaction = _SqliteTransaction(self)
        self.pipelines = SqlitePipelines(self.connection)
        self.servers = SqliteServers(self)

    def is_identity(self, identity: str) -> bool:
        """Return whether this is the identity of this file, which another store may have opened."""
        return identity == self.identity

    def transaction(self) -> "_SqliteTransaction":
        """Return a transaction for ``with``: committed at the end of the block, rolled back if it raises."""
        return self._transaction

    def lasting(self) -> AbstractContextManager[None]:
        """Return the same as ``transaction``: there is one writer at a time."""
        return self.transaction()

    def begin(self, *, wait: bool = True) -> None:
        """Take the write lock, and refresh what other connections have changed.

        Args:
            wait: whether to wait for a process that holds the lock; otherwise an error is raised.
        """
        try:
            if self._files.are_lost:
                self._files.check()
            self._reserve.began()
            if wait is not self._waits:
                self.connection.execute(f"pragma busy_timeout = {limits.BUSY_S * 1000 if wait else 0}").fetchone()
                self._waits = wait
            self.connection.execute("begin immediate")
            reach("in transaction")
            if self.catalog.look():
                self.nonempty.clear()
                self.pending.look()
                if self.catalog.has_lost:
                    self.incarnations.renew()
        except BaseException as error:
            self.roll_back(error)
            raise

    def commit(self) -> None:
        """Commit the transaction."""
        try:
            self.catalog.save_counts()
            reach("before commit")
            self.connection.execute("commit")
            self._files.check()  # raise if the commit went to a deleted or replaced file
            self.pending.commit()
            self.later.behind.kept()
            self._reserve.committed()
            reach("after commit")
        except BaseException as error:
            self.roll_back(error)
            raise

    def roll_back(self, because: BaseException) -> None:
        """Roll back the transaction.

        Raises:
            StoreError: if the cause is an error of the database; the text says what is wrong.
            RunAgain: if the disk was full and the reserve was released.
        """
        self.catalog.forget()
        self.pending.roll_back()
        self.later.behind.lost()
        self.incarnations.begun.clear()
        with suppress(sqlite3.Error):
            if self.connection.in_transaction:  # SQLite rolls back by itself on a full disk
                self.connection.execute("rollback")
        if isinstance(because, sqlite3.Error):
            told = said(because, self._path)
            if getattr(because, "sqlite_errorname", "") in _NO_ROOM and self._reserve.release():
                self._empty_log(1)
                raise RunAgain(str(told)) from because
            if told is not because:
                raise told from because

    def _empty_log(self, pages: int) -> None:
        """Checkpoint now and whenever the log has so many pages; 0 restores the usual threshold."""
        self._is_full = pages > 0
        with suppress(sqlite3.Error):
            self.connection.execute(f"pragma wal_autocheckpoint = {pages or limits.WAL_PAGES}").fetchone()
            if pages:
                self.connection.execute("pragma wal_checkpoint(passive)").fetchone()

    def save(self, name: str, info: QueueInfo | None, *, purge: bool = False) -> None:
        """Create, change or remove a queue."""
        self.nonempty.clear()
        if name in self.queues and (info is None or purge):
            self.pending.forget(self.queues[name].number)
        self.catalog.save(name, info, purge=purge)

    # --- sending ---

    def send(self, queue: QueueInfo, drafts: Sequence[Draft], now_ms: int) -> list[Sent]:
        """Append messages to a queue."""
        self._make_room(drafts)
        self.look_at_clock(now_ms)
        if queue.number not in self.incarnations.begun:
            self.incarnations.begin(queue, now_ms)
        sent = self._numbers(queue, drafts, now_ms)
        number, delay_ms = queue.number, queue.settings.delay_ms
        messages, plain, known, holds = [], [], [], []
        heads: dict[str, int] = {}
        added: list[tuple[int, str | None]] = []
        singles: list[tuple[int, None]] = []
        for draft, (last, is_duplicate) in zip(drafts, sent, strict=True):
            if is_duplicate:
                continue
            body, content, group, revision, dedup_id, delay, attributes = draft
            added.append((last, group))
            if revision is not None or attributes is not None:
                messages.append((last, number, body, int(content), group, revision, dedup_id, attributes, now_ms))
            elif dedup_id is not None:  # binding None costs as much as a text, so it is omitted
                known.append((last, number, body, int(content), group, dedup_id, now_ms))
            else:
                plain.append((last, number, body, int(content), group, now_ms))
            delay = delay_ms if delay is None else delay
            if delay:
                holds.append((last, number, group, *delivery.delayed(delay, now_ms)))
                if group is not None:
                    heads.setdefault(group, 0)  # later messages of the group are not its first
            elif group is None:
                singles.append((last, None))
            else:
                heads.setdefault(group, last)
        self._do_each("add_plain", plain)
        self._do_each("add_known", known)
        self._do_each("add_message", messages)
        self._do_each("set_hold", holds)
        self._do_each("ready", singles)
        if heads:
            self._do_each("ready_if_first", self._firsts(queue, heads))
        before = queue.last
        queue.last += len(added)
        queue.depth += len(added)
        self.catalog.sent(queue)
        self.pending.sent(queue, before, added)
        return sent

    def _make_room(self, drafts: Sequence[Draft]) -> None:
        """Check that the disk has room beyond what draining the queues needs."""
        self._reserve.check(drafts, self.connection)
        if self._is_full:
            self._empty_log(0)

    def _firsts(self, queue: QueueInfo, heads: dict[str, int]) -> list[tuple[int, int, str]]:
        """Return the first message sent to each group, where it may be the head; 0 stands for a delayed one."""
        nonempty, number = self.nonempty, queue.number
        if len(nonempty) > limits.KNOWN_GROUPS:
            nonempty.clear()
        firsts = []
        for group, head in heads.items():
            if (number, group) not in nonempty:
                nonempty.add((number, group))
                if head and self.pending.first_of_newest(queue, group) is None:
                    firsts.append((head, number, group))
        return firsts

    # --- deduplication ---

    def _numbers(self, queue: QueueInfo, drafts: Sequence[Draft], now_ms: int) -> list[Sent]:
        """Return a sequence number for each draft: the next one, or that of the message it duplicates."""
        settings, last = queue.settings, queue.last
        keys = [
            deduplication.known_by(draft, settings) if draft.dedup_id is not None or settings.content_dedup else None
            for draft in drafts
        ]
        wanted = [(key, number) for number, key in enumerate(keys, last + 1) if key is not None]
        if self._are_new(queue, wanted, now_ms):
            return list(map(Sent._make, zip(range(last + 1, last + 1 + len(drafts)), repeat(_IS_NO_DUPLICATE))))
        sent, new = deduplication.numbered(keys, partial(self._known, queue.number), last, settings, now_ms)
        self._do_each("remember", [(queue.number, *key, *value) for key, value in new.items()])
        self._forget(len(new), now_ms)
        return sent

    def _are_new(self, queue: QueueInfo, wanted: Sequence[tuple[tuple[str, str], int]], now_ms: int) -> bool:
        """Remember keys if none of them is known, as is usual; return whether that was so."""
        if not wanted:
            return True
        _, until_ms = deduplication.remembered(0, queue.settings, now_ms)
        before = self.connection.total_changes
        self._do_each("remember_if_new", [(queue.number, *key, number, until_ms) for key, number in wanted])
        if self.connection.total_changes - before == len(wanted):
            self._forget(len(wanted), now_ms)
            return True
        self._do_each("forget_new", [(queue.number, *key, queue.last) for key, _ in wanted])
        return False

    def _known(self, queue: int, key: tuple[str, str]) -> deduplication.RememberedSend | None:
        row = self._one("known", queue, *key)
        return row and deduplication.RememberedSend(*row)

    def _forget(self, new: int, now_ms: int) -> None:
        """Sweep twice as many deduplication rows as were added and delete old ones, so that the table shrinks again."""
        self._to_sweep += 2 * new
        if self._to_sweep < limits.SWEEP_ROWS:
            return
        until_ms = now_ms - limits.CLOCK_SLACK_MS
        end = self._one("sweep_to", *self._swept, self._to_sweep - 1)
        self._do("sweep", *self._swept, *(end or _LAST), until_ms)
        self._swept = end or _FIRST
        self._to_sweep = 0

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
    ) -> list[StoredMessage]:
        """Return the messages after a sequence number."""
        if group is not None and deferred:
            rows = self._all("read_group_deferred", queue.number, group, after, limit)
        elif group is not None:
            self.pending.index(queue, queue.last)
            rows = self._all("read_group", queue.number, group, after, limit)
        elif deferred:
            rows = self._all("read_deferred", queue.number, after, limit)
        else:
            after = max(after, first_number(queue.number))
            rows = self._all("read_pending" if pending else "read", after, first_number(queue.number + 1), limit)
        return [entry_of(row) for row in rows]

    def incarnation(self, queue: QueueInfo, number: int) -> str:
        """Return the incarnation in which a sequence number was given."""
        return self.incarnations.of(queue.number, number)

    def depth(self, queue: QueueInfo, now_ms: int) -> Depth:
        """Return the counts of a queue."""
        in_flight, delayed = self._one("hidden", queue.number, now_ms)
        (deferred,) = self._one("deferred", queue.number)
        return Depth(queue.depth, in_flight, delayed, queue.last, deferred)

    def groups(self, queue: QueueInfo, limit: int, now_ms: int, names: Iterable[str] = ()) -> list[GroupView]:
        """Return groups with messages, in the order of their heads."""
        self.pending.index(queue, queue.last)
        wanted = list(names)
        if wanted:
            found = [(name, *self._one("group", queue.number, name)) for name in wanted]
        else:
            every = first_number(queue.number), first_number(queue.number + 1)
            singles = self._all("ungrouped", queue.number, *every, limit)
            found = [*self._all("groups", queue.number, limit), *((None, 1, number) for (number,) in singles)]
        found = sorted((row for row in found if row[1]), key=lambda row: row[2])
        return [self._view(queue, group, depth, head, now_ms) for group, depth, head in found[:limit]]

    def _view(self, queue: QueueInfo, group: str | None, depth: int, head: int, now_ms: int) -> GroupView:
        entry = entry_of(self._one("one_message", head))
        own, holds, gate = self._hold(head), [], sessions.OPEN
        if group is not None:
            leased = self.leases.of(queue.number, group)
            own = leased.get(head, own)
            holds = [
                *leased.values(),
                *(DeliveryState(*hold) for _, *hold in self._all("group_holds", queue.number, group)),
            ]
            gate = self.gates.of(queue.number, group)
        return sessions.view(entry, depth, gate, own, holds, now_ms)

    def decide(self, space: str, key: str, request: KeyRequest, now_ms: int) -> KeyAnswer:
        """Decide a request about an idempotency key."""
        return self._keys.decide(space, key, request, now_ms)

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> sqlite3.Cursor:
        """Run a statement of the caller.

        Raises:
            StoreError: if the statement would end the transaction.
        """
        if re.match(
            r"\s*(begin|commit|end|rollback|savepoint|release|pragma|attach|detach|vacuum)\b", sql, re.IGNORECASE
        ):
            raise StoreError(f"{sql.strip()[:60]!r} cannot be run here: leave the block to commit, raise to roll back")
        return self.connection.execute(sql, parameters)

    def backup(self, target: str) -> None:
        """Copy the file while it is in use."""
        if self._path == ":memory:":
            raise InputError("a database in memory has no file to be copied")
        backup(self._path, target)

    def close(self) -> None:
        """Close the file."""
        let_go(self.connection, self._files)
        if not self._files.are_lost:
            self._reserve.shrink()


def _opened(path: str, reserve: Reserve, *, durable: bool, mode: int) -> tuple[sqlite3.Connection, Files, bool]:
    """Connect; on a full disk, release the reserve for the log and index, and return True as third."""
    try:
        return *connect(path, durable=durable, mode=mode), False
    except StoreError as error:
        if not isinstance(error.__cause__, sqlite3.Error) or not reserve.release():
            raise
        return *connect(path, durable=durable, mode=mode), True


class _SqliteTransaction:
    """One transaction of a store; a plain class, since a generator-based one costs as much as a statement."""

    __slots__ = ("_store",)

    def __init__(self, store: SqliteStore) -> None:
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
