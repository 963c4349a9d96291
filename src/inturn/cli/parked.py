"""The commands about groups that wait for a person: what is parked, why, and what is to be done about it."""

import contextlib
import getpass
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from inturn.cli.definition import load
from inturn.cli.errors import told
from inturn.core.address import is_address, shown
from inturn.core.decision import Action
from inturn.core.errors import InputError, StoreConflict
from inturn.core.standing import as_json as plain

if TYPE_CHECKING:
    from inturn.core.fold import Counts
    from inturn.core.standing import Look

parked = typer.Typer(help="Groups that are parked or wait: list, show, decide.", no_args_is_help=True)

StoreAt = Annotated[
    str,
    typer.Argument(
        help="The store: a directory, or DATABASE#PIPELINE, such as shop.db#ledger or postgresql://…#ledger."
    ),
]
GroupName = Annotated[str, typer.Argument(help="The group.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
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
    """The groups that are parked, given up or waiting, the longest wait first."""
    with told():
        with look_into(store) as look:
            found = sorted(look.parked(), key=lambda each: (str(each.oldest or "~"), each.group))
            counts = look.counts()
        if as_json:
            typer.echo(json.dumps([plain(each) for each in found], default=str, ensure_ascii=False))
            return
        table = Table("group", "status", "holds", "since", "error")
        for each in found:
            error = (each.error or "").strip().splitlines()
            since = f"{each.oldest:%Y-%m-%d %H:%M:%S}" if each.oldest else ""
            table.add_row(each.group, each.status, f"{each.held:,}", since, error[-1] if error else "")
        Console().print(table if found else "No group is parked or waits.")
        if counts is not None:
            typer.echo(_books(counts))


def _books(counts: "Counts") -> str:
    """Where all messages went, in a line."""
    into = {"received": counts.received, "released": counts.released}
    out = {"applied": counts.applied, "duplicate": counts.duplicate, "stale": counts.stale, "held": counts.held}
    out |= {f"rejected as {reason}": count for reason, count in sorted(counts.rejected.items())}
    return " = ".join(" + ".join(f"{count:,} {name}" for name, count in side.items()) for side in (into, out))


@parked.command()
def show(store: StoreAt, group: GroupName, as_json: AsJson = False) -> None:
    """The messages that a group holds, with their content."""
    with told():
        with look_into(store) as look:
            standing, held = look.group(group), look.held(group)
            said = look.explain(group)
        if as_json:
            document = plain(standing) | {"messages": [plain(each) for each in held]}
            typer.echo(json.dumps(document, default=str, ensure_ascii=False))
            return
        typer.echo(said)
        for each in held:
            typer.echo(f"{look.place(each)}: {json.dumps(each.content, default=str, ensure_ascii=False)}")


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
) -> None:
    """Give a held message other content; the old one is kept with the decision."""
    with told():
        text = Path(content[1:]).read_text(encoding="utf-8") if content.startswith("@") else content
        try:
            new = json.loads(text)
        except ValueError as error:
            msg = f"--content {text!r} is not JSON: {error}"
            raise InputError(msg) from error
        if not isinstance(new, dict):
            msg = f"--content {text!r} is not an object with the message's fields"
            raise InputError(msg)
        _decide(store, group, Action.REPLACE, by, why, pipeline, wait_s, revision=revision, message_id=id_, new=new)


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
) -> None:
    """Reject the message on which a group is parked, and go on behind it."""
    with told():
        _decide(store, group, Action.DROP, by, why, pipeline, wait_s, revision=revision, message_id=id_)


def _simple(action: Action, text: str) -> None:
    def command(
        store: StoreAt,
        group: GroupName,
        by: By = "",
        why: Why = "",
        pipeline: Definition = None,
        wait_s: WaitS = 10.0,
    ) -> None:
        with told():
            _decide(store, group, action, by, why, pipeline, wait_s)

    parked.command(action.value, help=text)(command)


_simple(Action.SKIP, "Go past the missing revisions in front of what a group holds.")
_simple(Action.RESUME, "Try a failed group's message again, or let a gap be waited for once more.")
_simple(Action.GIVE_UP, "Reject what a group holds and all that comes later.")


def explain(store: StoreAt, group: GroupName) -> None:
    """Where a group stands, what it waits for and since when, in plain words."""
    with told(), look_into(store) as look:
        typer.echo(look.explain(group))


def look_into(store: str) -> "Look":
    """A look into a store: a directory or a URI that Spark writes, or ``shop.db#ledger``.

    Raises:
        StoreError: if there is no store.
    """
    path, _, name = store.rpartition("#")
    if path and not Path(store).is_dir():
        from inturn.worker.look import look

        return look(path, name)
    if is_address(store):
        msg = f"{shown(store)} names no pipeline: write {shown(store)}#PIPELINE"
        raise InputError(msg)
    from inturn.spark.inspect import Inspector

    return Inspector(store)


def _decide(
    store: str, group: str, action: Action, by: str, why: str, pipeline: str | None, wait_s: float, **meant: Any
) -> None:
    """Append a decision, and see that it is taken: by who is running, or by a step of our own."""
    with look_into(store) as look:
        decision = look.decision(action, group, by=by or getpass.getuser(), why=why, **meant)
        name = look.decide(decision)
        verdict = _verdict(look, name, wait_s if look.is_followed() and not _is_in_process(look, pipeline) else 0)
        if verdict is None and pipeline is not None:
            _settle(look, pipeline, store)
            verdict = _verdict(look, name, wait_s)
        takes = look.takes
    if verdict is None:
        typer.echo(f"{action}: recorded as {name}; {takes} (or give --pipeline to take it now).")
    elif verdict:
        typer.echo(f"{action}: void, {verdict}")
        raise typer.Exit(1)
    else:
        typer.echo(f"{action}: done.")
        with look_into(store) as look:
            typer.echo(look.explain(group))


def _settle(look: "Look", pipeline: str, store: str) -> None:
    """Take the decisions that nobody has taken."""
    if _is_in_process(look, pipeline):
        from inturn.worker.look import settle

        settle(load(pipeline), look)
        return
    from inturn.spark.step import settle as step

    with contextlib.suppress(StoreConflict):  # a stream was there first, and took it
        step(load(pipeline), store=store)


def _is_in_process(look: "Look", pipeline: str | None) -> bool:
    """Whether the decision can be taken beside who is running, without any conflict."""
    return pipeline is not None and look.unit == "turn"


def _verdict(look: "Look", name: str, wait_s: float) -> str | None:
    """None if nobody has taken the decision in that time; empty if it was carried out, else why it is void."""
    until = time.monotonic() + wait_s
    while (verdict := look.verdict(name)) is None and time.monotonic() < until:
        time.sleep(0.1)
    return verdict
