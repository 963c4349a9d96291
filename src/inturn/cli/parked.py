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

from inturn.cli.errors import told
from inturn.core.decision import Action
from inturn.core.errors import InputError, StoreConflict

if TYPE_CHECKING:
    from inturn.spark.inspect import Inspector

parked = typer.Typer(help="Groups that are parked or wait: list, show, decide.", no_args_is_help=True)

StoreAt = Annotated[str, typer.Argument(help="The store.")]
GroupName = Annotated[str, typer.Argument(help="The group.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
By = Annotated[str, typer.Option(help="Who decides; default: the user who is logged in.")]
Why = Annotated[str, typer.Option(help="Why, in words; kept with the decision.")]
Revision = Annotated[int | None, typer.Option(help="The message that is meant; default: the first that is held.")]
Id = Annotated[str | None, typer.Option("--id", help="The same by its deduplication id.")]
Definition = Annotated[
    str | None, typer.Option("--pipeline", help="ledger.py:ledger; take the decision now, if no stream is running.")
]
WaitS = Annotated[float, typer.Option("--wait-s", help="How long to wait for a running stream to take it, in seconds.")]


@parked.command("list")
def list_(store: StoreAt, as_json: AsJson = False) -> None:
    """The groups that are parked, given up or waiting, the longest wait first."""
    with told():
        from inturn.spark.inspect import Inspector
        from inturn.spark.inspect import as_json as plain

        found = sorted(Inspector(store).parked(), key=lambda each: (str(each.oldest or "~"), each.group))
        if as_json:
            typer.echo(json.dumps([plain(each) for each in found], default=str, ensure_ascii=False))
            return
        table = Table("group", "status", "holds", "since", "error")
        for each in found:
            error = (each.error or "").strip().splitlines()
            since = f"{each.oldest:%Y-%m-%d %H:%M:%S}" if each.oldest else ""
            table.add_row(each.group, each.status, f"{each.held:,}", since, error[-1] if error else "")
        Console().print(table if found else "No group is parked or waits.")


@parked.command()
def show(store: StoreAt, group: GroupName, as_json: AsJson = False) -> None:
    """The messages that a group holds, with their content."""
    with told():
        from inturn.spark.inspect import Inspector
        from inturn.spark.inspect import as_json as plain

        inspector = Inspector(store)
        standing, held = inspector.group(group), inspector.held(group)
        if as_json:
            document = plain(standing) | {"messages": [plain(each) for each in held]}
            typer.echo(json.dumps(document, default=str, ensure_ascii=False))
            return
        typer.echo(inspector.explain(group))
        for each in held:
            typer.echo(f"{inspector.place(each)}: {json.dumps(each.content, default=str, ensure_ascii=False)}")


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
    with told():
        from inturn.spark.inspect import Inspector

        typer.echo(Inspector(store).explain(group))


def _decide(
    store: str, group: str, action: Action, by: str, why: str, pipeline: str | None, wait_s: float, **meant: Any
) -> None:
    """Append a decision, and see that it is taken: by the stream that is running, or by a step of our own."""
    from inturn.spark.inspect import Inspector

    inspector = Inspector(store)
    decision = inspector.decision(action, group, by=by or getpass.getuser(), why=why, **meant)
    name = inspector.store.decide(decision)
    streaming = bool(inspector.last.batches)
    verdict = _verdict(inspector, name, wait_s if streaming else 0)
    if verdict is None and pipeline is not None:
        from inturn.spark.local.files import load
        from inturn.spark.step import settle

        with contextlib.suppress(StoreConflict):  # a stream was there first, and took it
            settle(load(pipeline), store=store)
        verdict = _verdict(inspector, name, wait_s)
    if verdict is None:
        typer.echo(f"{action}: recorded as {name}; the next step takes it (or give --pipeline to take it now).")
    elif verdict:
        typer.echo(f"{action}: void, {verdict}")
        raise typer.Exit(1)
    else:
        typer.echo(f"{action}: done.")
        typer.echo(Inspector(store).explain(group))


def _verdict(inspector: "Inspector", name: str, wait_s: float) -> str | None:
    """None if no step has taken the decision yet; empty if it was carried out, else why it is void."""
    until = time.monotonic() + wait_s
    while True:
        for manifest in inspector.store.after(inspector.last.step):
            for taken in manifest.decisions:
                if taken.name == name:
                    return taken.void or ""
        if time.monotonic() >= until:
            return None
        time.sleep(0.3)
