"""The results of a pipeline, as its users read them: states, outputs, rejected messages, parked groups, counts."""

import datetime as dt
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, overload

import msgspec

from inturn.core.errors import StateError
from inturn.core.pipeline.decision_service import DecisionService, GroupDecisions
from inturn.core.pipeline.inspection import GroupStatus
from inturn.core.pipeline.journal import Counts
from inturn.core.pipeline.results import FailingDelivery, Output, RejectedMessage
from inturn.core.values.states import restored
from inturn.results.state_columns import StateColumn, state_columns
from inturn.results.tables import Json, ResultColumn, ResultTable, columns_of

R = TypeVar("R", Output, RejectedMessage)
S = TypeVar("S")
_OUTPUTS = columns_of(group=str, epoch=int, revision=int, id=str, index=int, effect_id=str, output=Json)
_REJECTED = columns_of(group=str, reason=str, detail=str, message=str, at=dt.datetime)
_FAILING = columns_of(group=str, status=str, outputs=int, attempts=int, error=str, next_try=dt.datetime)


class PipelineResults(GroupDecisions):
    """The results of one pipeline, and decisions about its groups; ``db.pipeline("ledger")`` returns them.

    Each call reads the results that are stored at that time; before the first run of the pipeline there are none. The
    definition of the pipeline is not needed. ``group`` and ``state`` raise NoSuchGroup, which is also a KeyError, for
    an unknown group; its outputs and rejected messages are empty.
    """

    def __init__(self, inspector: DecisionService) -> None:
        super().__init__(inspector)
        self._groups = {
            **columns_of(group=str, status=str),
            "epoch": ResultColumn(int, lambda row: row.epoch if inspector.order.has_epoch else None),
            "revision": ResultColumn(int, lambda row: row.reached if inspector.order.grade.has_revisions else None),
            **columns_of(held=int, oldest=dt.datetime, deadline=dt.datetime, error=str, old_version=int, state=Json),
        }

    def states(self, group: str | None = None, *, older: bool = False) -> ResultTable[GroupStatus]:
        """Return all groups, or one, each with its status, the number of messages that it holds, and its state.

        ``old_version`` is the version of a state that has not been upgraded to the pipeline's version, else null.

        Args:
            group: name of the group.
            older: return only groups whose state has not been upgraded.

        Raises:
            NoSuchGroup: if the group does not exist; raised when the table is read.
        """
        rows = self.inspector.groups if group is None else lambda: iter([self.group(group)])
        if not older:
            return ResultTable(self._groups, rows, self._fields)
        return ResultTable(self._groups, lambda: (row for row in rows() if row.old_version is not None), self._fields)

    def _fields(self) -> list[StateColumn]:
        return state_columns(self.inspector.shape, self._groups)

    def parked(self, *, group: str | Iterable[str] | None = None, error: str | None = None) -> ResultTable[GroupStatus]:
        """Return the groups that are parked, given up or waiting.

        Args:
            group: shell pattern of their names, or several of which one must match.
            error: shell pattern of the last line of their error.
        """
        return ResultTable(self._groups, lambda: self.inspector.parked(group=group, error=error), self._fields)

    def group(self, group: str) -> GroupStatus:
        """Return one group.

        Raises:
            NoSuchGroup: if the group does not exist.
        """
        return self.inspector.group(group)

    @overload
    def state(self, group: str) -> Any: ...

    @overload
    def state(self, group: str, type: type[S]) -> S: ...

    def state(self, group: str, type: type[S] | None = None) -> Any:  # noqa: A002 - as msgspec calls it
        """Return the state of one group.

        Args:
            group: the group.
            type: the pipeline's state type, to which the state is converted; None: JSON values.

        Raises:
            NoSuchGroup: if the group does not exist.
            StateError: if the state is not of the type.
        """
        state = self.group(group).state
        if type is None:
            return state
        try:
            return msgspec.convert(state, type, str_keys=True, dec_hook=restored)
        except msgspec.ValidationError as error:
            msg = f"the state of group {group!r} is not a valid {type.__name__}: {error}; omit type= to get JSON values"
            raise StateError(msg) from error

    def outputs(self, group: str | None = None) -> ResultTable[Output]:
        """Return outputs, of all groups or of one; the outputs of a group are in order.

        In a database, an output is removed once ``deliver`` has delivered it. A pipeline without ``deliver=`` keeps all
        outputs.
        """
        return ResultTable(_OUTPUTS, _of(group, self.inspector.outputs))

    def rejected(self, group: str | None = None) -> ResultTable[RejectedMessage]:
        """Return the messages that will not be applied, of all groups or of one, each with the reason."""
        return ResultTable(_REJECTED, _of(group, self.inspector.rejected))

    def failing(self) -> ResultTable[FailingDelivery]:
        """Return the groups whose first output ``deliver`` has failed to deliver.

        The delivery is retried without limit, unless its status is ``refused``.
        """
        return ResultTable(_FAILING, self.inspector.failing)

    def redeliver(self, *groups: str) -> int:
        """Try refused outputs of these groups again, or of all; return the number of groups."""
        return self.inspector.redeliver(groups or None)

    def counts(self) -> Counts | None:
        """Return the counts of messages; None for a store on Spark, where each step has its own counts."""
        return self.inspector.counts()


def _of(group: str | None, rows: Callable[[], Iterator[R]]) -> Callable[[], Iterator[R]]:
    """Return a function for the rows of one group."""
    return rows if group is None else lambda: (row for row in rows() if row.group == group)
