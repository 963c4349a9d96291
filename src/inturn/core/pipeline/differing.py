"""The fields in which two messages differ, for the detail of a conflict."""

from collections.abc import Mapping
from typing import Any

from inturn.core.identity import TimelineEntry, digest
from inturn.core.pipeline.definition import Pipeline
from inturn.core.pipeline.reading import own_content, values_of


def differing_fields(pipeline: Pipeline, first: TimelineEntry, second: TimelineEntry) -> list[str]:
    """Return the outermost fields of the content in which two messages differ.

    There are none if the content of the first one is not that of its digest: a handler or a decision has changed it.
    """
    one, other = _content(pipeline, first), _content(pipeline, second)
    if digest(one) != first.digest:
        return []
    names = sorted(one.keys() | other.keys())
    return [name for name in names if digest({name: one.get(name)}) != digest({name: other.get(name)})]


def _content(pipeline: Pipeline, entry: TimelineEntry) -> Mapping[str, Any]:
    message = entry.message
    return own_content(pipeline, message if pipeline.fields is None else values_of(message, pipeline.fields))
