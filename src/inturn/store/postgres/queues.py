"""Sends and reads in PostgreSQL, with access to the pipelines and keys of the database."""

from collections.abc import Callable, Iterable, Sequence

from inturn.core import limits
from inturn.core.errors import InputError
from inturn.core.idempotency_keys import KeyAnswer, KeyRequest
from inturn.core.queue import deduplication, sessions
from inturn.core.queue.delivery import DeliveryState
from inturn.core.queue.messages import (
    Delivery,
    Depth,
    Draft,
    GroupView,
    ParkedGroup,
    QueueInfo,
    ReceiveRequest,
    Sent,
    StoredMessage,
    first_number,
)
from inturn.core.queue.sessions import SessionAnswer, SessionRequest
from inturn.store.postgres.keys import PostgresKeys
from inturn.store.postgres.names import LongNames, as_it_is, short
from inturn.store.postgres.pipelines import PostgresPipelines
from inturn.store.postgres.ready_list import entry_of, hold_of
from inturn.store.postgres.sessions import PostgresSessions
from inturn.store.postgres.statements import QueuedStatement, Wire
from inturn.store.protocols import PipelineStore, RunAgain


class Queues(PostgresSessions):
    """All operations in a transaction, whether begun by the store or by a caller."""

    _forgotten_ms = 0  # ids that expired before this time are deleted
    _forgetting: QueuedStatement | None = None

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire)
        self._pipelines, self._keys, self._names = PostgresPipelines(wire), PostgresKeys(wire), LongNames(wire)

    def save(self, name: str, info: QueueInfo | None, *, purge: bool = False) -> None:
        """Create, change or remove a queue."""
        _check_text("the queue's name", name)
        self.catalog.save(name, info, purge=purge)

    # --- sends ---

    def send(self, queue: QueueInfo, drafts: Sequence[Draft], now_ms: int) -> list[Sent]:
        """Append messages to a queue."""
        self.look_at_clock(now_ms)
        if not drafts:
            return []
        drafts = [
            each
            if each.group is None or short(each.group) is each.group
            else each._replace(group=self._names.kept(each.group))
            for each in drafts
        ]
        self.incarnations.begin(queue, now_ms)
        settings = queue.settings
        if settings.content_dedup or any(draft.dedup_id is not None for draft in drafts):
            sent = self._send_known(queue, drafts, now_ms)
        else:
            before = self._add(queue, drafts, now_ms)
            sent = [Sent(before + place, duplicate=False) for place in range(1, len(drafts) + 1)]
        self._delay(queue, drafts, sent, now_ms)
        return sent

    def _add(self, queue: QueueInfo, drafts: Sequence[Draft], now_ms: int) -> int:
        """Write messages under new numbers; return the number before the first."""
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
        """Append the messages that are not duplicates of earlier ones."""
        settings = queue.settings
        keys = [
            key and (key[0], short(key[1])) for key in (deduplication.known_by(draft, settings) for draft in drafts)
        ]
        wanted = [key for key in keys if key is not None]
        for scope, dedup_id in wanted:
            _check_text("the group", scope)
            _check_text("the dedup_id", dedup_id)
        self._do("lock_numbering", queue.number)
        rows = self._all("known", queue.number, [scope for scope, _ in wanted], [each for _, each in wanted])
        if not rows:
            raise self._removed(queue)
        last = int(rows[0][0])
        known = {
            wanted[place - 1]: deduplication.RememberedSend(number, until_ms)
            for _, place, number, until_ms in rows
            if place is not None
        }
        new: dict[tuple[str, str], deduplication.RememberedSend] = {}
        sent, added = [], []
        for draft, key in zip(drafts, keys, strict=True):
            if key is not None:
                first = known.get(key)
                if first is not None and deduplication.is_same(first, now_ms):
                    sent.append(Sent(first.sequence_number, duplicate=True))
                    continue
                known[key] = new[key] = deduplication.remembered(last + 1, settings, now_ms)
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
        """Delete up to twice as many expired ids as were added, so that the table shrinks again."""
        outdated_ms = now_ms - limits.CLOCK_SLACK_MS
        if self._forgetting is not None and self._forgetting.is_done:
            self._forgotten_ms = self._forgetting.rows[0][0] or self._forgotten_ms
        if outdated_ms < self._forgotten_ms:  # the clock went back
            self._forgotten_ms = 0
        self._forgetting = self._do("forget", self._forgotten_ms, outdated_ms, 2 * new)

    def _look_again(self) -> None:
        """Reset the position of the deletion, since deleted ids are back after a rollback."""
        self._forgotten_ms, self._forgetting = 0, None

    def _delay(self, queue: QueueInfo, drafts: Sequence[Draft], sent: Sequence[Sent], now_ms: int) -> None:
        usual = queue.settings.delay_ms
        delayed = [
            (number, draft.group, now_ms + delay_ms)
            for draft, (number, is_duplicate) in zip(drafts, sent, strict=True)
            if not is_duplicate and (delay_ms := usual if draft.delay_ms is None else draft.delay_ms)
        ]
        if delayed:
            self._do("delay", queue.number, now_ms, *map(list, zip(*delayed, strict=True)))
            self._touch(queue, [(None, None, 0, min(until_ms for *_, until_ms in delayed), None)])

    # --- receives: inner methods use the stored form of a group's name ---

    def receive(self, queue: QueueInfo, wants: Sequence[ReceiveRequest], now_ms: int) -> list[list[Delivery]]:
        """Lease messages."""
        wants = [each if each.group is None else each._replace(group=short(each.group)) for each in wants]
        answers = super().receive(queue, wants, now_ms)
        name = self._names.reader(each.entry.group for part in answers for each in part)
        if name is as_it_is:  # the usual case
            return answers
        return [[each._replace(entry=_named(each.entry, name)) for each in part] for part in answers]

    def session(self, queue: QueueInfo, group: str | None, request: SessionRequest, now_ms: int) -> SessionAnswer:
        """Apply a session request to a group and its messages; ``group`` None: the next group that can be locked."""
        answer = super().session(queue, None if group is None else self._names.kept(group), request, now_ms)
        return answer._replace(group=self._names.reader([answer.group])(answer.group))

    def parked(self, queue: QueueInfo, limit: int) -> list[ParkedGroup]:
        """Return the parked groups, in the order in which they were parked."""
        found = super().parked(queue, limit)
        name = self._names.reader(each.group for each in found)
        return [each._replace(group=name(each.group)) for each in found]

    # --- reads ---

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
        if group is not None:
            group = short(group)
            rows = self._all("read_group_deferred" if deferred else "read_group", queue.number, group, after, limit)
        elif deferred:
            rows = self._all("read_deferred", queue.number, after, limit)
        else:
            after = max(after, first_number(queue.number))
            rows = self._all("read_pending" if pending else "read", after, first_number(queue.number + 1), limit)
        entries = [entry_of(row) for row in rows]
        name = self._names.reader(each.group for each in entries)
        return entries if name is as_it_is else [_named(each, name) for each in entries]

    def incarnation(self, queue: QueueInfo, number: int) -> str:
        """Return the incarnation in which a sequence number was given."""
        return self.incarnations.of(queue.number, number)

    def depth(self, queue: QueueInfo, now_ms: int) -> Depth:
        """Return the message counts of a queue."""
        hidden = self._do("hidden", queue.number, now_ms)
        deferred = self._do("deferred", queue.number)
        last, messages, _ = self.catalog.counts(queue)
        (in_flight, delayed), (put_aside,) = hidden.rows[0], deferred.rows[0]
        return Depth(messages, in_flight, delayed, last, put_aside)

    def groups(self, queue: QueueInfo, limit: int, now_ms: int, names: Iterable[str] = ()) -> list[GroupView]:
        """Return the groups that have messages, oldest head first."""
        wanted = [*map(short, names)]
        if wanted:
            found = [(name, *self._one("group", queue.number, name)) for name in wanted]
        else:
            singles = self._all("ungrouped", queue.number, limit)
            found = [*self._all("groups", queue.number, limit), *((None, 1, number) for (number,) in singles)]
        found = sorted((row for row in found if row[1]), key=lambda row: row[2])
        name = self._names.reader(row[0] for row in found)
        views = (self._view(queue, group, depth, head, now_ms) for group, depth, head in found[:limit])
        return [each._replace(group=each.group and name(each.group)) for each in views]

    def _view(self, queue: QueueInfo, group: str | None, depth: int, head: int, now_ms: int) -> GroupView:
        row = self._one("one_message", head)
        own = hold_of(row)
        holds: list[DeliveryState] = []
        gate = sessions.OPEN
        if group is not None:
            holds = [DeliveryState(*hold) for _, *hold in self._all("group_holds", queue.number, group)]
            gate = self.gates.of(queue.number, group)
        why, until_ms, token = sessions.why(gate, own, holds, now_ms)
        return GroupView(group, depth, head, row[7], why, until_ms, token, own.attempts if own else 0, gate.note)

    # --- pipelines and keys ---

    @property
    def pipelines(self) -> PipelineStore:
        """The pipelines of the database."""
        return self._pipelines

    def decide(self, space: str, key: str, request: KeyRequest, now_ms: int) -> KeyAnswer:
        """Apply a request to an idempotency key."""
        return self._keys.decide(space, key, request, now_ms)


def _named(entry: StoredMessage, name: Callable[[str], str]) -> StoredMessage:
    return entry._replace(group=entry.group and name(entry.group))


def _check_text(what: str, text: str | None) -> None:
    if text is not None and "\0" in text:
        msg = f"{what} {text!r} has a NUL at {text.index(chr(0))}, which PostgreSQL keeps in no text; leave it out"
        raise InputError(msg)
