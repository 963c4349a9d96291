"""The definition of a pipeline: its groups, their order, and the effect of a message on a group's state."""

import dataclasses
import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Literal

from inturn.core import limits
from inturn.core.arguments import check_type
from inturn.core.errors import PipelineError, StateError, ValueRefused
from inturn.core.identity import TimelineEntry, effect_id, field_names
from inturn.core.pipeline.handler import check_handler, check_state, check_upgrade
from inturn.core.pipeline.order import Order
from inturn.core.pipeline.policies import Retry, Wait
from inturn.core.pipeline.type_variables import MessageT, OutputT, StateT
from inturn.core.source_lines import keep_source_lines
from inturn.core.texts import name_fault, storable
from inturn.core.values import path
from inturn.core.values.construct import error_text
from inturn.core.values.states import StateNormalizer

if TYPE_CHECKING:
    from inturn.core.pipeline.decision import Decision
    from inturn.core.pipeline.replay import Replay


@dataclass(frozen=True, kw_only=True)
class Pipeline(Generic[MessageT, StateT, OutputT]):
    """The definition of groups, their order, and the effect of a message on a group's state.

    Type checkers infer ``Pipeline[Message, State, Output]`` from ``message``, ``state`` and ``handler``, and report a
    handler that does not fit the other two.

    A field is named by its path, see :mod:`inturn.core.values.path`: ``after.version`` is a field within another.

    Attributes:
        name: name of the pipeline in stores and effect ids; do not change it when the code moves.
        group: field with the group: text, an integer or a date.
        order: grade of order of the data.
        handler: ``handler(state, message)`` returns ``(state, outputs)``. Pure: no clock, no I/O, no randomness.
        message: a dataclass, ``msgspec.Struct`` type or model of pydantic, or None for plain dicts.
        state: type or function whose call without arguments makes a group's first state.
        id: field with the deduplication id; needed by ``Timestamp`` and ``Arrival``.
        arrival: field with the order of arrival; not part of the content.
        ignore: further fields that are not part of the content, such as a time of receipt.
        on_gap: policy for a gap; for ``Gapless`` only, where None means wait forever.
        retry: policy for a handler that raises ``Retryable``.
        on_invalid: ``reject`` counts and stores a message without a group or a place; ``fail`` stops the run.
        version: version of the state type; raise it with every change except new fields that have defaults.
        upgrade: ``upgrade(state, version)`` returns a state made from one of an older version; its arguments are that
            state as JSON values (a record as a dict), and that version.

    Raises:
        PipelineError: if the definition contradicts itself, or needs something that its grade of order does not offer.
    """

    name: str
    group: str
    order: Order
    handler: Callable[[StateT, MessageT], tuple[StateT, list[OutputT] | tuple[OutputT, ...]]]
    message: type[MessageT] | None = None
    state: Callable[[], StateT] = dict  # type: ignore[assignment] # without it the handler determines the type, a dict
    id: str | None = None
    arrival: str | None = None
    ignore: tuple[str, ...] | list[str] = ()
    on_gap: Wait | None = None
    retry: Retry = Retry()  # noqa: RUF009 - a frozen value
    on_invalid: Literal["reject", "fail"] = "reject"
    version: int = 1
    upgrade: Callable[[Any, int], StateT] | None = None

    def __post_init__(self) -> None:
        ignore = (self.ignore,) if isinstance(self.ignore, str) else self.ignore
        if not isinstance(ignore, list | tuple) or not all(isinstance(name, str) for name in ignore):
            raise PipelineError(f"Pipeline(ignore={self.ignore!r}); expected the names of fields")
        object.__setattr__(self, "ignore", tuple(ignore))
        self._check_kinds()
        self._check_names()
        self._check_order()
        self._check_fields()
        keep_source_lines(self.handler)

    def __getstate__(self) -> dict[str, Any]:
        """Return the data to pickle: the definition, without the values computed from it."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def replay(
        self,
        messages: Iterable[MessageT | Mapping[str, Any]],
        *,
        now: dt.datetime | None = None,
        final: bool = False,
        after: "Replay[StateT, OutputT] | None" = None,
        decisions: "Sequence[Decision]" = (),
    ) -> "Replay[StateT, OutputT]":
        """Apply messages to the pure timeline, without Spark: for unit tests, and as the oracle of every runner.

        Args:
            messages: instances of ``message``, or dicts of its fields. They are applied in the order of the ``arrival``
                field or, if the messages have none, of the list; a pipeline without ``arrival`` applies each step in
                its own order, as the batch does.
            now: time of the step, by which waits are measured; default 1970.
            final: for ``Timestamp``: the input is complete, so nothing waits.
            after: result of the previous step, which this one continues.
            decisions: decisions about groups that wait or are parked; applied before the messages, in the order of
                (at_us, id).

        Returns:
            The states, outputs, rejected and held messages after the step, its counts, and the decisions that are void.

        Raises:
            InputError: if a message lacks a field.
            HandlerError: if the handler returned something that is not (state, outputs), and has not applied a
                message yet. Later on such a result parks the group.
            GapError: if the wait for a gap has expired under ``then="fail"``.
        """
        from inturn.core.pipeline.replay import replay

        return replay(self, messages, now=now, final=final, after=after, decisions=decisions)

    @cached_property
    def normalize(self) -> StateNormalizer:
        """The normal form of the states; each state is converted to it after every message.

        Raises:
            StateError: if values of the state type would not be read back unchanged.
        """
        return StateNormalizer(self.state)

    @cached_property
    def shape(self) -> Any:
        """The shape of the state type, as a store keeps it."""
        from inturn.core.pipeline.versions import shape_of

        return shape_of(self.normalize.kind)

    @cached_property
    def make_first(self) -> Callable[[], StateT]:
        """The function that creates a first state; the state type itself, if its instances are in their normal form."""
        self.first_state()  # for its checks
        return (
            self.state if isinstance(self.state, type) and self.normalize.is_normal(self.state()) else self.first_state
        )

    def output_rows(
        self, group: str, entry: TimelineEntry, outputs: Iterable[Any]
    ) -> "list[tuple[str, int | None, int | None, str | None, int, str, Any]]":
        """Return the outputs of a message: group, epoch, revision, id, index, effect id and the output of each."""
        epoch = entry.epoch if self.epoch else None
        place = self.order.identity(entry)
        revision = place if isinstance(place, int) else None
        return [
            (group, epoch, revision, entry.id, index, effect_id(self.name, group, epoch, place, index), output)
            for index, output in enumerate(outputs)
        ]

    def first_state(self) -> StateT:
        """Return the state of a group before its first message.

        Raises:
            PipelineError: if the call that makes it raises.
            StateError: if it has no normal form.
        """
        try:
            first_state = self.state()
        except Exception as error:
            name = getattr(self.state, "__qualname__", type(self.state).__qualname__)
            msg = f"Pipeline(state={name}) of pipeline {self.name!r}: its call without arguments raised "
            raise PipelineError(storable(f"{msg}{error_text(error)}; expected a group's first state")) from error
        try:
            normal: StateT = self.normalize(first_state)
        except ValueRefused as error:
            raise StateError(f"the first state of pipeline {self.name!r} cannot be stored: {error}") from error
        return normal

    @property
    def gap_policy(self) -> Wait:
        """The policy for a gap; wait forever if the pipeline names none."""
        return self.on_gap or Wait()

    @cached_property
    def wait_us(self) -> int | None:
        """The longest wait for a gap, or for the next message of an idle group, in microseconds; None: forever."""
        return self.gap_policy.timeout_us if self.order.has_gaps else self.order.idle_us

    @cached_property
    def epoch(self) -> str | None:
        """The field with the epoch, if the order has one."""
        return self.order.epoch

    @cached_property
    def position(self) -> str | None:
        """The field with a message's place in its group's order; None for ``Arrival``, and for several fields."""
        return self.order.column

    @cached_property
    def revision(self) -> str | None:
        """The field with the revision, if the order has one."""
        return self.position if self.order.has_revisions else None

    @cached_property
    def time(self) -> str | None:
        """The field with the time, if the order uses it."""
        return self.position if self.order.has_times else None

    @cached_property
    def key_fields(self) -> tuple[str, ...]:
        """The fields without which a message cannot be placed: group, epoch, place and id, where they apply."""
        ids = None if self.order.has_revisions else self.id
        return tuple(name for name in (self.group, self.epoch, self.position, *self.order.fields[:1], ids) if name)

    @cached_property
    def placing_fields(self) -> tuple[str, ...]:
        """The fields that determine a message's place and identity: the key fields, and those that may be null.

        A replaced message keeps them.
        """
        return tuple(dict.fromkeys(name for name in (*self.key_fields, *self.order.fields, self.id) if name))

    @cached_property
    def read_places(self) -> Callable[[Any], list[Any]]:
        """The function that reads group, epoch, position, id and arrival of a message; 0 where no field is named.

        Where several fields have the place, the position is the list of their values.
        """
        fields = self.order.fields
        read = path.reader([self.group, self.epoch, self.position, self.id, self.arrival, *fields], 0)
        if not fields:
            return read

        def read_fields(content: Any) -> list[Any]:
            group, epoch, _, ident, arrival, *parts = read(content)
            return [group, epoch, parts, ident, arrival]

        return read_fields

    @cached_property
    def fields(self) -> tuple[str, ...] | None:
        """The fields of the message type, in order; None for plain dicts."""
        return None if self.message is None else field_names(self.message)

    @cached_property
    def left_out(self) -> dict[str, list[tuple[str, ...]]]:
        """The fields that are not part of the content: for each outermost one, the paths to those within it."""
        paths: dict[str, list[tuple[str, ...]]] = {}
        for first, *rest in map(path.parts, (*([self.arrival] if self.arrival else []), *self.ignore)):
            paths.setdefault(first, []).append(tuple(rest))
        return paths

    def in_content(self, name: str) -> bool:
        """Return whether an outermost field is part of a message's content and digest, at least in part."""
        return () not in self.left_out.get(name, ())

    def content_of(self, name: str, value: Any) -> Any:
        """Return the part of an outermost field's value that belongs to the content."""
        for names in self.left_out.get(name, ()):
            value = path.without(value, names)
        return value

    def _check_kinds(self) -> None:
        if not isinstance(self.order, Order):
            raise PipelineError(
                f"Pipeline(order={self.order!r}); expected Gapless, Monotone, MonotoneFields, Timestamp or Arrival"
            )
        if not isinstance(self.on_gap, Wait | None):
            msg = f"Pipeline(on_gap={self.on_gap!r}); expected Wait(…), such as Wait('10 minutes', then='park')"
            raise PipelineError(msg)
        if not isinstance(self.retry, Retry):
            msg = f"Pipeline(retry={self.retry!r}); expected Retry(…), such as Retry(3, backoff='1 second')"
            raise PipelineError(msg)

    def _check_names(self) -> None:
        if not isinstance(self.name, str) or not 0 < len(self.name) <= limits.NAME_LENGTH:
            msg = f"Pipeline(name={self.name!r}); expected a text of 1 to {limits.NAME_LENGTH} characters"
            raise PipelineError(msg)
        fields = (self.group, self.id, self.arrival, self.epoch, self.position, *self.order.fields, *self.ignore)
        for text in (self.name, *(field for field in fields if isinstance(field, str))):
            if text and (problem := name_fault("name", text)):
                raise PipelineError(f"Pipeline {self.name!r}: {problem}")
        if not callable(self.handler):
            raise PipelineError(f"Pipeline(handler={self.handler!r}); expected a function handler(state, message)")
        check_handler(self.handler)
        check_state(self.state)
        check_upgrade(self.version, self.upgrade)
        if self.on_invalid not in ("reject", "fail"):
            raise PipelineError(f"Pipeline(on_invalid={self.on_invalid!r}); expected 'reject' or 'fail'")
        for name in ("group", "id", "arrival", "epoch"):
            value = getattr(self, name)
            if not (isinstance(value, str) and value) and not (name != "group" and value is None):
                raise PipelineError(f"Pipeline: the {name} field is {value!r}; expected the name of a field")

    def _check_order(self) -> None:
        self.order.check()
        kind = type(self.order).__name__
        if self.on_gap is not None and not self.order.has_gaps:
            msg = f"on_gap={self.on_gap} needs an order that detects gaps; {kind} does not detect them: "
            raise PipelineError(msg + "leave on_gap out, or use Gapless if revisions have no holes")
        if self.id is not None and self.order.fields:
            msg = f"Pipeline(id={self.id!r}): with {kind} the position is a message's id; leave id out"
            raise PipelineError(msg)
        if self.id is None and not self.order.has_revisions and not self.order.fields:
            msg = f"{kind} does not identify messages; name the field that identifies duplicates, Pipeline(id=…)"
            raise PipelineError(msg)
        outside = [path.parts(name) for name in (*([self.arrival] if self.arrival else []), *self.ignore)]
        content = [
            name for name in self.placing_fields if any(path.parts(name)[: len(outer)] == outer for outer in outside)
        ]
        if content:
            msg = f"the field {content[0]!r} places messages, so it cannot be named in arrival= or ignore="
            raise PipelineError(msg)

    def _check_fields(self) -> None:
        if self.message is None:
            return
        if self.fields is None:
            msg = (
                f"Pipeline(message={self.message!r}); expected a dataclass, a msgspec.Struct, a pydantic model or None"
            )
            raise PipelineError(msg)
        for name in self.placing_fields:
            path.check(self.message, name)


def check_pipeline(pipeline: object) -> None:
    """Check that an argument is a pipeline, or raise InputError."""
    check_type("pipeline", pipeline, Pipeline, "a Pipeline(…)")
