"""The store over SQLite: it selects what core/delivery.py decides about.

`inturn_ready` holds the head of every group that can be received, so the next message is the first row of an index
whatever lies behind it; `inturn_hold` holds what is in flight or delayed, which is little, so messages themselves are
written once and deleted once. Every change of a group ends in :meth:`SqliteStore._refresh`.
"""

import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final

from inturn.core import dedup, delivery, limits
from inturn.core.delivery import Act, Change, Hold, Verdict
from inturn.core.envelope import (
    Content,
    Delivery,
    Depth,
    Draft,
    Entry,
    GroupView,
    QueueInfo,
    Sent,
    first_number,
)
from inturn.core.errors import StoreError
from inturn.core.idempotency import Answer, Request
from inturn.faults import reach
from inturn.store.sqlite.catalog import Catalog
from inturn.store.sqlite.connection import connect, said
from inturn.store.sqlite.keys import Keys
from inturn.store.sqlite.statements import Statements

_ENTRY: Final = len(Entry._fields)


class SqliteStore(Statements):
    """Queues in one SQLite file; several processes may have it open.

    Args:
        path: of the file, which is made if it is not there; ``:memory:`` for none.
        durable: whether a commit waits until the disk has it. If not, the last commits before a power failure may be
            lost, though never a part of one, and none when only the process dies.

    Raises:
        StoreError: if the file cannot be used; the words say why.
    """

    def __init__(self, path: str, *, durable: bool = True) -> None:
        super().__init__(connect(path, durable=durable))
        self._path = path
        self._catalog = Catalog(self.connection)
        self._keys = Keys(self.connection)
        self._now_ms = 2**63

    def transaction(self) -> "_Transaction":
        """Everything inside is kept when the block ends, or nothing."""
        return _Transaction(self)

    def begin(self) -> None:
        """Take the write lock, and see what others have written."""
        try:
            self.connection.execute("begin immediate")
            reach("in transaction")
            self._catalog.look()
        except BaseException as error:
            self.roll_back(error)
            raise

    def commit(self) -> None:
        """Keep what was done."""
        try:
            self._catalog.save_counts()
            reach("before commit")
            self.connection.execute("commit")
            reach("after commit")
        except BaseException as error:
            self.roll_back(error)
            raise

    def roll_back(self, because: BaseException) -> None:
        """Keep nothing of it.

        Raises:
            StoreError: if that is because of the database; the words say what is wrong.
        """
        self._catalog.forget()
        with suppress(sqlite3.Error):
            if self.connection.in_transaction:  # a full disk has rolled back already
                self.connection.execute("rollback")
        if isinstance(because, sqlite3.Error):
            told = said(because, self._path)
            if told is not because:
                raise told from because

    @property
    def queues(self) -> dict[str, QueueInfo]:
        """All queues by name."""
        return self._catalog.queues

    def save(self, name: str, info: QueueInfo | None, *, purge: bool = False) -> None:
        """Make, change or remove a queue."""
        self._catalog.save(name, info, purge=purge)

    # --- sending ---

    def send(self, queue: QueueInfo, drafts: Sequence[Draft], now_ms: int) -> list[Sent]:
        """Put messages at the end of a queue."""
        self._look_at_clock(now_ms)
        settings, number, sent = queue.settings, queue.number, []
        delay_ms = settings.delay_ms
        messages, plain, holds = [], [], []
        known: dict[tuple[str, str], dedup.Remembered] = {}
        heads: dict[str, int] = {}
        singles: list[tuple[int, None]] = []
        last = queue.last
        for draft in drafts:
            body, content, group, revision, dedup_id, delay, attributes = draft
            key = dedup.known_by(draft, settings) if dedup_id is not None or settings.content_dedup else None
            if key is not None:
                first = known.get(key) or self._known(number, key)
                if first is not None and dedup.is_same(first, now_ms):
                    sent.append(Sent(first.sequence_number, duplicate=True))
                    continue
                known[key] = dedup.remembered(last + 1, settings, now_ms)
            last += 1
            sent.append(Sent(last, duplicate=False))
            if revision is None and dedup_id is None and attributes is None:  # each None costs as much as a text
                plain.append((last, number, body, int(content), group, now_ms))
            else:
                messages.append((last, number, body, int(content), group, revision, dedup_id, attributes, now_ms))
            delay = delay_ms if delay is None else delay
            if delay:
                holds.append((last, number, group, now_ms + delay, None, 0, False, now_ms, None))
                if group is not None:
                    heads.setdefault(group, 0)  # what follows is not the first
            elif group is None:
                singles.append((last, None))
            else:
                heads.setdefault(group, last)
        self._do_each("add_plain", plain)
        self._do_each("add_message", messages)
        self._do_each("set_hold", holds)
        if known:
            self._remember(number, known, now_ms)
        self._do_each("ready", singles)
        self._do_each("ready_if_first", [(head, number, group) for group, head in heads.items() if head])
        queue.last = last
        queue.depth += len(messages) + len(plain)
        self._catalog.sent(queue)
        return sent

    def _known(self, queue: int, key: tuple[str, str]) -> dedup.Remembered | None:
        row = self._one("known", queue, *key)
        return row and dedup.Remembered(*row)

    def _remember(self, queue: int, known: dict[tuple[str, str], dedup.Remembered], now_ms: int) -> None:
        """Note what was sent, and forget twice as much of what is too old, so that the table shrinks again."""
        self._do_each("remember", [(queue, *key, *value) for key, value in known.items()])
        self._do_each("forget", self._all("outdated", now_ms - limits.CLOCK_SLACK_MS, 2 * len(known)))

    # --- receiving ---

    def receive(
        self, queue: QueueInfo, limit: int, visibility_ms: int | None, now_ms: int, group: str | None = None
    ) -> list[Delivery]:
        """Lease messages."""
        self._look_at_clock(now_ms)
        self._tidy(queue, now_ms)
        token = queue.tokens + 1
        if visibility_ms is None:
            visibility_ms = queue.settings.visibility_ms
        given: list[Delivery] = []
        holds = []
        for head, name in self._heads(queue, group):
            for entry, before in self._take(queue, head, name, limit - len(given), now_ms):
                hold = delivery.leased(before, token, visibility_ms, now_ms)
                holds.append((entry.sequence_number, queue.number, name, *hold))
                given.append(Delivery(entry, token, now_ms + visibility_ms, hold.attempts, hold.first_ms))
            if len(given) == limit:
                break
        if holds:
            queue.tokens = token
            self._catalog.counted(queue)
            self._do_each("set_hold", holds)
        else:
            due = self._one("due", queue.number)
            queue.due_ms = due and due[0]
        return given

    def _heads(self, queue: QueueInfo, group: str | None) -> Iterator[tuple[int, str | None]]:
        """The heads of the groups that are free, the oldest first; each is taken off the list."""
        if group is not None:
            head = self._one("head", queue.number, group)
            if head and self._one("is_ready", *head):
                self._do("not_ready", *head)
                yield head[0], group
            return
        at, end = first_number(queue.number), first_number(queue.number + 1)
        while row := self._one("next_ready", at, end):
            at = row[0]
            self._do("not_ready", at)
            yield row

    def _take(
        self, queue: QueueInfo, head: int, group: str | None, limit: int, now_ms: int
    ) -> list[tuple[Entry, Hold | None]]:
        """What can be received of a group; what was tried too often at its head is moved away first."""
        to = self.queues.get(queue.settings.dead_letter or "")
        while rows := self._group(queue, head, group, limit):
            entry, hold = rows[0]
            if to is None or not delivery.is_exhausted(hold, queue.settings.max_receives):
                return rows[: delivery.takes([hold for _, hold in rows], limit, now_ms)]
            self._move(queue, entry, to, delivery.exhausted(queue.settings.max_receives), now_ms)
        return []

    def _group(self, queue: QueueInfo, head: int, group: str | None, limit: int) -> list[tuple[Entry, Hold | None]]:
        """The first messages of a group, with what is known of them."""
        if group is None:
            rows = self._all("one_message", head)
        else:
            rows = self._all("group_messages", queue.number, group, limit)
        return [(_entry(row), _hold(row[_ENTRY:])) for row in rows]

    def _look_at_clock(self, now_ms: int) -> None:
        """If it went back, nothing waits longer than it was to wait."""
        if now_ms < self._now_ms:  # or this is the first look
            self._do("set_right", now_ms)
        self._now_ms = now_ms

    def _tidy(self, queue: QueueInfo, now_ms: int) -> None:
        """Give back leases that are over, and remove what is past its retention."""
        touched: set[tuple[int, str | None]] = set()
        if queue.settings.retention_s is not None:
            touched |= self._retire(queue, round(now_ms - queue.settings.retention_s * 1000))
        for number, group, *hold in self._all("over", queue.number, now_ms, limits.EXPIRE_AT_ONCE):
            touched.add(self._give_back(queue, number, group, Hold(*hold)))
        self._refresh(queue, touched, now_ms)

    def _retire(self, queue: QueueInfo, sent_until_ms: int) -> set[tuple[int, str | None]]:
        touched: set[tuple[int, str | None]] = set()
        rows = self._all("oldest", first_number(queue.number), first_number(queue.number + 1), limits.EXPIRE_AT_ONCE)
        for number, group, done, sent_ms in rows:
            if sent_ms > sent_until_ms:
                break
            for statement in ("remove_message", "remove_hold", "not_ready"):
                self._do(statement, number)
            queue.depth -= not done
            self._catalog.counted(queue)
            touched.add((0 if group is not None else number, group))
        return touched

    def _give_back(
        self, queue: QueueInfo, number: int, group: str | None, hold: Hold, delay_ms: int = 0, now_ms: int = 0
    ) -> tuple[int, str | None]:
        """End a hold; which group is to be looked at again is returned."""
        is_head = group is None or self._one("head", queue.number, group)[0] == number
        left = delivery.given_back(hold, is_head=is_head, delay_ms=delay_ms, now_ms=now_ms)
        if left is None:
            self._do("remove_hold", number)
        else:
            self._do("set_hold", number, queue.number, group, *left)
        return (number if group is None else 0), group

    def _refresh(self, queue: QueueInfo, touched: Iterable[tuple[int, str | None]], now_ms: int) -> None:
        """List the heads of those groups that are free now; a message without a group is named by its number."""
        for number, group in touched:
            if group is None:
                row = self._one("one_message", number)
                if row and not delivery.is_hidden(_hold(row[_ENTRY:]), now_ms):
                    self._do("ready", number, None)
                continue
            head = self._one("head", queue.number, group)
            if head is None:
                continue
            holds = {at: Hold(*hold) for at, *hold in self._all("group_holds", queue.number, group)}
            blocked = any(delivery.blocks_all(hold, now_ms) for hold in holds.values())
            if not blocked and not delivery.is_hidden(holds.get(head[0]), now_ms):
                self._do("ready", head[0], group)

    # --- settling ---

    def settle(self, queue: QueueInfo, changes: Sequence[Change], now_ms: int) -> list[Verdict]:
        """Acknowledge, extend, give back or move messages."""
        self._look_at_clock(now_ms)
        verdicts, read_to = [], queue.read_to
        touched: set[tuple[int, str | None]] = set()
        for change in changes:
            number = change.sequence_number
            row = self._one("hold", number)
            hold, group = (Hold(*row[:-1]), row[-1]) if row else (None, None)
            if hold is None or change.token is None:
                message = self._one("one_message", number)
                if message is None:
                    verdicts.append(Verdict.GONE)
                    continue
                group = message[3]
            verdict = delivery.verdict(hold, change, now_ms)
            verdicts.append(verdict)
            if verdict is not Verdict.DONE:
                continue
            if change.act is Act.ACK:
                self._leave(queue, number, read_to)
            elif change.act is Act.EXTEND:
                self._do("set_hold", number, queue.number, group, *delivery.extended(hold, change.ms, now_ms))
                self._do("not_ready", number)
            elif change.act is Act.NACK:
                self._give_back(queue, number, group, hold or Hold(None), change.ms, now_ms)
                self._do("not_ready", number)
            elif change.to is not None:
                self._move(queue, _entry(self._one("one_message", number)), self.queues[change.to], change.note, now_ms)
            touched.add((number if group is None else 0, group))
        self._refresh(queue, touched, now_ms)
        return verdicts

    def _leave(self, queue: QueueInfo, number: int, read_to: int) -> None:
        """A message is done with; it is kept if a reader has yet to read it."""
        self._do("remove_message" if number <= read_to else "acknowledge", number)
        self._do("remove_hold", number)
        self._do("not_ready", number)
        queue.depth -= 1
        self._catalog.counted(queue)

    def _move(self, queue: QueueInfo, entry: Entry, to: QueueInfo, note: str | None, now_ms: int) -> None:
        """Put a message into another queue; where it was sent at first, it is in its old place again."""
        origin = entry.origin or entry.sequence_number
        number = origin
        if not to.has_given(origin):
            to.last += 1
            number = to.last
        self._leave(queue, entry.sequence_number, queue.read_to)
        came = (now_ms, None if number == origin else origin, queue.name, note, to.number)
        self._do("add_moved", number, *entry[1:7], *came)
        to.depth += 1
        self._catalog.counted(to)
        if entry.group is not None:
            after = self._one("second", to.number, entry.group, number)
            self._do("not_ready", after[0] if after else 0)
        self._refresh(to, [(number if entry.group is None else 0, entry.group)], now_ms)

    # --- looking ---

    def read(self, queue: QueueInfo, after: int, limit: int, *, pending: bool = False) -> list[Entry]:
        """The messages after a sequence number."""
        after = max(after, first_number(queue.number))
        rows = self._all("read_pending" if pending else "read", after, first_number(queue.number + 1), limit)
        return [_entry(row) for row in rows]

    def depth(self, queue: QueueInfo, now_ms: int) -> Depth:
        """How much is in a queue."""
        in_flight, delayed = self._one("hidden", queue.number, now_ms)
        return Depth(queue.depth, in_flight, delayed, queue.last)

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
        own = _hold(row[_ENTRY:])
        holds = [] if group is None else [Hold(*hold) for _, *hold in self._all("group_holds", queue.number, group)]
        why, hold = delivery.blocking(own, holds, now_ms)
        until_ms, token = (hold.until_ms, hold.token) if hold else (None, None)
        return GroupView(group, depth, head, row[7], why, until_ms, token, own.attempts if own else 0)

    def decide(self, space: str, key: str, request: Request, now_ms: int) -> Answer:
        """Decide about an idempotency key."""
        return self._keys.decide(space, key, request, now_ms)

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> sqlite3.Cursor:
        """Run a statement of the caller's.

        Raises:
            StoreError: for one that would end the transaction.
        """
        if re.match(
            r"\s*(begin|commit|end|rollback|savepoint|release|pragma|attach|detach|vacuum)\b", sql, re.IGNORECASE
        ):
            msg = f"{sql.strip()[:60]!r} cannot be run here: leave the block to commit, raise to roll back"
            raise StoreError(msg)
        return self.connection.execute(sql, parameters)

    def close(self) -> None:
        """Let go of the file."""
        self.connection.close()


class _Transaction:
    """One transaction of a store; a plain class, since one that is made of a generator costs as much as a statement."""

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


def _entry(row: Sequence[Any]) -> Entry:
    number, body, content, *more = row[:_ENTRY]
    return Entry(number, body, Content(content), *more)


def _hold(row: Sequence[Any]) -> Hold | None:
    until_ms, token, attempts, extended, *more = row
    return None if attempts is None else Hold(until_ms, token, attempts, bool(extended), *more)
