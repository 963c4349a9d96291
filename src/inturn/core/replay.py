"""The pure timeline over a list of messages: what every runner must agree with."""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as changed
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any

from inturn.core import limits, versions
from inturn.core.absent import filled, is_unfilled, lacking
from inturn.core.construct import Unmade, attempted
from inturn.core.decision import Decision, placing
from inturn.core.errors import InputError, InvalidMessage
from inturn.core.fold import Counts, Fold, Group, Journal
from inturn.core.grades import timeline
from inturn.core.instant import instant_us, is_date, parsed, read_us
from inturn.core.message import Entry, digest, effect_id, group_text
from inturn.core.order import Arrival, Gapless, Timestamp
from inturn.core.path import joined, parts, put, value_at
from inturn.core.pipeline import Pipeline
from inturn.core.texts import kept_name, name_fault, storable, unholdable
from inturn.core.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Output:
    """One output: whose it is, what caused it, and its name in the world.

    Attributes:
        group: the group's text form.
        epoch: the epoch of the message; None where the order has none.
        revision: the revision of the message; None where the order has none.
        id: the message's id, where the pipeline names one.
        index: which of the message's outputs, from 0.
        effect_id: the same in every run; the idempotency key of an effect outside.
        output: what the handler returned.
    """

    group: str
    epoch: int | None
    revision: int | None
    id: str | None
    index: int
    effect_id: str
    output: Any


@dataclass(frozen=True, slots=True)
class Rejected:
    """One message that will not be applied, and why."""

    group: str | None
    reason: str
    detail: str
    message: Any


@dataclass(frozen=True, slots=True)
class Held:
    """One message that waits: its group is ``waiting``, or parked by a ``gap`` or because it ``failed``."""

    group: str
    status: str
    message: Any


@dataclass
class Replay:
    """What the pure timeline made of a step.

    Attributes:
        states: the state of every group that is known, by its text form; an :class:`inturn.core.versions.OldState`
            where ``upgrade`` failed.
        outputs: every output so far, sorted by group and place.
        rejected: every message rejected so far, in the order of the verdicts.
        counts: where the messages of this step went.
        errors: for each parked group, why.
        timelines: where each group stands.
        verdicts: for each decision of this step, by its id: None if it was done, else why it is void.
        version: of the pipeline.
        shape: of its state type; see :mod:`inturn.core.versions`.
    """

    states: dict[str, Any] = field(default_factory=dict)
    outputs: list[Output] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    timelines: dict[str, Timeline] = field(default_factory=dict)
    verdicts: dict[str, str | None] = field(default_factory=dict)
    version: int = 1
    shape: Any = None

    @property
    def held(self) -> list[Held]:
        """The messages that wait, in the order in which they would be applied."""
        return [
            Held(group, line.status.value, line.held[key].message)
            for group, line in sorted(self.timelines.items())
            for key in sorted(line.held)
        ]

    @property
    def errors(self) -> dict[str, str]:
        """For each parked group, why it is parked."""
        return {group: line.error for group, line in self.timelines.items() if line.parked and line.error}


def place_of(pipeline: Pipeline, entry: Entry) -> int | str:
    """What names a message in its group: the revision, or the id where the order has none."""
    return (entry.id or "") if isinstance(pipeline.order, Timestamp | Arrival) else entry.turn


def outputs_of(pipeline: Pipeline, group: str, entry: Entry, outputs: Iterable[Any]) -> list[Output]:
    """The outputs of one message with their effect ids."""
    epoch = entry.epoch if pipeline.epoch else None
    place = place_of(pipeline, entry)
    revision = place if isinstance(place, int) else None
    return [
        Output(group, epoch, revision, entry.id, at, effect_id(pipeline.name, group, epoch, place, at), output)
        for at, output in enumerate(outputs)
    ]


def replay(
    pipeline: Pipeline,
    messages: Iterable[Any],
    *,
    now: dt.datetime | None = None,
    final: bool = False,
    after: Replay | None = None,
    decisions: Sequence[Decision] = (),
) -> Replay:
    """See :meth:`inturn.core.pipeline.Pipeline.replay`."""
    if final and not isinstance(pipeline.order, Timestamp):
        msg = f"final=True releases what waits for a later time; {type(pipeline.order).__name__} has no times"
        raise InputError(msg)
    before = after or Replay(version=pipeline.version)
    pipeline.first_state()  # for its checks
    versions.check(pipeline, before.version, before.shape)
    journal = Journal()
    offers, invalid = read(pipeline, messages)
    journal.counts.received = len(offers) + len(invalid)
    rejected = list(before.rejected)
    for why, name, message in invalid:
        journal.counts.reject("invalid")
        rejected.append(Rejected(name, "invalid", why, message))
    now_us = instant_us(now) if now else 0
    groups = {name: _reopen(pipeline, name, before, journal, now_us) for name in before.states}
    in_order = sorted(decisions, key=attrgetter("at_us", "id"))
    verdicts = {each.id: _decide(groups.get(each.group), each) for each in in_order}
    for _, name, entry in sorted(offers, key=itemgetter(0)):
        if name not in groups:
            fold = Fold(pipeline, pipeline.first_state)
            groups[name] = Group(name, timeline(pipeline.order), fold, journal, now_us)
        groups[name].offer(entry)
    for group in groups.values():
        group.finish(final=final)
    outputs = [each for name, entry, outs in journal.outputs for each in outputs_of(pipeline, name, entry, outs)]
    rejected += [Rejected(name, why, detail, entry.message) for name, entry, why, detail in journal.rejected]
    return Replay(
        states={name: groups[name].fold.state for name in sorted(groups)},
        outputs=sorted(before.outputs + outputs, key=_output_order),
        rejected=rejected,
        counts=journal.counts,
        timelines={name: group.timeline for name, group in groups.items()},
        verdicts=verdicts,
        version=pipeline.version,
        shape=pipeline.shape,
    )


def _decide(group: Group | None, decision: Decision) -> str | None:
    if group is None:
        return f"group {decision.group!r} is not known"
    return group.decide(decision, partial(remake, group.pipeline))


def remake(pipeline: Pipeline, entry: Entry, new: Mapping[str, Any]) -> Entry:
    """The entry with new content; its own values where the content does not say, or must not.

    Raises:
        InputError: if the message has no such field.
    """
    own = entry.message if pipeline.fields is None else _values(entry.message, pipeline.fields)
    for name in new.keys() - own.keys():
        msg = f"the message has no field {name!r}; it has {', '.join(own)}"
        raise InputError(msg)
    content: Any = {**own, **new}
    for name in placing(pipeline):
        content = put(content, name, value_at(own, name))
    message, _ = _content(pipeline, content)
    if isinstance(message, Unmade):
        raise InputError(message.why)
    return changed(entry, message=message)


def _output_order(output: Output) -> tuple[str, int, int, str, int]:
    return (output.group, output.epoch or 0, output.revision or 0, output.id or "", output.index)


def _reopen(pipeline: Pipeline, name: str, before: Replay, journal: Journal, now_us: int) -> Group:
    import copy

    state = versions.carried(pipeline, before.states[name], before.version, before.shape)
    line = copy.deepcopy(before.timelines[name])
    return Group(name, line, Fold(pipeline, lambda: copy.deepcopy(state)), journal, now_us)


def read(
    pipeline: Pipeline, messages: Iterable[Any]
) -> tuple[list[tuple[Any, str, Entry]], list[tuple[str, str | None, Any]]]:
    """Each message as (sort key, group, entry), and those that cannot be placed as (reason, group, message).

    Raises:
        InputError: if a message lacks a field, or one that places it is of the wrong type.
        InvalidMessage: if one cannot be placed, and the pipeline says ``on_invalid="fail"``.
    """
    offers, invalid = [], []
    for number, given in enumerate(messages):
        message, content = _content(pipeline, given)
        why = _invalid(pipeline, content)
        if why is None and isinstance(message, Unmade):
            why = message.why
        why = why or text_invalid(pipeline, content)
        if why is None:
            offers.append(_offer(pipeline, message, content, number))
        elif pipeline.on_invalid == "fail":
            raise InvalidMessage(why + f": {given!r}")
        else:
            group = value_at(content, pipeline.group)
            invalid.append((storable(why), None if group is None else kept_name(group_text(group)), given))
    return offers, invalid


def _content(pipeline: Pipeline, given: Any) -> tuple[Any, Mapping[str, Any]]:
    names = pipeline.fields
    if isinstance(given, Mapping):
        if names is None or pipeline.message is None:
            message = with_time(pipeline, dict(given))
            return message, message
        return _made(pipeline, given, names)
    if names is None or not isinstance(given, pipeline.message or ()):
        kind = "a dict" if names is None else f"a {pipeline.message.__name__} or a dict"  # type: ignore[union-attr]
        msg = f"a message of pipeline {pipeline.name!r} is {given!r}; expected {kind}"
        raise InputError(msg)
    if is_unfilled(given):
        return _made(pipeline, _values(given, names), names)
    return given, _values(given, names)


def _made(pipeline: Pipeline, given: Mapping[str, Any], names: Iterable[str]) -> tuple[Any, Mapping[str, Any]]:
    """A message of its fields; what says why not if one is null that must not be, or the type refuses them."""
    record = pipeline.message
    assert record is not None  # noqa: S101 - plain dicts are not made

    def make() -> Any:
        wanted = filled(record, given, make=True)
        why = lacking(record, wanted)
        return record(**wanted) if why is None else Unmade(why)

    try:
        message = attempted(record, make)
    except TypeError as error:
        msg = f"a message of pipeline {pipeline.name!r} is {given!r}: {error}"
        raise InputError(msg) from error
    return message, (given if isinstance(message, Unmade) else {**given, **_values(message, names)})


def _values(message: Any, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(message, name) for name in names}


def _invalid(pipeline: Pipeline, content: Mapping[str, Any]) -> str | None:
    """Why the message cannot be placed; None if it can."""
    return _null(pipeline, content) or _misplaced(pipeline, content)


def _null(pipeline: Pipeline, content: Mapping[str, Any]) -> str | None:
    """Say which field that places a message is null; a group, an order and an arrival must not be."""
    for name in pipeline.key_fields:
        if value_at(content, name) is None:
            if len(parts(name)) > 1 and name in content:
                msg = f"a message has a field {name!r}, with a dot in its name; write {joined([name])!r} to name it"
                raise InputError(msg)
            return f"{name} is null"
    came = pipeline.arrival
    if came is not None and _says_arrival(came, content) and value_at(content, came) is None:
        return f"{came} is null"
    return None


def _misplaced(pipeline: Pipeline, content: Mapping[str, Any]) -> str | None:
    """Say which field that places a message is beyond its bounds, or no time."""
    for name in filter(None, (pipeline.epoch, pipeline.turn, pipeline.arrival)):
        value = value_at(content, name)
        if type(value) is int and not -(2**63) <= value < 2**63:
            return f"{name} is {value}, which does not fit into 64 bits"
    order = pipeline.order
    if isinstance(order, Timestamp):
        given = value_at(content, order.column)
        if isinstance(given, str) and read_us(given, order.unit) is None and not is_date(given):
            return f"{order.column} is {given!r:.100}, which is no time"
    if isinstance(order, Gapless):
        if (turn := _typed(content, order.column)) < order.start:
            return f"{order.column} {turn} is below start {order.start}"
        if turn == limits.REVISION:
            return no_next(order.column)
    return None


def no_next(column: str) -> str:
    """Say why ``Gapless`` does not take the greatest revision."""
    return f"{column} is {limits.REVISION}, the greatest of 64 bits, behind which no next one fits"


def text_invalid(pipeline: Pipeline, content: Mapping[str, Any]) -> str | None:
    """Say why a text keeps a message from being placed: the group's name, the id, or any other."""
    for name in (pipeline.group, pipeline.id):
        value = None if name is None else value_at(content, name)
        if name is None or value is None or value.__class__ is int:
            continue
        if fault := name_fault(name, str(value)):
            return fault
    if (path := unholdable(content)) is not None:
        return f"{path} has half a surrogate pair, which no UTF-8 can hold"
    return None


def with_time(pipeline: Pipeline, message: dict[str, Any]) -> dict[str, Any]:
    """Return a plain dict whose time is a datetime if it came as text, as it must from JSON."""
    if isinstance(pipeline.order, Timestamp):
        given = value_at(message, pipeline.order.column)
        made = parsed(given) if isinstance(given, str) else None
        if made is not None:
            return put(message, pipeline.order.column, made)  # type: ignore[no-any-return]
    return message


def _offer(pipeline: Pipeline, message: Any, content: Mapping[str, Any], number: int) -> tuple[Any, str, Entry]:
    order = pipeline.order
    turn = _time(content, order) if isinstance(order, Timestamp) else _typed(content, pipeline.turn)
    fields = pipeline.fields or tuple(content)
    own = {name: content[name] for name in fields}
    for name in pipeline.left_out.keys() & own.keys():
        value = own.pop(name)
        if pipeline.in_content(name):
            own[name] = pipeline.content_of(name, value)
    entry = Entry(
        turn=turn,
        digest=digest(own),
        message=message,
        epoch=_typed(content, pipeline.epoch),
        id=None if pipeline.id is None or (ident := value_at(content, pipeline.id)) is None else str(ident),
    )
    # The id orders what it identifies, as the value it is; a revision identifies by itself.
    ident = value_at(content, pipeline.id) if pipeline.id and isinstance(order, Timestamp | Arrival) else ""
    key = (entry.epoch, entry.turn, ident, entry.digest)
    group = group_text(value_at(content, pipeline.group))
    if pipeline.arrival is None:
        return key, group, entry
    says = _says_arrival(pipeline.arrival, content)
    return (value_at(content, pipeline.arrival) if says else number, *key), group, entry


def _says_arrival(name: str, content: Mapping[str, Any]) -> bool:
    """Whether messages say when they arrived; those without the field are taken in the order of the list."""
    return len(parts(name)) > 1 or parts(name)[0] in content


def _typed(content: Mapping[str, Any], name: str | None) -> Any:
    """The value of a field that places messages; 0 where the order has no such field."""
    if name is None:
        return 0
    value = value_at(content, name)
    if not isinstance(value, int) or isinstance(value, bool):
        msg = f"{name} is {value!r} of type {type(value).__name__}; expected an integer of 64 bits: convert it first"
        raise InputError(msg)
    return value


def _time(content: Mapping[str, Any], order: Timestamp) -> int:
    value = value_at(content, order.column)
    found = read_us(value, order.unit)
    if found is None:
        kind = type(value).__name__
        msg = f"{order.column} is {value!r} of type {kind}; expected a datetime: convert it first"
        msg += ", or to a number since 1970 (unit=…)"
        raise InputError(msg)
    return found
