"""The options and the checks that all ready-made pipelines share."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypedDict

from inturn.core.errors import PipelineError
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.policies import Retry, Wait
from inturn.core.values import path


class PipelineOptions(TypedDict, total=False):
    """The options of :class:`inturn.Pipeline` that each function passes on, with the same meaning and defaults."""

    message: type[Any] | None
    id: str | None
    arrival: str | None
    ignore: tuple[str, ...] | list[str]
    on_gap: Wait | None
    retry: Retry
    on_invalid: Literal["reject", "fail"]
    version: int
    upgrade: Callable[[Any, int], Any] | None


def pipeline_of(
    function: Callable[..., Pipeline[Any, Any, Any]], options: Mapping[str, Any], **fields: Any
) -> Pipeline[Any, Any, Any]:
    """Return a pipeline with the fields that a function sets, and the options that its user has given.

    Raises:
        PipelineError: if an option does not exist, or its value is not valid.
    """
    if unknown := [name for name in options if name not in PipelineOptions.__annotations__]:
        own = [name for name in inspect.signature(function).parameters if name != "options"]
        existing = ", ".join([*own, *PipelineOptions.__annotations__])
        raise PipelineError(f"{function.__name__} has no option {unknown[0]!r}; existing options: {existing}")
    return Pipeline(**fields, **options)


def check_paths(pipeline: Pipeline[Any, Any, Any], function: str, paths: Mapping[str, object]) -> None:
    """Check that arguments are paths of fields and, as far as annotations show, of fields of the message type.

    Raises:
        PipelineError: names the function and the argument.
    """
    for argument, value in paths.items():
        if not (isinstance(value, str) and value):
            raise PipelineError(f"{function}({argument}={value!r}); expected the path of a field, such as 'after'")
        if pipeline.message is not None:
            path.check(pipeline.message, value)
