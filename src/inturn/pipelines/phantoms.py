"""Phantom records: a record that any message creates, and that is emitted once it is complete."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from inturn.core.errors import PipelineError
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.order import Arrival, Order
from inturn.pipelines.options import PipelineOptions, pipeline_of
from inturn.pipelines.rows import RowHandler, check_state, complete, fields_of, value_of


@dataclass(frozen=True, kw_only=True)
class PartAssembler(RowHandler):
    """The handler of :func:`phantom`."""

    part: str
    parts: tuple[str, ...]

    def __call__(self, state: Any, message: Any) -> tuple[Any, list[Any]]:
        """Return the record with the fields of the message, and the record as an output once it is complete."""
        part = value_of(message, self.part)
        if part not in self.parts:
            return state, []
        record = {name: fields for name, fields in fields_of(state).items() if fields is not None}
        seen = {name for name in self.parts if name in record}
        fields = {**fields_of(record.get(part)), **(self.row_of(message) or {})}
        after = self.made({**record, part: fields})
        return after, [after] if seen == {*self.parts} - {part} else []


def phantom(
    name: str,
    *,
    group: str,
    part: str,
    parts: Sequence[str],
    order: Order = Arrival(),  # noqa: B008 - a frozen value
    row: str | None = None,
    state: type[Any] = dict,
    **options: Unpack[PipelineOptions],
) -> Pipeline[Any, Any, Any]:
    """Return a pipeline that assembles one record from messages of several sources, whichever comes first.

    The state has the fields of each part under its name. Later messages of a part replace the fields that they have;
    null fields replace nothing. The message with which the last part arrives emits the record, which is the only output
    of the group. A message of another part changes nothing.

    Args:
        name: name of the pipeline.
        group: path of the group: what the messages are about.
        part: path of the field with the name of the part that a message belongs to, such as ``source``. A message that
            has no such field parks its group.
        parts: the names of the parts of a complete record.
        order: the order of the messages; ``Arrival()`` needs ``id=``.
        row: path of the fields in a message; None: the message without ``part`` and the fields that place it.
        state: ``dict``, whose values are JSON values; or a dataclass, Struct or model with a field for each part, such
            as ``payments: Payment | None = None``.
        options: further options of :class:`inturn.Pipeline`.

    Raises:
        PipelineError: if an argument is not valid.
    """
    if isinstance(parts, str) or not parts or not all(isinstance(each, str) and each for each in parts):
        raise PipelineError(f"phantom(parts={parts!r}); expected the names of the parts, such as ('payments', 'stock')")
    if len(set(parts)) < len(parts):
        raise PipelineError(f"phantom(parts={parts!r}) names a part twice; expected each part once")
    handler = PartAssembler(state=state, row=row, part=part, parts=tuple(parts))
    check_state("phantom", handler, handler.parts)
    pipeline = pipeline_of(phantom, options, name=name, group=group, order=order, handler=handler, state=state)
    return complete(pipeline, handler, "phantom", paths={"part": part}, left_out=(part,))
