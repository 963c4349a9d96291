"""Commands that copy a database while it is in use, and restore a copy."""

from pathlib import Path
from typing import Annotated

import typer

from inturn.cli.options import AsJson
from inturn.cli.output import one_line, print_json, print_text
from inturn.cli.targets import check_no_directory, nearby_databases, opened_database
from inturn.core.address import is_address
from inturn.core.errors import InputError, NoSuchDatabase
from inturn.core.words import counted

_SERVER = (
    "restore a PostgreSQL database with pg_restore or the server's own backups; it then automatically becomes a new "
    "incarnation, and positions after the backup are refused"
)


def backup(
    database: Annotated[str, typer.Argument(metavar="DATABASE", help="Database file, such as shop.db.")],
    copy: Annotated[str, typer.Argument(metavar="COPY", help="Backup file to create.")],
    as_json: AsJson = False,
) -> None:
    """Copy a database consistently while it is in use (cp of an open file loses data)."""
    with opened_database(database) as db:
        db.backup(copy)
        queues = db.queues()
    if as_json:
        print_json({"copy": copy, "queues": queues})
    else:
        print_text(f"{one_line(database)} was copied to {one_line(copy)}: {counted(len(queues), 'queue')}")


def restore(
    copy: Annotated[str, typer.Argument(metavar="COPY", help="Backup file (not modified).")],
    database: Annotated[str, typer.Argument(metavar="DATABASE", help="Database file to restore.")],
    replace: Annotated[bool, "Replace an existing file; the old one is kept under another name."] = False,
    as_json: AsJson = False,
) -> None:
    """Restore a database from a copy, as a new incarnation; no process may have the database open.

    Afterwards, checkpoints and readers that had read past the time of the copy are refused.
    """
    if is_address(copy) or is_address(database):
        raise InputError(_SERVER)
    for path in (copy, database):
        check_no_directory(path)
    if not Path(copy).is_file():
        raise NoSuchDatabase(f"no backup file {copy!r}; {nearby_databases(copy)}")
    from inturn.store.sqlite.backup import restore as put_back

    numbers, aside = put_back(copy, database, replace=replace)
    if as_json:
        print_json({"database": database, "queues": numbers, "replaced": aside})
        return
    print_text(
        f"{one_line(database)} was restored from {one_line(copy)}, "
        f"as a new incarnation: {counted(len(numbers), 'queue')}"
    )
    if aside:
        print_text(f"the previous database is kept as {one_line(aside)}")
    print_text("A checkpoint whose position is after the copy is refused; start its query with a new checkpoint.")
