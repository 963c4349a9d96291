"""A pipeline's definition as stored in a database, for tools without its code, and to detect name clashes."""

from inturn.core.errors import StoreMismatch
from inturn.core.pipeline import versions
from inturn.core.pipeline.definition import Pipeline
from inturn.store.records import PipelineInfo


def definition_of(pipeline: Pipeline) -> dict[str, object]:
    """Return a pipeline's definition, for tools that do not have its code."""
    return {
        "group": pipeline.group,
        "order": repr(pipeline.order),
        "id": pipeline.id,
        "policy": pipeline.gap_policy.then,
        "wait_us": pipeline.wait_us,
        "version": pipeline.version,
        "state": pipeline.shape,
    }


def check_definition(pipeline: Pipeline, info: PipelineInfo) -> None:
    """Check that a pipeline can continue from the stored one of its name.

    Raises:
        StoreMismatch: if it is another pipeline.
        StateError: if its version or its state type does not fit.
    """
    definition = definition_of(pipeline)
    for name in ("group", "order", "id"):
        if info.about[name] != definition[name]:
            msg = f"the store has a pipeline {info.name!r} with {name}={info.about[name]!r}, not {definition[name]!r}; "
            raise StoreMismatch(msg + "give this pipeline another name")
    versions.check(pipeline, int(info.about.get("version", 1)), info.about.get("state"))
