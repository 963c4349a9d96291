"""The content of a message: the fields that its digest covers, and the fields in which two messages differ."""

from collections.abc import Iterable, Mapping
from typing import Any

from inturn.core.identity import TimelineEntry, digest
from inturn.core.pipeline.definition import Pipeline


def values_of(message: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return the fields of a record."""
    return {name: getattr(message, name) for name in names}


def fields_of(pipeline: Pipeline, entry: TimelineEntry) -> Mapping[str, Any]:
    """Return the message of an entry by its fields."""
    message: Mapping[str, Any] = entry.message if pipeline.fields is None else values_of(entry.message, pipeline.fields)
    return message


def own_content(pipeline: Pipeline, content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the content for the digest: without arrival and ignored fields."""
    if not pipeline.left_out and (pipeline.fields is None or len(pipeline.fields) == len(content)):
        return content
    own = {name: content[name] for name in pipeline.fields or content}
    for name in pipeline.left_out.keys() & own.keys():
        value = own.pop(name)
        if pipeline.in_content(name):
            own[name] = pipeline.content_of(name, value)
    return own


def differing_fields(pipeline: Pipeline, first: TimelineEntry, second: TimelineEntry) -> list[str]:
    """Return the outermost fields of the content in which two messages differ.

    There are none if the content of the first one is not that of its digest: a handler or a decision has changed it.
    """
    own_first, own_second = (own_content(pipeline, fields_of(pipeline, entry)) for entry in (first, second))
    if digest(own_first) != first.digest:
        return []
    names = sorted(own_first.keys() | own_second.keys())
    return [name for name in names if digest({name: own_first.get(name)}) != digest({name: own_second.get(name)})]
