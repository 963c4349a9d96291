"""The commands about groups of a queue: park, resume one or many, and list where they stand."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from inturn.cli.options import All, AsJson, ErrorLike, GroupLike, GroupName, Groups, YesToMany, check_selects
from inturn.cli.places import queue_at
from inturn.cli.queue import Limit, QueueAt, clock_time, duration, iso, queue
from inturn.cli.texts import cell, confirm, line, plain_console, say, say_each, say_json
from inturn.core.address import shown
from inturn.core.pipeline.selection import Selection
from inturn.core.queue.messages import GroupView, Why
from inturn.core.queue.sessions import ParkedGroup
from inturn.core.words import counted
from inturn.queue import Queue

_AT_ONCE = 100
"""The number of groups that are resumed in one transaction: others wait for its end."""
_PAGE = 1_000


@queue.command()
def park(
    at: QueueAt,
    group: GroupName,
    reason: Annotated[str, typer.Argument(help="Why; it is shown by 'groups' and 'queue show'.")],
    as_json: AsJson = False,
) -> None:
    """Let nobody have a group until it is resumed; its messages stay in their order."""
    with queue_at(at) as there:
        there.park(group, reason)
    if as_json:
        say_json({"group": group, "parked": True})
        return
    say(f"{line(group)} is parked; to let it go on: inturn queue resume {shown(at)} {line(group)}")


@queue.command()
def resume(
    at: QueueAt,
    groups: Groups = None,
    every: All = False,
    error: ErrorLike = None,
    group: GroupLike = None,
    yes: YesToMany = False,
    as_json: AsJson = False,
) -> None:
    """Let parked groups go on, each in its order; one group, or many."""
    check_selects(groups, group, error, every=every)
    selection = Selection(tuple(groups or ()), tuple(group or ()), error, is_all=every)
    with queue_at(at) as there:
        if len(selection.names) == 1:
            _resume_one(there, selection.names[0], as_json=as_json)
        else:
            _resume_many(there, shown(at), selection, yes=yes, as_json=as_json)


def _resume_one(there: Queue, group: str, *, as_json: bool) -> None:
    was_parked = there.resume(group)
    if as_json:
        say_json({"group": group, "was_parked": was_parked})
    else:
        say(f"{line(group)} goes on." if was_parked else f"{line(group)} is not parked.")


def _resume_many(there: Queue, at: str, selection: Selection, *, yes: bool, as_json: bool) -> None:
    """Resume the groups that are parked now as they were found, and report which ones.

    One that somebody resumes or parks again meanwhile, as while a question is answered, stays as it is.
    """
    names = set(selection.names)
    found = [
        each._replace(note="")  # a traceback, of each of many groups
        for each in _parked(there)
        if (each.group in names if names else selection.matches(each.group, each.note))
    ]
    asks = not (names or yes or len(found) < 2)
    confirm(f"resume: {counted(len(found), 'group')} of {at}", asks=asks, as_json=as_json)
    done: list[str] = []
    for begin in range(0, len(found), _AT_ONCE):
        done += there.resume_many(found[begin : begin + _AT_ONCE])
    listed = dict.fromkeys(each.group for each in found)
    void = dict.fromkeys(sorted(names - listed.keys()), "it is not parked")
    void |= dict.fromkeys(sorted(listed.keys() - {*done}), "somebody has resumed it, or parked it again")
    if as_json:
        say_json({"action": "resume", "done": done, "void": void})
    else:
        say(f"resume: {len(done):,} done, {len(void):,} void.")
        say_each("void", void)
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
    names: Annotated[list[str] | None, typer.Argument(help="These groups only.")] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """Where groups stand: how much they have, how old the first is, who holds it, why it is not given out.

    Those whose first message was sent first come first. A message without a group is a line of its own.
    """
    with queue_at(at) as there:
        found = there.groups(*names or (), limit=limit)
        now_ms = there.writer.clock()
    if as_json:
        say_json([_group_document(each, now_ms) for each in found])
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
        say(f"{line(name)}: no messages", err=True)
    if len(found) == limit and not names:
        say(f"The first {limit:,}; --limit shows more.", err=True)


def _why(each: GroupView) -> str:
    until = "" if each.until_ms is None else f" until {clock_time(each.until_ms)}"
    because = "" if each.note is None else f": {line(each.note)}"
    return f"{each.why.name.lower().replace('_', ' ')}{until}{because}"


def _group_document(each: GroupView, now_ms: int) -> dict[str, Any]:
    return {
        "group": each.group,
        "messages": each.depth,
        "head": each.head,
        "head_sent_at": iso(each.head_sent_ms),
        "age_s": max(0, now_ms - each.head_sent_ms) / 1000,
        "why": Why(each.why).name.lower(),
        "until": None if each.until_ms is None else iso(each.until_ms),
        "fencing_token": each.token,
        "attempts": each.attempts,
        "note": each.note,
    }
