"""The form of a scenario: messages with their description, and the handler that determines which states are wrong."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from inturn.core.pipeline.definition import Pipeline
from inturn.lab.design import Design
from inturn.lab.knobs import Knobs
from inturn.lab.results import LabResult
from inturn.lab.run import run
from inturn.lab.workload import LabMessage


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """An input of the lab with its description.

    Attributes:
        name: name in options and results.
        title: name in words.
        description: text for users.
        source: source of the description.
        messages: the messages.
        pipeline: pipeline with the handler; None to judge by the order.
        knobs: the knobs.
        designs: the designs that can process these messages; None for all.
        handlers: pipelines for designs that need a handler of their own.
        commutes: whether the order of a message in its group does not matter, given its body; None if it always does.
        follow: group and revision of the message whose life is shown.
    """

    name: str
    title: str
    description: str
    source: str
    messages: Sequence[LabMessage]
    pipeline: Pipeline | None
    knobs: Knobs
    designs: Sequence[Design] | None = None
    handlers: Mapping[str, Pipeline] = field(default_factory=dict)
    commutes: Callable[[Any], bool] | None = None
    follow: tuple[str, int] | None = None

    def run(self, *, split: bool = False, designs: Sequence[Design] | None = None, **changed_knobs: Any) -> LabResult:
        """Run the scenario.

        Args:
            split: whether messages that commute are handled outside of their group's order.
            designs: designs to run instead of the scenario's.
            changed_knobs: other values of knobs, such as ``consumers=8``.
        """
        return run(
            self.messages,
            pipeline=self.pipeline,
            knobs=msgspec.structs.replace(self.knobs, **changed_knobs),
            designs=self.designs if designs is None else designs,
            commutes=self.commutes,
            split=split,
            follow=self.follow,
            handlers=self.handlers,
            scenario=self.name,
        )
