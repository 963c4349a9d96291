"""The commands about groups that wait for a person: list, explain, decide."""

import contextlib
import datetime as dt
import getpass
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.table import Table

from inturn.cli.definition import load
from inturn.cli.errors import Commands
from inturn.cli.options import AsJson, GroupName, StoreAt
from inturn.cli.places import look_into
from inturn.cli.texts import cell, line, plain_console, say, say_json
from inturn.core.errors import InputError, StoreConflict
from inturn.core.pipeline.decision import DecisionAction
from inturn.core.pipeline.inspection import as_json as plain
from inturn.core.pipeline.inspection import counted, when

if TYPE_CHECKING:
    from inturn.core.pipeline.fold import Counts
    from inturn.core.pipeline.inspection import Inspector

parked = Commands(help="Groups that are parked or wait: list, show, decide.", no_args_is_help=True)

By = Annotated[str, typer.Option(help="Who decides; default: the user who is logged in.")]
Why = Annotated[str, typer.Option(help="Why, in words; kept with the decision.")]
Revision = Annotated[int | None, typer.Option(help="The message that is meant; default: the first that is held.")]
Id = Annotated[str | None, typer.Option("--id", help="The same by its deduplication id.")]
Definition = Annotated[
    str | None, typer.Option("--pipeline", help="ledger.py:ledger; take the decision now, if nobody is running.")
]
WaitS = Annotated[float, typer.Option("--wait-s", help="How long to wait for who is running to take it, in seconds.")]


@parked.command("list")
def list_(store: StoreAt, as_json: AsJson = False) -> None:
    """List the groups that are parked, given up or waiting, the longest wait first; then failing deliveries."""
    with look_into(store) as look:
        found = sorted(look.parked(), key=lambda each: (str(each.oldest or "~"), each.group))
        counts, strays, failing = look.counts(), look.strays(), list(look.failing())
    for path, why in strays:
        say(f"{line(path)} is passed over: {line(why)}. `inturn parked tidy` moves it aside.", err=True)
    if as_json:
        say_json([*map(plain, found), *map(plain, failing)], default=str)
        return
    table = Table("group", "status", "holds", "since", "error")
    for each in found:
        error = (each.error or "").strip().splitlines()
        since = f"{each.oldest:%Y-%m-%d %H:%M:%S}" if each.oldest else ""
        table.add_row(cell(each.group), each.status, f"{each.held:,}", since, cell(error[-1] if error else ""))
    now = dt.datetime.now(dt.UTC)
    for post in failing:
        why = f"{(post.error.strip().splitlines() or [''])[-1]}; failed {counted(post.attempts, 'time')}"
        next_try = f"tried again {when(post.next_try, now)}"
        table.add_row(cell(post.group), post.status, counted(post.outputs, "output"), "", cell(f"{why}, {next_try}"))
    plain_console().print(table if found or failing else "No group is parked or waits.")
    if counts is not None:
        say(_books(counts))


def _books(counts: "Counts") -> str:
    """Return the counts of all messages in one line."""
    into = {"received": counts.received, "released": counts.released}
    out = {"applied": counts.applied, "duplicate": counts.duplicate, "stale": counts.stale, "held": counts.held}
    out |= {f"rejected as {reason}": count for reason, count in sorted(counts.rejected.items())}
    return " = ".join(" + ".join(f"{count:,} {name}" for name, count in side.items()) for side in (into, out))


@parked.command()
def tidy(store: StoreAt, as_json: AsJson = False) -> None:
    """Move files that lie among the decisions and are none aside, to decisions/aside."""
    with look_into(store) as look:
        moved = look.move_strays()
    if as_json:
        say_json([{"path": path, "why": why} for path, why in moved])
        return
    for path, why in moved:
        say(f"moved {line(path)} to decisions/aside: {line(why)}.")
    if not moved:
        say("All that lies among the decisions is one.")


@parked.command()
def show(store: StoreAt, group: GroupName, as_json: AsJson = False) -> None:
    """Show the messages that a group holds, with their content."""
    with look_into(store) as look:
        standing, held = look.group(group), look.held(group)
        said = look.explain(group)
    if as_json:
        document = plain(standing) | {"messages": [plain(each) for each in held]}
        say_json(document, default=str)
        return
    say(said)
    for each in held:
        say(f"{look.place(each)}: {json.dumps(each.content, default=str, ensure_ascii=False)}")


@parked.command()
def replace(
    store: StoreAt,
    group: GroupName,
    content: Annotated[str, typer.Option(help="The new content as JSON, or @FILE; fields left out stay as they are.")],
    revision: Revision = None,
    id_: Id = None,
    by: By = "",
    why: Why = "",
    pipeline: Definition = None,
    wait_s: WaitS = 10.0,
    as_json: AsJson = False,
) -> None:
    """Give a held message other content; the old one is kept with the decision."""
    text = Path(content[1:]).read_text(encoding="utf-8") if content.startswith("@") else content
    try:
        new = json.loads(text)
    except ValueError as error:
        raise InputError(f"--content {text!r} is not JSON: {error}") from error
    if not isinstance(new, dict):
        raise InputError(f"--content {text!r} is not an object with the message's fields")
    how = How(by, why, pipeline, wait_s, as_json)
    _decide(store, group, DecisionAction.REPLACE, how, revision=revision, message_id=id_, new=new)


@parked.command()
def drop(
    store: StoreAt,
    group: GroupName,
    revision: Revision = None,
    id_: Id = None,
    by: By = "",
    why: Why = "",
    pipeline: Definition = None,
    wait_s: WaitS = 10.0,
    as_json: AsJson = False,
) -> None:
    """Reject the message on which a group is parked, and go on behind it."""
    how = How(by, why, pipeline, wait_s, as_json)
    _decide(store, group, DecisionAction.DROP, how, revision=revision, message_id=id_)


def _simple(action: DecisionAction, text: str) -> None:
    def command(
        store: StoreAt,
        group: GroupName,
        by: By = "",
        why: Why = "",
        pipeline: Definition = None,
        wait_s: WaitS = 10.0,
        as_json: AsJson = False,
    ) -> None:
        how = How(by, why, pipeline, wait_s, as_json)
        _decide(store, group, action, how)

    parked.command(action.value, help=text)(command)


_simple(DecisionAction.SKIP, "Go past the missing revisions in front of what a group holds.")
_simple(DecisionAction.RESUME, "Try a failed group's message again, or let a gap be waited for once more.")
_simple(DecisionAction.GIVE_UP, "Reject what a group holds and all that comes later.")


def explain(store: StoreAt, group: GroupName, as_json: AsJson = False) -> None:
    """Where a group stands, what it waits for and since when, in plain words."""
    with look_into(store) as look:
        said = look.explain(group)
        if as_json:
            refused = None if _is_known(look, group) else look.refused(group)
            standing = plain(look.group(group)) if refused is None else plain(refused) | {"status": "rejected"}
            document = standing | {"explanation": said}
            say_json(document, default=str)
        else:
            say(said)


def _is_known(look: "Inspector", group: str) -> bool:
    with contextlib.suppress(InputError):
        look.group(group)
        return True
    return False


class How(NamedTuple):
    """Options for making and reporting a decision.

    Attributes:
        by: name of the person who decides; empty for the user who is logged in.
        pipeline: location of the definition, to take the decision at once; None leaves it to the running process.
        wait_s: time to wait for the running process.
    """

    by: str
    why: str
    pipeline: str | None
    wait_s: float
    as_json: bool


def _decide(store: str, group: str, action: DecisionAction, how: How, **meant: Any) -> None:
    """Append a decision, and ensure that it is taken: by the running process, or by a step of our own."""
    pipeline, wait_s = how.pipeline, how.wait_s
    with look_into(store) as look:
        decision = look.decision(action, group, by=how.by or getpass.getuser(), why=how.why, **meant)
        name = look.decide(decision)
        verdict = _verdict(look, name, wait_s if look.is_followed() and not _is_in_process(look, pipeline) else 0)
        if verdict is None and pipeline is not None:
            _settle(look, pipeline, store)
            verdict = _verdict(look, name, wait_s)
        takes = look.takes
    if how.as_json:
        taken = {"action": action.value, "group": group, "decision": name, "taken": verdict is not None}
        say_json(taken | {"void": verdict or None})
    elif verdict is None:
        say(f"{action}: recorded as {name}; {takes} (or give --pipeline to take it now).")
    elif verdict:
        say(f"{action}: void, {line(verdict)}")
    else:
        say(f"{action}: done.")
        with look_into(store) as look:
            say(look.explain(group))
    if verdict:
        raise typer.Exit(1)


def _settle(look: "Inspector", pipeline: str, store: str) -> None:
    """Take the decisions that no process has taken."""
    if _is_in_process(look, pipeline):
        from inturn.worker.inspection import settle

        settle(load(pipeline), look)
        return
    from inturn.spark.driver.step import settle as step

    with contextlib.suppress(StoreConflict):  # a stream was first, and took it
        step(load(pipeline), store=store)


def _is_in_process(look: "Inspector", pipeline: str | None) -> bool:
    """Return whether the decision can be taken beside a running process without conflict."""
    return pipeline is not None and look.unit == "turn"


def _verdict(look: "Inspector", name: str, wait_s: float) -> str | None:
    """Return why a decision is void; empty if it was carried out, None if no process took it in time."""
    until = time.monotonic() + wait_s
    while (verdict := look.verdict(name)) is None and time.monotonic() < until:
        time.sleep(0.1)
    return verdict
