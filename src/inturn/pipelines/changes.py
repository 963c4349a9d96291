"""Tables from change logs: the newest row of each group (SCD type 1), and all versions of it (SCD type 2)."""

from dataclasses import dataclass
from typing import Any, Unpack

from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.order import Order
from inturn.core.values.unavailable import merged
from inturn.pipelines.options import PipelineOptions, pipeline_of
from inturn.pipelines.rows import Flag, RowHandler, check_state, complete, fields_of, flag_of, value_of


@dataclass(frozen=True, kw_only=True)
class LatestRow(RowHandler):
    """The handler of :func:`latest`."""

    def __call__(self, state: Any, message: Any) -> tuple[Any, list[Any]]:
        """Return the row of the message as the new state."""
        row = self.row_of(message)
        if row is None:
            return self.made({"is_deleted": True}), []
        row.pop("is_deleted", None)
        return self.made(merged(row, fields_of(state))), []


def latest(
    name: str,
    *,
    group: str,
    order: Order,
    row: str | None = None,
    is_deleted: Flag | None = None,
    state: type[Any] = dict,
    **options: Unpack[PipelineOptions],
) -> Pipeline[Any, Any, Any]:
    """Return a pipeline whose states are the newest row of each group: a slowly changing dimension of type 1.

    The state of a deleted group is ``{"is_deleted": True}``: the group keeps its place, so an older message cannot
    restore the row. A null field is the same as an absent one. A column with Debezium's placeholder for an unchanged
    large value keeps its old value.

    Args:
        name: name of the pipeline.
        group: path of the group, such as the key of the row.
        order: the order of the changes.
        row: path of the row in a message, such as ``after``; None: the message itself. A null row is a delete. A
            message that has no such field parks its group.
        is_deleted: path of a boolean that marks a delete, or a path and the value that marks it: ``("op", "d")``. A
            null marks none. A message that has no such field, or no boolean in it, parks its group.
        state: ``dict``, whose values are JSON values; or a dataclass, Struct or model, whose fields are filled from the
            fields of the row. It needs a field ``is_deleted: bool = False``, and a default for each field. A field
            ``is_deleted`` of the row is not copied.
        options: further options of :class:`inturn.Pipeline`.

    Raises:
        PipelineError: if an argument is not valid.
    """
    handler = LatestRow(state=state, row=row, is_deleted=flag_of("latest", is_deleted))
    check_state("latest", handler, ["is_deleted"], "is_deleted")
    pipeline = pipeline_of(latest, options, name=name, group=group, order=order, handler=handler, state=state)
    return complete(pipeline, handler, "latest", paths={})


@dataclass(frozen=True, kw_only=True)
class RowVersions(RowHandler):
    """The handler of :func:`history`."""

    time: str

    def __call__(self, state: Any, message: Any) -> tuple[Any, list[Any]]:
        """Return the current version, and the version that ends with the message."""
        before, row = fields_of(state), self.row_of(message)
        time = value_of(message, self.time)
        if time is None:
            raise ValueError(f"{self.time} is null; expected the time of the change")
        old = before.get("row") if before.get("is_current") else None
        values = {} if row is None else {"row": without_nulls(merged(row, fields_of(old)))}
        after = self.made({**values, "valid_from": time, "is_current": row is not None})
        new = fields_of(after)
        if old is not None and row is not None and new["row"] == old:
            return state, []
        if row is None:
            after = self.made({"is_current": False})
        ended = {"valid_from": before.get("valid_from"), "valid_to": new["valid_from"], "row": old}
        return after, [] if old is None else [ended]


def without_nulls(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without its null fields."""
    return {name: value for name, value in row.items() if value is not None}


def history(
    name: str,
    *,
    group: str,
    order: Order,
    time: str,
    row: str | None = None,
    is_deleted: Flag | None = None,
    state: type[Any] = dict,
    **options: Unpack[PipelineOptions],
) -> Pipeline[Any, Any, Any]:
    """Return a pipeline that keeps every version of each group's row: a slowly changing dimension of type 2.

    The state is the current version: ``valid_from``, ``row`` and ``is_current``. After a delete it is
    ``{"is_current": False}``. Each version that ends is one output: ``valid_from``, ``valid_to`` and ``row``. So the
    table is the outputs and the current states, and a state holds one version. A message whose row equals the current
    one makes no version. Null fields and Debezium's placeholder are as in :func:`latest`.

    Args:
        name: name of the pipeline.
        group: path of the group, such as the key of the row.
        order: the order of the changes. A message that the order rejects as stale or late makes no version.
        time: path of the time from which a version is valid. A message without it parks its group. It is not compared:
            if the clock of the source goes back, so do ``valid_from`` and ``valid_to``.
        row: path of the row in a message, such as ``after``; None: the message without ``time``, ``is_deleted`` and the
            fields that place it. A null row is a delete.
        is_deleted: path of a boolean that marks a delete, or a path and the value that marks it: ``("op", "d")``.
            Absent fields are as in :func:`latest`.
        state: ``dict``, whose values are JSON values; or a dataclass, Struct or model with the fields ``valid_from``,
            ``row`` (such as a dataclass, or None) and ``is_current: bool = False``, each with a default.
        options: further options of :class:`inturn.Pipeline`.

    Raises:
        PipelineError: if an argument is not valid.
    """
    handler = RowVersions(state=state, row=row, is_deleted=flag_of("history", is_deleted), time=time)
    check_state("history", handler, ["valid_from", "row", "is_current"], "is_current")
    pipeline = pipeline_of(history, options, name=name, group=group, order=order, handler=handler, state=state)
    return complete(pipeline, handler, "history", paths={"time": time}, left_out=(time,))
