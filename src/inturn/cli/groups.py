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
    with queue_at(at) as opened:
        opened.park(group, reason)
    if as_json:
        print_json({"group": group, "parked": True})
        return
    print_text(f"{one_line(group)} is parked; resume it with: inturn queue resume {shown(at)} {one_line(group)}")


@queue.command()
def resume(at: QueueAt, group_options: GroupOptions, yes: Yes = False, as_json: AsJson = False) -> None:
    """Resume the delivery of parked groups, of one or many."""
    selection = group_options.selection
    with queue_at(at) as opened:
        if len(selection.names) == 1:
            _resume_one(opened, selection.names[0], as_json=as_json)
        else:
            _resume_many(opened, shown(at), selection, yes=yes, as_json=as_json)


def _resume_one(opened: Queue, group: str, *, as_json: bool) -> None:
    was_parked = opened.resume(group)
    if as_json:
        print_json({"group": group, "was_parked": was_parked})
    else:
        print_text(f"{one_line(group)} was resumed." if was_parked else f"{one_line(group)} is not parked.")


def _resume_many(opened: Queue, target: str, selection: Selection, *, yes: bool, as_json: bool) -> None:
    """Resume the groups that are parked now, and report which ones.

    A group that another process resumes or parks again meanwhile, such as during a question, is not changed.
    """
    names = set(selection.names)
    parked = [
        parked_group._replace(note="")  # it may be a long traceback
        for parked_group in _parked(opened)
        if (parked_group.group in names if names else selection.matches(parked_group.group, parked_group.note))
    ]
    asks = not (names or yes or len(parked) < 2)
    confirm(f"resume: {counted(len(parked), 'group')} of {target}", asks=asks, as_json=as_json)
    done: list[str] = []
    for begin in range(0, len(parked), _AT_ONCE):
        done += opened.resume_many(parked[begin : begin + _AT_ONCE])
    listed = dict.fromkeys(parked_group.group for parked_group in parked)
    void = dict.fromkeys(sorted(names - listed.keys()), "not parked")
    void |= dict.fromkeys(sorted(listed.keys() - {*done}), "resumed or parked again by another process meanwhile")
    if as_json:
        print_json({"action": "resume", "done": done, "void": void})
    else:
        print_text(f"resume: {len(done):,} done, {len(void):,} void.")
        print_reasons("void", void)
    if void:
        raise typer.Exit(1)


def _parked(opened: Queue) -> Iterator[ParkedGroup]:
    """Yield all parked groups, in pages."""
    after = None
    while page := opened.parked(_PAGE, after=after):
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
    with queue_at(at) as opened:
        views = opened.groups(*names or (), limit=limit)
        now_ms = opened.writer.clock()
    if as_json:
        print_json([_group_document(view, now_ms) for view in views])
        return
    table = Table("group", "messages", "first", "age", "attempts", "token", "state", box=None, pad_edge=False)
    for column in table.columns[1:6]:
        column.justify = "right"
    for view in views:
        age = duration((now_ms - view.head_sent_ms) / 1000)
        token = "" if view.token is None else str(view.token)
        group = Text("none", "dim") if view.group is None else cell(view.group)
        table.add_row(group, f"{view.depth:,}", str(view.head), age, str(view.attempts), token, cell(_why(view)))
    plain_console().print(table if views else "No group has messages.")
    for name in sorted({*(names or ())} - {view.group for view in views}):
        print_text(f"{one_line(name)}: no messages", err=True)
    if len(views) == limit and not names:
        print_text(f"Shown: the first {limit:,} groups; use --limit for more.", err=True)


def _why(view: GroupView) -> str:
    until = "" if view.until_ms is None else f" until {clock_time(view.until_ms)}"
    note = "" if view.note is None else f": {one_line(view.note)}"
    return f"{view.availability.name.lower().replace('_', ' ')}{until}{note}"


def _group_document(view: GroupView, now_ms: int) -> dict[str, Any]:
    return {
        "group": view.group,
        "messages": view.depth,
        "head": view.head,
        "head_sent_at": iso(view.head_sent_ms),
        "age_s": max(0, now_ms - view.head_sent_ms) / 1000,
        "why": GroupAvailability(view.availability).name.lower(),
        "until": None if view.until_ms is None else iso(view.until_ms),
        "fencing_token": view.token,
        "attempts": view.attempts,
        "note": view.note,
    }
