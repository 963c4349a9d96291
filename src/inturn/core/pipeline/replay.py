"""The pure timeline over a list of messages: every runner must agree with it."""

import copy
import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as changed
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any, Generic

from inturn.core.arguments import check_type
from inturn.core.errors import InputError
from inturn.core.identity import TimelineEntry
from inturn.core.pipeline import versions
from inturn.core.pipeline.content import fields_of
from inturn.core.pipeline.decision import Decision, decide
from inturn.core.pipeline.definition import Pipeline, check_pipeline
from inturn.core.pipeline.fold import Fold, Group
from inturn.core.pipeline.handler import check_result, fingerprint
from inturn.core.pipeline.journal import Counts, Journal
from inturn.core.pipeline.reading import message_of, read
from inturn.core.pipeline.results import Output, RejectedMessage
from inturn.core.pipeline.timeline import Timeline
from inturn.core.pipeline.type_variables import OutputT, StateT
from inturn.core.values.construct import InvalidMarker
from inturn.core.values.instant import instant_us
from inturn.core.values.path import put, value_at


@dataclass(frozen=True, slots=True)
class HeldMessage:
    """One held message: its group is ``waiting``, or parked by a ``gap`` or because it ``failed``."""

    group: str
    status: str
    message: Any


@dataclass
class Replay(Generic[StateT, OutputT]):
    """The result of a step of the pure timeline.

    Attributes:
        states: state of every known group, by its text form; an :class:`inturn.core.pipeline.versions.OldState` where
            ``upgrade`` failed.
        outputs: all outputs so far, sorted by group and place.
        rejected: all rejected messages so far, in the order of the verdicts.
        counts: message counts of this step.
        timelines: timeline of each group.
        verdicts: for each decision of this step, by its id: None if it was carried out, else why it is void.
        version: version of the pipeline.
        shape: shape of its state type; see :mod:`inturn.core.pipeline.versions`.
        received: number of messages of all steps.
        handler: handler of this step; None: it has not applied a message yet.
    """

    states: dict[str, StateT] = field(default_factory=dict)
    outputs: list[Output[OutputT]] = field(default_factory=list)
    rejected: list[RejectedMessage] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    timelines: dict[str, Timeline] = field(default_factory=dict)
    verdicts: dict[str, str | None] = field(default_factory=dict)
    version: int = 1
    shape: Any = None
    received: int = field(default=0, compare=False)
    handler: Callable[..., Any] | None = field(default=None, compare=False, repr=False)

    @property
    def held(self) -> list[HeldMessage]:
        """The held messages, in the order in which they would be applied."""
        return [
            HeldMessage(group, timeline.status.value, timeline.held[key].message)
            for group, timeline in sorted(self.timelines.items())
            for key in sorted(timeline.held)
        ]

    @property
    def errors(self) -> dict[str, str]:
        """The error of each parked group."""
        return {
            group: timeline.error for group, timeline in self.timelines.items() if timeline.parked and timeline.error
        }


def check_final(pipeline: Pipeline, *, final: bool) -> None:
    """Refuse ``final`` where no message waits for a later time.

    Raises:
        InputError: if it is not a pipeline, or its order has no times.
    """
    check_pipeline(pipeline)
    if final and not pipeline.order.has_times:
        kind = type(pipeline.order).__name__
        msg = f"final=True releases messages that wait for a later time, but {kind} has no times; leave final out"
        raise InputError(msg)


def replay(
    pipeline: Pipeline,
    messages: Iterable[Any],
    *,
    now: dt.datetime | None = None,
    final: bool = False,
    after: Replay | None = None,
    decisions: Sequence[Decision] = (),
) -> Replay:
    """Apply messages to the pure timeline; see :meth:`inturn.core.pipeline.definition.Pipeline.replay`."""
    check_final(pipeline, final=final)
    check_type("messages", messages, Iterable, "a list of messages")
    check_type("now", now, dt.datetime | None, "a datetime")
    check_type("after", after, Replay | None, "the Replay that replay() returned for the previous step")
    check_type("decisions", decisions, Iterable, "a list of decisions")
    for decision in decisions:
        check_type("a decision", decision, Decision, "a Decision(…)")
    before = after or Replay(version=pipeline.version)
    pipeline.first_state()  # for its checks
    versions.check(pipeline, before.version, before.shape)
    journal = Journal()
    offers, invalid = read(pipeline, messages, before.received)
    journal.counts.received = len(offers) + len(invalid)
    rejected = list(before.rejected)
    for reason, name, message in invalid:
        journal.counts.reject("invalid")
        rejected.append(RejectedMessage(name, "invalid", reason, message))
    now_us = instant_us(now) if now else 0
    groups = {name: _reopen(pipeline, name, before, journal, now_us) for name in before.states}
    in_order = sorted(decisions, key=attrgetter("at_us", "id"))
    verdicts = {decision.id: _decide(groups.get(decision.group), decision) for decision in in_order}
    for _, name, entry in sorted(offers, key=itemgetter(0)):
        if name not in groups:
            fold = Fold(pipeline, pipeline.first_state)
            groups[name] = Group(name, pipeline.order.timeline(), fold, journal, now_us)
        groups[name].process(entry)
    for group in groups.values():
        group.finish(final=final)
    proved = pipeline.handler if journal.counts.applied else before.handler
    check_result(journal.wrong, 0, lambda: proved is not None and fingerprint(proved) == fingerprint(pipeline.handler))
    outputs = list(before.outputs)
    for name, entry, emitted in journal.outputs:
        outputs += [Output(*row) for row in pipeline.output_rows(name, entry, emitted)]
    outputs.sort(
        key=lambda output: (output.group, output.epoch or 0, output.revision or 0, output.id or "", output.index)
    )
    rejected += [
        RejectedMessage(name, reason, detail, entry.message) for name, entry, reason, detail in journal.rejected
    ]
    return Replay(
        states={name: groups[name].fold.state for name in sorted(groups)},
        outputs=outputs,
        rejected=rejected,
        counts=journal.counts,
        timelines={name: group.timeline for name, group in groups.items()},
        verdicts=verdicts,
        version=pipeline.version,
        shape=pipeline.shape,
        received=before.received + journal.counts.received,
        handler=proved,
    )


def _decide(group: Group | None, decision: Decision) -> str | None:
    if group is None:
        return f"no group {decision.group!r}"
    return decide(group, decision, partial(_remade, group.pipeline), _held_content)


def _remade(pipeline: Pipeline, entry: TimelineEntry, new: Mapping[str, Any]) -> TimelineEntry:
    remade = remake(pipeline, entry, new)
    remade.ref = copy.deepcopy(fields_of(pipeline, remade))
    return remade


def _held_content(entry: TimelineEntry) -> Mapping[str, Any] | None:
    """Return the content that a decision gave a message, as it was before the handler could change the message."""
    content: Mapping[str, Any] | None = entry.ref
    return content


def remake(pipeline: Pipeline, entry: TimelineEntry, new: Mapping[str, Any]) -> TimelineEntry:
    """Return the entry with new content; omitted fields, and those that place the message, keep their values.

    Raises:
        InputError: if the message has no such field, or if its type refuses the new content.
    """
    own = fields_of(pipeline, entry)
    arrival = {pipeline.arrival} - own.keys()  # stored separately if the message type has no such field
    new = {name: value for name, value in new.items() if name not in arrival}
    for name in new.keys() - own.keys():
        raise InputError(f"the message has no field {name!r}; existing fields: {', '.join(own)}")
    content: Any = {**own, **new}
    for name in pipeline.placing_fields:
        content = put(content, name, value_at(own, name))
    message, _ = message_of(pipeline, content)
    if isinstance(message, InvalidMarker):
        raise InputError(message.why)
    return changed(entry, message=message)


def _reopen(pipeline: Pipeline, name: str, before: Replay, journal: Journal, now_us: int) -> Group:
    state = versions.carried(pipeline, before.states[name], before.version, before.shape)
    timeline = copy.deepcopy(before.timelines[name])
    return Group(name, timeline, Fold(pipeline, lambda: copy.deepcopy(state)), journal, now_us)
