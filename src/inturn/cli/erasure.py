"""The command that removes all content of a group."""

import getpass
from typing import Annotated

import typer

from inturn.cli.options import AsJson, GroupName
from inturn.cli.places import check_store, is_store, opened, parts
from inturn.cli.texts import confirm_loss, line, say, say_json
from inturn.core.address import shown
from inturn.core.errors import InputError
from inturn.core.words import counted


def forget(
    store: Annotated[
        str, typer.Argument(metavar="STORE", help="The database, such as shop.db; or what Spark writes, out/ledger.")
    ],
    group: GroupName,
    why: Annotated[str, typer.Option(help="The reason, which is kept; without content of the group.")] = "",
    by: Annotated[str | None, typer.Option(help="Who decided; default: the user's name.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove all content of a group from a database or a store, and its files; the decision is kept.

    Messages, log, state, held and rejected messages and outputs go, in all queues and pipelines. Pipelines give the
    group up. The files are rewritten, and others wait meanwhile. If it is interrupted, run it again. Backups are yours.
    """
    by = by or getpass.getuser()
    path, name = parts(store)
    if not name and is_store(store):
        _forget_in_store(store, group, by=by, why=why, yes=yes, as_json=as_json)
        return
    if name:
        raise InputError(
            f"{shown(store)!r} names a queue or a pipeline, and a group is forgotten in all of them: "
            f"'inturn forget {shown(path)} {line(group)}'"
        )
    with opened(path) as db:
        _confirm(group, path, yes=yes, as_json=as_json)
        from inturn.erasure import forget as forget_group

        done = forget_group(db, group, by=by, why=why)
    if as_json:
        say_json({"group": group, "messages": done.messages, "pipelines": done.pipelines})
        return
    total = sum(done.messages.values())
    where = f" of {counted(len(done.messages), 'queue')}" if done.messages else ""
    say(f"{counted(total, 'message')}{where} {'was' if total == 1 else 'were'} removed.")
    for each in done.pipelines:
        say(f"Pipeline {line(each)} has given the group up.")


def _forget_in_store(store: str, group: str, *, by: str, why: str, yes: bool, as_json: bool) -> None:
    check_store(store)
    _confirm(group, store, yes=yes, as_json=as_json)
    from inturn.erasure import forget_in_store

    done = forget_in_store(store, group, by=by, why=why)
    if as_json:
        say_json({"group": group, **done._asdict()})
        return
    gone = [(done.outputs, "output"), (done.rejected, "rejected message"), (done.held, "held message")]
    say(f"Removed: {', '.join(counted(count, what) for count, what in gone)}.")
    say("The store has given the group up." if done.is_known else "The store does not know the group.")


def _confirm(group: str, place: str, *, yes: bool, as_json: bool) -> None:
    confirm_loss(f"Remove all content of {group} from {shown(place)}, for ever?", yes=yes, as_json=as_json)
