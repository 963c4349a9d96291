"""The commands that copy a database while it is in use, and restore a copy."""

from typing import Annotated

import typer

from inturn.cli.options import AsJson
from inturn.cli.places import check_no_directory, opened
from inturn.cli.texts import line, say, say_json
from inturn.core.address import is_address
from inturn.core.errors import InputError
from inturn.core.words import counted

_SERVER = (
    "a database of PostgreSQL is put back by pg_restore, or by the server's own backups; who opens it then is a new "
    "incarnation by itself, so what was remembered of messages after the copy is refused"
)


def backup(
    database: Annotated[str, typer.Argument(metavar="DATABASE", help="The file, such as shop.db.")],
    copy: Annotated[str, typer.Argument(metavar="COPY", help="The file that is to be made.")],
    as_json: AsJson = False,
) -> None:
    """Copy a database while it is in use, as it is at one moment; cp of an open file loses data."""
    with opened(database) as db:
        db.backup(copy)
        there = db.queues()
    if as_json:
        say_json({"copy": copy, "queues": there})
    else:
        say(f"{line(copy)} has all of {line(database)}: {counted(len(there), 'queue')}")


def restore(
    copy: Annotated[str, typer.Argument(metavar="COPY", help="The copy, which stays as it is.")],
    database: Annotated[str, typer.Argument(metavar="DATABASE", help="The file that it becomes.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a file that is there; it is kept beside.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Put a copy in the place of a database that nobody has open, as a new incarnation.

    Checkpoints and readers that remember messages after the copy are refused from then on, whatever comes.
    """
    if is_address(copy) or is_address(database):
        raise InputError(_SERVER)
    for each in (copy, database):
        check_no_directory(each)
    from inturn.store.sqlite.backup import restore as put_back

    numbers, aside = put_back(copy, database, replace=replace)
    if as_json:
        say_json({"database": database, "queues": numbers, "replaced": aside})
        return
    say(f"{line(database)} is {line(copy)} again, as a new incarnation: {len(numbers)} queues")
    if aside:
        say(f"what was there is {line(aside)}")
    say("A checkpoint that has read more than the copy has is refused; start its query with a new one.")
