"""Contents of the pages and decisions of their forms, based on the inspection of ``inturn explain`` and ``parked``."""

import dataclasses
import datetime as dt
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from inturn.console.differences import differences
from inturn.console.dry_run import MOST, dry_run
from inturn.console.dry_run_process import DryRunRequest
from inturn.console.fields import RequestFields
from inturn.console.forms import FormField, edited, form
from inturn.console.json_texts import json_value
from inturn.console.refusal import RequestRefused
from inturn.console.roles import Role
from inturn.console.store_addresses import StoreAddress, query_all, store_addresses
from inturn.console.stuck import StuckGroups, stuck
from inturn.console.timeline_events import timeline_events
from inturn.core.errors import GroupMoved, InputError
from inturn.core.pipeline.decision import DecisionAction
from inturn.core.pipeline.decision_service import Precondition
from inturn.core.pipeline.inspection import HeldMessageStatus
from inturn.core.pipeline.selection import DecisionDraft, patterns
from inturn.core.texts import shown

SAMPLE: Final = 10
"""Number of groups named in the preview of a decision about many groups."""
HISTORY: Final = 20
"""Number of past events of each kind on the page of a group."""
LISTED: Final = 100
"""Maximum number of groups with a void decision that a report names."""
BATCH: Final = 1_000_000
"""Maximum number of decisions in a report."""
_OF_ONE: Final = {"failed": ["resume", "drop", "replace", "give-up"], "gap": ["skip", "resume", "give-up"]}
_OF_WAITING: Final = ["skip", "give-up"]


def overview(fields: RequestFields) -> dict[str, Any]:
    """Return the stuck groups of all stores or of one, selected by ``group`` and ``error`` patterns."""
    addresses, unread = ([fields.store_address()], []) if fields.get("store") else store_addresses(fields.stores)

    def summed(address: StoreAddress) -> StuckGroups:
        with address.open() as inspector:
            return stuck(inspector, address.title, group=patterns(fields.get("group")), error=fields.get("error"))

    stores, away = query_all([(address.title, address) for address in addresses], summed)
    chosen = {name: fields.get(name) for name in ("store", "group", "error")}
    return {"stores": stores, "unread": unread + away, "chosen": chosen}


def group(fields: RequestFields) -> dict[str, Any]:
    """Return one group: its status, time line, state, held messages, and decisions that are not applied yet.

    Raises:
        InputError: if the store has no such group.
    """
    address, name = fields.store_address(), fields.need("group")
    with address.open() as inspector:
        status = inspector.group(name)
        held = inspector.held(name)
        actions = _OF_ONE.get(status.status, _OF_WAITING if held else [])
        if inspector.gap(status, held) is None:
            actions = [action for action in actions if action != "skip"]
        return {
            "store": address.title,
            "group": status,
            "held": [
                {"place": inspector.place(message), "since": message.since, "content": message.content}
                for message in held
            ],
            "events": timeline_events(inspector, status, held),
            "said": inspector.explain(name).split("\n", 1)[0].removesuffix(status.error or "").strip(),
            "undecided": inspector.pending_decisions(name),
            "history": inspector.history(name, HISTORY),
            "form": _form(fields, inspector.pipeline, held) if "replace" in actions else [],
            "can_try": bool(fields.definitions),
            "actions": actions,
            "unit": inspector.unit,
            # A viewer, who may not see the whole message, must not get a digest of it either.
            "seen": inspector.subject(status, held).mark if fields.person.may(Role.OPERATOR) else None,
        }


def _form(fields: RequestFields, pipeline: str, held: Sequence[HeldMessageStatus]) -> list[FormField]:
    """Return the inputs for the first held message; none for a viewer, for whom they could show masked fields."""
    if not held or not fields.person.may(Role.OPERATOR):
        return []
    return form(held[0].content, fields.forms.types(fields.definitions, pipeline))


def preview(fields: RequestFields) -> dict[str, Any]:
    """Return the groups that a decision would change, and write nothing.

    Raises:
        InputError: if the action does not exist, or nothing is selected.
    """
    address, action = fields.store_address(), DecisionAction.of(fields.need("action"))
    names, group = _names(fields), fields.fields.get("group")
    with address.open() as decider:
        draft = decider.prepare(action, *names, **_selection(fields), by="")
    seen = fields.previewed.save(address.title, action, draft.marks) if group is None else draft.marks.get(group, "")
    return {
        "store": address.title,
        "action": action,
        "groups": [decision.group for decision in draft.decisions[:SAMPLE]],
        "count": len(draft.decisions),
        "void": draft.void,
        "can_try": bool(fields.definitions),
        "seen": seen,
        "chosen": {name: fields.get(name) for name in ("group", "like", "error", "all")},
    }


def attempt(fields: RequestFields) -> dict[str, Any]:
    """Return the result that a decision would have with the user's handler, and write nothing.

    Raises:
        InputError: if the console has no pipeline definition, or the decision is not valid.
    """
    if not fields.definitions:
        raise InputError("a dry run needs the handler; start the console with --pipeline module:name")
    address, action = fields.store_address(), DecisionAction.of(fields.need("action"))
    content = _content(fields) if action is DecisionAction.REPLACE else None
    chosen = _GroupSelection.from_request(fields, address, action)
    request = DryRunRequest(
        store=address.address,
        definitions=list(fields.definitions),
        action=action,
        names=chosen.names,
        marks=chosen.marks,
        selection=chosen.selection,
        content=content,
        sample=SAMPLE,
        most=MOST,
    )
    answer = dry_run(request)
    old: Any = None
    if content is not None and chosen.names:
        with address.open() as decider:
            head = decider.heads(chosen.names).get(chosen.names[0])
            old = None if head is None else head.content
    return {
        "store": address.title,
        "action": action,
        "group": fields.fields.get("group"),
        "changes": [] if content is None or old is None else differences(old, {**old, **content}),
        "content": content,
        "groups": answer.groups,
        "outcomes": answer.outcomes,
        "trials": [trial | {"changes": differences(trial["state_before"], trial["state"])} for trial in answer.sample],
        "error": answer.error,
        "why": fields.get("why"),
        "by": fields.get("by"),
        "chosen": {name: fields.get(name) for name in ("like", "error", "all", "seen")},
    }


def decide(fields: RequestFields) -> dict[str, str]:
    """Record a decision about one group or all selected groups; return the fields of the page of its outcome.

    Raises:
        InputError: if the user is not named, the content is not a JSON object, or nothing can be decided.
        GroupMoved: if every group has changed since it was shown.
    """
    by = fields.person.name if fields.person.is_known else fields.get("by") or fields.person.name
    if not by:
        raise InputError("the name of the user is missing; enter your name, which is stored with the decision")
    address, action = fields.store_address(), DecisionAction.of(fields.need("action"))
    content, reason = _content(fields) if action is DecisionAction.REPLACE else None, fields.get("why") or ""
    chosen = _GroupSelection.from_request(fields, address, action)
    with address.open() as decider:
        draft = decider.prepare(
            action,
            *chosen.names,
            content=content,
            seen=Precondition.marked(chosen.marks),
            **chosen.selection,
            by=by,
            why=reason,
        )
        if not draft.decisions:
            raise _undecided_error(draft)
        report = decider.record(draft)
    (group, name), *rest = report.pending.items()
    recorded = {"store": address.title, "action": action.value, "first": name, "count": str(1 + len(rest))}
    recorded |= {"left": str(len(draft.moved))} if draft.moved else {}
    return recorded if rest else recorded | {"group": group}


def decided(fields: RequestFields) -> dict[str, Any]:
    """Return the outcome of a decision or of a batch: not applied yet, carried out, or void with the reason.

    Raises:
        InputError: if the action does not exist, the name of the first decision is not valid, or the batch is larger
            than a report can be.
    """
    address, first, count = fields.store_address(), fields.need("first"), fields.number("count", 1)
    action = DecisionAction.of(fields.need("action"))
    if not 1 <= count <= BATCH:
        raise InputError(f"count is {count}; expected 1 to {BATCH:,} decisions")
    with address.open() as decider:
        names = decider.batch(first, count)
        verdicts = decider.verdicts(names)
        voids = Counter(reason for reason in verdicts.values() if reason)
        late = [name for name in names if verdicts.get(name)][:LISTED]
        groups = decider.groups_of(late) if late else {}
        is_followed, takes = decider.may_apply_automatically(), decider.applied_when
    return {
        "store": address.title,
        "action": action,
        "group": fields.get("group"),
        "count": count,
        "done": sum(not reason for reason in verdicts.values()),
        "pending": len(names) - len(verdicts),
        "void": dict(voids.most_common(SAMPLE)),
        "void_groups": [{"group": groups[name], "why": verdicts[name]} for name in late if name in groups],
        "left": fields.number("left", 0),
        "is_followed": is_followed,
        "takes": takes,
    }


def to_json_value(value: Any) -> Any:
    """Return the result of a view as JSON values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json_value(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return to_json_value(value._asdict())
    if isinstance(value, dict):
        return {str(name): to_json_value(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(item) for item in value]
    if isinstance(value, dt.datetime):
        return value.isoformat()
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _undecided_error(draft: DecisionDraft) -> InputError:
    """Return why nothing was decided."""
    lines = [
        reason if group in reason else f"{shown(group)}: {reason}" for group, reason in [*draft.void.items()][:SAMPLE]
    ]
    more = f"; and {len(draft.void) - SAMPLE:,} more groups" if len(draft.void) > SAMPLE else ""
    kind = GroupMoved if draft.moved else InputError
    return kind("; ".join(lines) + more or "no matching group is left; see the stuck groups again")


def _names(fields: RequestFields) -> list[str]:
    """Return the named group, or none."""
    return [fields.need("group")] if "group" in fields.fields else []


def _selection(fields: RequestFields) -> dict[str, Any]:
    """Return the patterns that select groups if none is named."""
    if "group" in fields.fields:
        return {}
    return {"group": fields.get("like"), "error": fields.get("error"), "all": fields.get("all") == "1"}


class _GroupSelection(NamedTuple):
    """The groups that a request selects: by name, by a list that was shown, or by patterns.

    Attributes:
        names: their names; none: the groups that ``selection`` selects.
        marks: the state in which each shown group was seen.
        selection: ``group``, ``error``, ``all``: :class:`~inturn.core.pipeline.decision_service.DecisionArguments`.
    """

    names: list[str]
    marks: dict[str, str]
    selection: dict[str, Any]

    @classmethod
    def from_request(cls, fields: RequestFields, address: StoreAddress, action: DecisionAction) -> "_GroupSelection":
        """Return the groups that a request selects.

        Raises:
            RequestRefused: if the list that was shown is no longer stored, or was empty.
        """
        seen, names = fields.get("seen"), _names(fields)
        if seen is None or names:
            return cls(names, {} if seen is None else dict.fromkeys(names, seen), _selection(fields))
        marks = dict(fields.previewed.marks(seen, address.title, action))
        if not marks:
            raise RequestRefused("the list on your page has no groups; open the list again and decide then", 409)
        return cls(list(marks), marks, {})


def _content(fields: RequestFields) -> dict[str, Any]:
    if content := edited(fields.fields):
        return content
    new = json_value("the new content", fields.need("content"))
    if not isinstance(new, dict):
        raise InputError("the new content is not an object with the message's fields; the message was not changed")
    return new
