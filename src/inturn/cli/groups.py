"""Commands about groups of a queue: park, resume one or many, and list their status."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from inturn.cli.options import AsJson, GroupName, GroupOptions, Limit, QueueAt, Yes
from inturn.cli.output import cell, confirm, one_line, plain_console, print_json, print_reasons, print_text
from inturn.cli.queue import clock_time, duration, iso, queue
from inturn.cli.targets import queue_at
from inturn.core.address import shown
from inturn.core.pipeline.selection import Selection
from inturn.core.queue.messages import GroupAvailability, GroupView
from inturn.core.queue.sessions import ParkedGroup
from inturn.core.words import counted
from inturn.queue import Queue

_AT_ONCE = 100
"""The number of groups that are resumed in one transaction; other writers wait for its end."""
_PAGE = 1_000


@queue.command()
def park(
    at: QueueAt,
    group: GroupName,
    reason: Annotated[str, typer.Argument(help="Reason, shown by 'inturn groups' and 'inturn queue show'.")],
    as_json: AsJson = False,
) -> None:
    """Stop the delivery of a group until it is resumed; its messages keep their order."""
    with queue_at(at) as there:
        there.park(group, reason)
    if as_json:
        print_json({"group": group, "parked": True})
        return
    print_text(f"{one_line(group)} is parked; resume it with: inturn queue resume {shown(at)} {one_line(group)}")


@queue.command()
def resume(at: QueueAt, group_options: GroupOptions, yes: Yes = False, as_json: AsJson = False) -> None:
    """Resume the delivery of parked groups, of one or many."""
    selection = group_options.selection
    with queue_at(at) as there:
        if len(selection.names) == 1:
            _resume_one(there, selection.names[0], as_json=as_json)
        else:
            _resume_many(there, shown(at), selection, yes=yes, as_json=as_json)


def _resume_one(there: Queue, group: str, *, as_json: bool) -> None:
    was_parked = there.resume(group)
    if as_json:
        print_json({"group": group, "was_parked": was_parked})
    else:
        print_text(f"{one_line(group)} was resumed." if was_parked else f"{one_line(group)} is not parked.")


def _resume_many(there: Queue, at: str, selection: Selection, *, yes: bool, as_json: bool) -> None:
    """Resume the groups that are parked now, and report which ones.

    A group that another process resumes or parks again meanwhile, such as during a question, is not changed.
    """
    names = set(selection.names)
    found = [
        each._replace(note="")  # it may be a long traceback
        for each in _parked(there)
        if (each.group in names if names else selection.matches(each.group, each.note))
    ]
    asks = not (names or yes or len(found) < 2)
    confirm(f"resume: {counted(len(found), 'group')} of {at}", asks=asks, as_json=as_json)
    done: list[str] = []
    for begin in range(0, len(found), _AT_ONCE):
        done += there.resume_many(found[begin : begin + _AT_ONCE])
    listed = dict.fromkeys(each.group for each in found)
    void = dict.fromkeys(sorted(names - listed.keys()), "not parked")
    void |= dict.fromkeys(sorted(listed.keys() - {*done}), "resumed or parked again by another process meanwhile")
    if as_json:
        print_json({"action": "resume", "done": done, "void": void})
    else:
        print_text(f"resume: {len(done):,} done, {len(void):,} void.")
        print_reasons("void", void)
    if void:
        raise typer.Exit(1)


def _parked(there: Queue) -> Iterator[ParkedGroup]:
    """Yield all parked groups, in pages."""
    after = None
    while page := there.parked(_PAGE, after=after):
        yield from page
        after = page[-1]


def groups(
    at: QueueAt,
    names: Annotated[list[str] | None, typer.Argument(help="Show only these groups.")] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """Show the status of the groups of a queue: messages, age and holder of the first one, and why it waits.

    Groups are sorted by the age of their first message, oldest first. A message without a group has its own row.
    """
    with queue_at(at) as there:
        found = there.groups(*names or (), limit=limit)
        now_ms = there.writer.clock()
    if as_json:
        print_json([_group_document(each, now_ms) for each in found])
        return
    table = Table("group", "messages", "first", "age", "attempts", "token", "state", box=None, pad_edge=False)
    for column in table.columns[1:6]:
        column.justify = "right"
    for each in found:
        age = duration((now_ms - each.head_sent_ms) / 1000)
        token = "" if each.token is None else str(each.token)
        group = Text("none", "dim") if each.group is None else cell(each.group)
        table.add_row(group, f"{each.depth:,}", str(each.head), age, str(each.attempts), token, cell(_why(each)))
    plain_console().print(table if found else "No group has messages.")
    for name in sorted({*(names or ())} - {each.group for each in found}):
        print_text(f"{one_line(name)}: no messages", err=True)
    if len(found) == limit and not names:
        print_text(f"Shown: the first {limit:,} groups; use --limit for more.", err=True)


def _why(each: GroupView) -> str:
    until = "" if each.until_ms is None else f" until {clock_time(each.until_ms)}"
    note = "" if each.note is None else f": {one_line(each.note)}"
    return f"{each.availability.name.lower().replace('_', ' ')}{until}{note}"


def _group_document(each: GroupView, now_ms: int) -> dict[str, Any]:
    return {
        "group": each.group,
        "messages": each.depth,
        "head": each.head,
        "head_sent_at": iso(each.head_sent_ms),
        "age_s": max(0, now_ms - each.head_sent_ms) / 1000,
        "why": GroupAvailability(each.availability).name.lower(),
        "until": None if each.until_ms is None else iso(each.until_ms),
        "fencing_token": each.token,
        "attempts": each.attempts,
        "note": each.note,
    }
