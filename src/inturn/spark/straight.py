"""Open groups through runs that are all there is of them: one loop for all, without a timeline and a fold for each.

Most groups of most chunks are taken here. Whatever is not as usual is left to the kernel's long way, as if nothing
had happened.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from inturn.core.message import Entry
from inturn.core.pipeline import Pipeline
from inturn.spark.chunk import Chunk, Ints


@dataclass(slots=True)
class Straight:
    """What came of it.

    Attributes:
        taken: the groups that were taken, by their places in the chunk.
        states: theirs.
        left: the groups for the long way.
        outputs: group, message and its outputs, for each message that had some.
    """

    taken: list[int] = field(default_factory=list)
    states: list[Any] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    outputs: list[tuple[str, Entry, Sequence[Any]]] = field(default_factory=list)


def go_straight(
    pipeline: Pipeline,
    encode: Callable[[Sequence[Any]], Sequence[Any]],
    chunk: Chunk,
    groups: Ints,
    states: Iterable[Any],
) -> Straight:
    """Apply all rows of some groups of a chunk.

    Args:
        pipeline: the definition.
        encode: what is kept of a message's outputs.
        chunk: the rows.
        groups: the places of the groups in the chunk.
        states: their states, which the handler may change.
    """
    handler, messages = pipeline.handler, chunk.messages
    state_type = pipeline.state if isinstance(pipeline.state, type) else object
    done = Straight()
    firsts, ends = chunk.starts[groups].tolist(), chunk.starts[groups + 1].tolist()
    for at, first, end, before in zip(groups.tolist(), firsts, ends, states, strict=True):
        state, row, known = before, first, len(done.outputs)
        try:
            for message in messages[first:end]:
                state, outputs = handler(state, message)
                if outputs.__class__ is not list:
                    break
                if outputs:
                    done.outputs.append((chunk.names[at], chunk.applied(row), encode(outputs)))
                row += 1
        except Exception:  # noqa: BLE001 - whatever it is, the long way tells it
            row = first
        if row == end and isinstance(state, state_type):
            done.taken.append(at)
            done.states.append(state)
        else:
            done.left.append(at)
            del done.outputs[known:]
    return done
