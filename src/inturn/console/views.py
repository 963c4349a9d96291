"""Contents of the pages, and the decisions of their forms: the inspection of ``inturn explain`` and ``parked``."""

import dataclasses
import datetime as dt
import json
from typing import Any, Final

from inturn.console.fields import RequestFields
from inturn.console.places import UnreadStore, found
from inturn.console.stuck import StuckGroups, stuck
from inturn.console.time_line import time_line
from inturn.core.errors import InputError, InturnError
from inturn.core.pipeline.decision import DecisionAction
from inturn.core.pipeline.selection import patterns

SAMPLE: Final = 10
"""Number of groups that the preview of a decision about many names."""
_OF_ONE: Final = {"failed": ["resume", "drop", "replace", "give-up"], "gap": ["skip", "resume", "give-up"]}
_OF_WAITING: Final = ["skip", "give-up"]


def overview(fields: RequestFields) -> dict[str, Any]:
    """Return the groups that do not go on, of all stores or of one, chosen by ``group`` and ``error`` patterns."""
    places, unread = found(fields.stores)
    if fields.get("store"):
        places = [fields.place()]
    stores: list[StuckGroups] = []
    for each in places:
        try:
            with each.open() as look:
                stores.append(stuck(look, each.title, group=patterns(fields.get("group")), error=fields.get("error")))
        except (InturnError, OSError) as error:
            unread.append(UnreadStore(each.title, str(error)))
    chosen = {name: fields.get(name) for name in ("store", "group", "error")}
    return {"stores": stores, "unread": unread, "chosen": chosen}


def group(fields: RequestFields) -> dict[str, Any]:
    """Return one group: its status, its time line, what it holds, its state, and decisions that wait.

    Raises:
        InputError: if the store does not know it.
    """
    place, name = fields.place(), fields.need("group")
    with place.open() as look:
        status = look.group(name)
        held = look.held(name)
        actions = _OF_ONE.get(status.status, _OF_WAITING if held else [])
        if look.gap(status, held) is None:
            actions = [each for each in actions if each != "skip"]
        return {
            "store": place.title,
            "group": status,
            "held": [{"place": look.place(each), "since": each.since, "content": each.content} for each in held],
            "events": time_line(look, status, held),
            "said": look.explain(name).split("\n", 1)[0],
            "undecided": look.undecided(name),
            "actions": actions,
            "unit": look.unit,
        }


def preview(fields: RequestFields) -> dict[str, Any]:
    """Return the groups that a decision would be about, and write nothing.

    Raises:
        InputError: if there is no such action, or nothing is selected.
    """
    place, action = fields.place(), DecisionAction.of(fields.need("action"))
    with place.open() as look:
        draft = look.draft(action, *_names(fields), **_selection(fields), by="")
    return {
        "store": place.title,
        "action": action,
        "groups": [each.group for each in draft.decisions[:SAMPLE]],
        "count": len(draft.decisions),
        "void": draft.void,
        "chosen": {name: fields.get(name) for name in ("group", "like", "error", "all")},
    }


def decide(fields: RequestFields, *, by: str) -> dict[str, str]:
    """Record a decision about one group or about all that are selected; return what the page of its outcome needs.

    Raises:
        InputError: if the person is not named, the content is not a JSON object, or nothing can be decided.
    """
    if not by:
        raise InputError("who decides? Fill in your name; it is kept with the decision")
    place, action = fields.place(), DecisionAction.of(fields.need("action"))
    content = _content(fields) if action is DecisionAction.REPLACE else None
    with place.open() as look:
        draft = look.draft(
            action, *_names(fields), content=content, **_selection(fields), by=by, why=fields.get("why") or ""
        )
        if not draft.decisions:
            raise InputError("; ".join(draft.void.values()) or "no group is selected any more: others were faster")
        report = look.record(draft)
    (group, name), *others = report.pending.items()
    if others:
        return {"store": place.title, "action": action.value, "first": name, "count": str(1 + len(others))}
    return {"store": place.title, "action": action.value, "first": name, "count": "1", "group": group}


def decided(fields: RequestFields) -> dict[str, Any]:
    """Return what has become of a decision: not taken yet, carried out, or void and why."""
    place, first = fields.place(), fields.need("first")
    with place.open() as look:
        verdict = look.verdict(first)
        is_followed, takes = look.is_followed(), look.takes
    return {
        "store": place.title,
        "action": fields.need("action"),
        "group": fields.get("group"),
        "count": fields.need("count"),
        "verdict": verdict,
        "is_followed": is_followed,
        "takes": takes,
    }


def plain(value: Any) -> Any:
    """Return what a view found as JSON values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, dt.datetime):
        return value.isoformat()
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _names(fields: RequestFields) -> list[str]:
    """Return the one group that is named, or none."""
    return [fields.need("group")] if "group" in fields.fields else []


def _selection(fields: RequestFields) -> dict[str, Any]:
    """Return the patterns that select groups, where none is named."""
    if "group" in fields.fields:
        return {}
    return {"group": fields.get("like"), "error": fields.get("error"), "all": fields.get("all") == "1"}


def _content(fields: RequestFields) -> dict[str, Any]:
    text = fields.need("content")
    try:
        new = json.loads(text)
    except ValueError as error:
        raise InputError(f"the new content is not JSON: {error}; the old one was kept") from error
    if not isinstance(new, dict):
        raise InputError("the new content is not an object with the message's fields; the old one was kept")
    return new
