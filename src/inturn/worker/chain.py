"""A chain of pipelines: outputs become messages of a queue of the same database, in the commit that produces them.

There is only one commit, so each output is sent exactly once, whatever the queue's deduplication window. A full queue
accepts as many outputs as it has room for. The others stay in the outbox; until then tasks with further outputs wait.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from inturn.core import limits
from inturn.core.errors import InputError, QueueFull
from inturn.core.queue.messages import Content, Draft
from inturn.core.texts import kept_error
from inturn.core.values.path import value_at
from inturn.queue import Queue, draft
from inturn.store.commands import StoreCall, queue_of
from inturn.store.protocols import QueueAndPipelineStore
from inturn.store.records import GroupUpdate, OutputRecord, PipelineInfo


@dataclass(frozen=True)
class ToQueue:
    """The queue that receives a pipeline's outputs, for ``deliver=``; a bare queue means ``To(queue)``.

    An output becomes a message: its body is the output as JSON, its deduplication id the effect id.

    Attributes:
        queue: the queue, or its name, in the database of the pipeline's own queue.
        group: the path of the output's field that is the message's group; None: the group of the pipeline.
        revision: the path of the output's field that is the message's revision; None: no revision.
    """

    queue: Queue | str
    group: str | None = None
    revision: str | None = None


def target_of(deliver: object) -> str | None:
    """Return the name of the queue that receives outputs; None: ``deliver`` is not a queue."""
    to = deliver.queue if isinstance(deliver, ToQueue) else deliver
    return to.name if isinstance(to, Queue) else to if isinstance(to, str) else None


class Chain:
    """The way from a pipeline's outputs into a queue.

    Args:
        to: the queue, and the fields that place a message in it.
        source: the queue that the pipeline works on.

    Attributes:
        queue: the queue's name.

    Raises:
        InputError: if the queue belongs to another database.
        NoSuchQueue: if it does not exist.
    """

    def __init__(self, to: ToQueue, source: Queue) -> None:
        if isinstance(to.queue, Queue):
            other = to.queue.writer
            if other is not source.writer and not source.writer.is_own(other.identity()):
                msg = f"the queue {to.queue.name!r} belongs to another database than {source.name!r}, so one commit is "
                raise InputError(msg + "impossible: pass a function that sends to it, with the effect id as dedup_id")
        self._to = to
        self.queue = to.queue.name if isinstance(to.queue, Queue) else to.queue
        source.writer.run(StoreCall("", lambda store, _now_ms: queue_of(store, self.queue).number))

    def check(self, texts: Sequence[str]) -> None:
        """Check that each output, as JSON, can be sent as a message.

        Raises:
            InputError: if one lacks the field of the group or the revision, the field is invalid, or it is too large.
        """
        for text in texts:
            self._message(text, "group", "effect id")

    def send(
        self, store: QueueAndPipelineStore, info: PipelineInfo, updates: Sequence[GroupUpdate], claims: int, now_ms: int
    ) -> tuple[list[GroupUpdate], int, int]:
        """Send outputs as far as there is room: those of the outbox, which are older, and then those of tasks.

        Args:
            store: the store.
            info: the pipeline.
            updates: the updates by tasks.
            claims: the maximum number of groups whose outputs are read from the outbox.
            now_ms: the time.

        Returns:
            The updates with the outputs that go to the outbox: those without room, and those of groups with earlier
            outputs in the outbox. The number of outputs that were sent from the outbox. The number of all outputs
            sent, from the outbox and from tasks.

        Raises:
            QueueFull: if there is no room for outputs of tasks.
            NoSuchQueue: if the queue was deleted.
        """
        drained, is_full = self._drain(store, info, claims, now_ms) if claims else (0, False)
        makers = [update.record.group for update in updates if update.outputs]
        if not makers:
            return list(updates), drained, drained
        pending = {delivery.group for delivery in store.pipelines.pending_deliveries(info.number, makers, len(makers))}
        outputs = [output for update in updates if update.record.group not in pending for output in update.outputs]
        drafts = [] if is_full else [self._draft(output) for output in outputs]
        sent = self._put(store, drafts, now_ms)
        if is_full or (outputs and not sent):
            raise QueueFull(f"the queue {self.queue!r} has no room for the outputs of {info.name!r}")
        sent_ids = {output.effect_id for output in outputs[:sent]}
        remaining = [
            update._replace(outputs=[output for output in update.outputs if output.effect_id not in sent_ids])
            for update in updates
        ]
        return remaining, drained, drained + sent

    def _drain(self, store: QueueAndPipelineStore, info: PipelineInfo, claims: int, now_ms: int) -> tuple[int, bool]:
        """Send outputs of the outbox, in order within a group; return their number, and whether the queue is full."""
        total, is_full = 0, False
        for claim in store.pipelines.claim(info, claims, limits.OUTBOX_OUTPUTS, now_ms, now_ms):
            drafts, error = list[Draft](), None
            try:
                for output in claim.outputs:
                    drafts.append(self._draft(output))
            except InputError as refused:
                error = kept_error(f"{type(refused).__name__}: {refused}")
            sent = 0 if is_full else self._put(store, drafts, now_ms)
            if sent < len(drafts):
                is_full, error = True, None
            pause_ms = 0 if error is None else round(limits.CHAIN_PAUSE_S * 1000)
            store.pipelines.delivered(info.number, claim, sent, now_ms + pause_ms, error)
            total += sent
        return total, is_full

    def _put(self, store: QueueAndPipelineStore, drafts: Sequence[Draft], now_ms: int) -> int:
        """Send the first of some messages, as many as there is room for, and return their number."""
        queue = queue_of(store, self.queue)
        room = store.room(queue) if drafts else 0
        fitting = drafts if room is None else drafts[:room]
        if fitting:
            store.send(queue, fitting, now_ms)
        return len(fitting)

    def _draft(self, output: OutputRecord) -> Draft:
        """Return the message of an output; it continues the trace of the task that emitted the output."""
        return self._message(output.output, output.group, output.effect_id, output.trace)

    def _message(self, text: str, group: str, effect_id: str, trace: str | None = None) -> Draft:
        to, revision = self._to, None
        if to.group is not None or to.revision is not None:
            content = msgspec.json.decode(text)
            group = group if to.group is None else self._field(content, to.group, "group")
            revision = None if to.revision is None else self._field(content, to.revision, "revision")
        attributes = None if trace is None else {"traceparent": trace}
        built = draft(text, group=group, revision=revision, dedup_id=effect_id, attributes=attributes)
        return built._replace(content=Content.JSON)

    def _field(self, content: Any, path: str, role: str) -> Any:
        value = value_at(content, path)
        if value is None:
            msg = f"the output {content!r:.200} has no field {path!r}, which is the {role} of its message in the queue "
            raise InputError(f"{msg}{self.queue!r}; emit the field, or change ToQueue(…, {role}={path!r})")
        return value


def chain_of(deliver: object, source: Queue) -> Chain | None:
    """Return the chain for ``deliver=``; None if that is a function or None.

    Raises:
        InputError: if it is anything else, or a queue of another database.
        NoSuchQueue: if the queue does not exist.
    """
    if isinstance(deliver, Queue | ToQueue):
        return Chain(ToQueue(deliver) if isinstance(deliver, Queue) else deliver, source)
    if deliver is None or callable(deliver):
        return None
    raise InputError(f"deliver is {deliver!r}; expected a function, a queue, or inturn.ToQueue(queue, group=…)")
