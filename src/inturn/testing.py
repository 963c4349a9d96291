"""The differential test: one history through several engines, and the same must come of it; for your own handlers too.

from inturn.testing import same
same(ledger, messages)
"""

import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from inturn.core.errors import InputError
from inturn.core.message import canonical, group_text
from inturn.core.pipeline import Pipeline
from inturn.core.replay import Replay
from inturn.database import open as open_database
from inturn.queue import draft
from inturn.worker import Worker
from inturn.worker.look import PipelineLook


class Different(AssertionError):
    """Two engines, or two runs of one, have made different things of the same messages; the text says which."""


@dataclass
class Story:
    """What has come of a history.

    Attributes:
        states: of each group the state, as JSON values.
        outputs: of each group its outputs in order: effect id and output, as JSON values.
        statuses: of each group where it stands.
        held: of each group the messages that it holds, by place.
        rejected: how many messages will not be applied, by group and reason.
    """

    states: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, list[tuple[str, Any]]] = field(default_factory=dict)
    statuses: dict[str, str] = field(default_factory=dict)
    held: dict[str, list[tuple[int, int, str]]] = field(default_factory=dict)
    rejected: dict[str, dict[str, int]] = field(default_factory=dict)


def same(
    pipeline: Pipeline, messages: Iterable[Any], *, engines: Sequence[str] = ("replay", "worker"), seed: int = 0
) -> Story:
    """Put a history through several engines and see that the same comes of it.

    Every engine gets the messages in the order of the list, which is the order in which they arrived.

    Args:
        pipeline: the definition.
        messages: instances of its message type, or dicts of its fields; what JSON cannot say, such as a date in a
            dict, is text in a queue, so give such messages a type.
        engines: ``replay``, the pure timeline, twice, so that a handler that is not deterministic is found and named;
            ``worker``, the pipeline in this process, stopped and begun again in between.
        seed: decides where the engines are stopped.

    Returns:
        What has come of it, by the first engine.

    Raises:
        Different: naming the group and what differs.
        InputError: if there is no such engine.
    """
    unknown = [name for name in engines if name not in _ENGINES]
    if unknown or not engines:
        msg = f"engines={engines!r}; there are {', '.join(_ENGINES)}"
        raise InputError(msg)
    history = list(messages)
    stories = {name: _ENGINES[name](pipeline, history, random.Random(seed)) for name in engines}  # noqa: S311
    first, *others = stories
    for name in others:
        _compare(first, stories[first], name, stories[name])
    return stories[first]


def _compare(one: str, story: Story, other: str, another: Story) -> None:
    for what in Story.__dataclass_fields__:
        here, there = getattr(story, what), getattr(another, what)
        for group in sorted(here.keys() | there.keys()):
            if here.get(group) != there.get(group):
                msg = f"group {group!r} has different {what}: {one} has {here.get(group)!r}, "
                raise Different(msg + f"{other} has {there.get(group)!r}")


def _replayed(pipeline: Pipeline, messages: Sequence[Any], _chance: random.Random) -> Story:
    """The pure timeline, each message a step of its own."""
    groups: defaultdict[str | None, list[Any]] = defaultdict(list)
    for message in messages:
        groups[_group(pipeline, message)].append(message)
    story = Story()
    for group, own in sorted(groups.items(), key=lambda pair: pair[0] or ""):
        _tell(story, _twice(pipeline, group, own))
    return story


def _twice(pipeline: Pipeline, group: str | None, messages: Sequence[Any]) -> Replay:
    """Replay one group's messages two times side by side.

    Raises:
        Different: naming the message after which the two are not the same.
    """
    once, again = Replay(), Replay()
    for message in messages:
        once, again = (pipeline.replay([message], after=each) for each in (once, again))
        for what in ("states", "outputs", "errors"):
            here, there = (_plain(getattr(each, what)) for each in (once, again))
            if here != there:
                msg = (
                    f"the handler of pipeline {pipeline.name!r} is not deterministic: after the message {message!r} of "
                    f"group {group!r} one run has the {what} {here!r}, and another {there!r}"
                )
                raise Different(msg)
    return once


def _tell(story: Story, replay: Replay) -> None:
    for group, state in replay.states.items():
        line = replay.timelines[group]
        story.states[group] = _plain(state)
        story.statuses[group] = line.status.value
        held = [(each.epoch, each.turn, each.id or "") for _, each in sorted(line.held.items())]
        if held:
            story.held[group] = held
    for output in replay.outputs:
        story.outputs.setdefault(output.group, []).append((output.effect_id, _plain(output.output)))
    for each in story.outputs.values():
        each.sort()
    for rejected in replay.rejected:
        _count(story, rejected.group, rejected.reason)


def _worked(pipeline: Pipeline, messages: Sequence[Any], chance: random.Random) -> Story:
    """The pipeline in this process, over a queue in memory."""
    with open_database(":memory:") as db:
        queue = db.queue("messages")
        rest = list(messages)
        while True:
            part, rest = rest[: (size := chance.randint(1, 50))], rest[size:]
            queue.send_many([draft(_body(each), group=_group(pipeline, each)) for each in part])
            with Worker(pipeline, queue, concurrency=chance.randint(1, 4)) as worker:
                if not rest:
                    worker.drain()
            if not rest:
                return _looked(PipelineLook(db, pipeline.name))


def _looked(look: PipelineLook) -> Story:
    story = Story()
    for standing in look.groups():
        story.states[standing.group] = _plain(standing.state)
        story.statuses[standing.group] = standing.status
        held = [(each.epoch, each.turn, each.id or "") for each in look.held(standing.group)]
        if held:
            story.held[standing.group] = sorted(held)
    for output in look.outputs():
        story.outputs.setdefault(output.group, []).append((output.effect_id, json.loads(output.output)))
    for each in story.outputs.values():
        each.sort()
    for rejected in look.rejected():
        _count(story, rejected.group, rejected.reason)
    counts = look.counts()
    if not counts.balanced:
        msg = f"the worker's books do not balance: {counts}"
        raise Different(msg)
    return story


def _count(story: Story, group: str | None, reason: str) -> None:
    own = story.rejected.setdefault(group or "", {})
    own[reason] = own.get(reason, 0) + 1


def _body(message: Any) -> Any:
    """A message as it lies in a queue."""
    return msgspec.json.decode(canonical(message))


def _group(pipeline: Pipeline, message: Any) -> str | None:
    value = message.get(pipeline.group) if isinstance(message, dict) else getattr(message, pipeline.group)
    return None if value is None else group_text(value)


def _plain(value: Any) -> Any:
    """JSON values, so that states and outputs of all engines can be compared."""
    return json.loads(canonical(value))


_ENGINES: Final[dict[str, Callable[[Pipeline, Sequence[Any], random.Random], Story]]] = {
    "replay": _replayed,
    "worker": _worked,
}
