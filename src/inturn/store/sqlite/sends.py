"""Sends in SQLite: messages are appended, numbered and deduplicated; first messages of groups join the ready queue."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any, Final

from inturn.core import limits
from inturn.core.queue import back_pressure, deduplication, delivery, numbering, ready_groups
from inturn.core.queue.deduplication import DedupKey, RememberedSend
from inturn.core.queue.messages import Draft, QueueInfo, Sent
from inturn.core.queue.ready_groups import ReadyPlace
from inturn.store.sqlite.catalog import SqliteCatalog
from inturn.store.sqlite.group_index import GroupIndex
from inturn.store.sqlite.incarnations import SqliteIncarnations
from inturn.store.sqlite.producers import SqliteProducers
from inturn.store.sqlite.statements import SQL, SqliteStatements

_IS_NO_DUPLICATE: Final = False
_FIRST: Final = (0, "", "")  # before every deduplication key
_LAST: Final = (2**63 - 1, "", "")  # after every deduplication key


@dataclass(eq=False)
class Sends(SqliteStatements):
    """Sends to the queues of a file."""

    _catalog: SqliteCatalog
    _index: GroupIndex
    _incarnations: SqliteIncarnations
    _producers: SqliteProducers
    _swept: tuple[int, str, str] = _FIRST  # the deduplication key up to which rows were swept
    _to_sweep: int = 0

    def send(  # noqa: C901 - one loop over all
        self, queue: QueueInfo, drafts: Sequence[Draft], now_ms: int, ahead: int
    ) -> list[Sent]:
        """Append messages to a queue."""
        if queue.settings.single_writer:
            self._producers.check_writers(queue, drafts)
        sent = self._numbers(queue, drafts, now_ms, ahead)
        if queue.number not in self._incarnations.begun:
            self._incarnations.begin(queue, now_ms)
        number, delay_ms = queue.number, queue.settings.delay_ms
        messages, plain, known, numbered, holds = [], [], [], [], []
        heads: dict[str, int] = {}
        added: list[tuple[int, str | None]] = []
        singles: list[tuple[int, None]] = []
        for draft, (last, is_duplicate, revision) in zip(drafts, sent, strict=True):
            if is_duplicate:
                continue
            body, content, group, _, dedup_id, delay, attributes, _, _ = draft
            added.append((last, group))
            if attributes is not None or (revision is not None and dedup_id is not None):
                messages.append((last, number, body, int(content), group, revision, dedup_id, attributes, now_ms))
            elif revision is not None:
                numbered.append((last, number, body, int(content), group, revision, now_ms))
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
        self._insert(
            add_plain_message=plain,
            add_message_with_dedup_id=known,
            add_message_with_revision=numbered,
            add_message=messages,
            set_hold=holds,
            add_ready=singles,
            add_ready_if_first=self._firsts(queue, heads),
        )
        before = queue.last
        queue.last += len(added)
        queue.depth += len(added)
        self._catalog.sent(queue)
        self._index.sent(queue, before, added)
        return sent

    def _insert(self, **rows: Sequence[tuple[Any, ...]]) -> None:
        """Run statements by name, each for several rows."""
        for name, batch in rows.items():
            if len(batch) == 1:
                self._run(SQL[name], batch[0])
            elif batch:
                self._do_each(name, batch)

    def _firsts(self, queue: QueueInfo, heads: dict[str, int]) -> list[tuple[int, int, str]]:
        """Return the first message sent to each group, where it may be the head; 0 stands for a delayed one."""
        nonempty, number = self._index.nonempty, queue.number
        if len(nonempty) > limits.KNOWN_GROUPS:
            nonempty.clear()
        firsts = []
        for group, head in heads.items():
            if (number, group) not in nonempty:
                nonempty.add((number, group))
                if head and self._index.first_of_newest(queue, group) is None:
                    firsts.append((head, number, group))
        if not firsts or queue.settings.priority_lead is None:  # the usual case
            return firsts
        return self._go_ahead(queue, firsts)

    def _go_ahead(self, queue: QueueInfo, firsts: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
        """Put the first messages of groups with a priority into the ready queue; return the others."""
        priorities = self._producers.priorities(queue, [group for _, _, group in firsts])
        in_line = []
        for head, number, group in firsts:
            if lead := ready_groups.lead_of(priorities.get(group, 0), queue.settings):
                in_line.append((head, number, group, *ready_groups.moved_forward(ReadyPlace(head), lead, number)))
        if in_line and not queue.last_requeue_place[1]:
            queue.last_requeue_place = (0, 2)
            self._execute("save_last_requeue", *queue.last_requeue_place, queue.number)
        self._do_each("add_ready_place_if_first", in_line)
        return [row for row in firsts if not priorities.get(row[2])]

    # --- deduplication ---

    def _numbers(self, queue: QueueInfo, drafts: Sequence[Draft], now_ms: int, ahead: int) -> list[Sent]:
        """Return a sequence number for each draft: the next one or, for a duplicate, the one of the first message.

        Raises:
            QueueFull: if the queue has no room for the messages that are not duplicates.
        """
        settings, last = queue.settings, queue.last
        keys = [
            deduplication.known_by(draft, settings) if draft.dedup_id is not None or settings.content_dedup else None
            for draft in drafts
        ]
        revisions: Iterable[int | None] = repeat(None)
        for draft in drafts:
            if draft.revision is not None or draft.numbering is not None:
                lasts = self._producers.last_revisions(queue, drafts)
                if numbering.are_numbered(drafts) or any(lasts.get(draft.group or "") is not None for draft in drafts):
                    return self._give_revisions(queue, drafts, keys, lasts, now_ms, ahead)
                revisions = [draft.revision for draft in drafts]
                break
        known_keys = [(key, number) for number, key in enumerate(keys, last + 1) if key is not None]
        has_room = settings.max_depth is None or back_pressure.fits(queue, len(drafts), ahead)
        if not known_keys and not has_room:
            back_pressure.check_room(queue, len(drafts), ahead)
        if not known_keys or (has_room and self._are_new(queue, known_keys, revisions, now_ms)):
            numbers = range(last + 1, last + 1 + len(drafts))
            return list(map(Sent._make, zip(numbers, repeat(_IS_NO_DUPLICATE), revisions)))
        return self._give_revisions(queue, drafts, keys, {}, now_ms, ahead)

    def _give_revisions(
        self,
        queue: QueueInfo,
        drafts: Sequence[Draft],
        keys: Sequence[DedupKey | None],
        lasts: Mapping[str, int | None],
        now_ms: int,
        ahead: int,
    ) -> list[Sent]:
        """Return the results of drafts, with their revisions; nothing is written before all is checked."""
        numbers: Iterable[tuple[int, bool, int | None]]
        numbers = zip(range(queue.last + 1, queue.last + 1 + len(drafts)), repeat(_IS_NO_DUPLICATE), repeat(None))
        new: dict[DedupKey, RememberedSend] = {}
        if any(keys):
            find = partial(self._known, queue.number)
            numbers, new = deduplication.numbered(keys, find, queue.last, queue.settings, now_ms)
        sent, last_revisions = numbering.numbered(drafts, numbers, lasts)
        back_pressure.check_room(queue, sum(not receipt.duplicate for receipt in sent), ahead)
        if new:
            new = numbering.with_revisions(new, sent)
            self._do_each("save_dedup", [(queue.number, *key, *value) for key, value in new.items()])
            self._forget(len(new), now_ms)
        if last_revisions:
            self._producers.save_revisions(queue, last_revisions)
        return sent

    def _are_new(
        self,
        queue: QueueInfo,
        keyed: Sequence[tuple[DedupKey, int]],
        revisions: Iterable[int | None],
        now_ms: int,
    ) -> bool:
        """Remember keys if none of them is known, as is usual; return whether that was so."""
        _, until_ms, _ = deduplication.remembered(0, queue.settings, now_ms)
        before = self.connection.total_changes
        rows = [(queue.number, *key, number, until_ms) for key, number in keyed]
        if isinstance(revisions, list):
            revision_of = dict(enumerate(revisions, queue.last + 1))
            self._do_each("add_dedup_with_revision", [(*row, revision_of[row[3]]) for row in rows])
        else:
            self._do_each("add_dedup", rows)
        if self.connection.total_changes - before == len(keyed):
            self._forget(len(keyed), now_ms)
            return True
        self._do_each("remove_new_dedup", [(queue.number, *key, queue.last) for key, _ in keyed])
        return False

    def _known(self, queue: int, key: DedupKey) -> RememberedSend | None:
        row = self._one("find_dedup", queue, *key)
        return row and RememberedSend(*row)

    def _forget(self, new: int, now_ms: int) -> None:
        """Sweep twice as many deduplication rows as were added and delete old ones, so that the table shrinks again."""
        self._to_sweep += 2 * new
        if self._to_sweep < limits.SWEEP_ROWS:
            return
        until_ms = now_ms - limits.CLOCK_SLACK_MS
        end = self._one("dedup_sweep_end", *self._swept, self._to_sweep - 1)
        self._execute("sweep_dedup", *self._swept, *(end or _LAST), until_ms)
        self._swept = end or _FIRST
        self._to_sweep = 0
