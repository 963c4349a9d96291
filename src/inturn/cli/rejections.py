"""The commands about records that could not become messages: show, send again, remove."""

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inturn.cli.options import AsJson
from inturn.cli.places import opened, parts
from inturn.cli.texts import confirm_loss, line, progress, say, say_json
from inturn.core.address import is_address, shown
from inturn.core.errors import InputError
from inturn.core.words import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inturn.database import Database
    from inturn.ingest import IntakeRule, ResendPreview, SourceControl
    from inturn.store.sources import RejectedPlace, RejectedRecord

SourceAt = Annotated[str, typer.Argument(help="The source: DATABASE#SOURCE, such as shop.db#bank.")]
Config = Annotated[
    Path,
    typer.Argument(help="The TOML file with the mended mapping: of the sources, or the server's with its webhooks."),
]
Numbers = Annotated[
    list[int] | None, typer.Option("--number", help="The record of this number, as rejected shows it; can be repeated.")
]
FromPartitions = Annotated[
    list[str] | None, typer.Option("--partition", help="The records from this partition; can be repeated.")
]
Every = Annotated[bool, typer.Option("--all", help="All rejected records of the source.")]


def split_source(at: str, noun: str = "source", such_as: str = "bank") -> tuple[str, str]:
    """Return the database and the source, or another thing in it, that an argument names.

    Raises:
        InputError: if one of them is missing.
    """
    path, name = parts(at)
    if not path or not name:
        raise InputError(f"{shown(at)!r} names no {noun}: write DATABASE#{noun.upper()}, such as shop.db#{such_as}")
    return path, name


def rejected(
    source: SourceAt,
    limit: Annotated[int, typer.Option(help="The number of records that are shown.", min=1)] = 100,
    as_json: AsJson = False,
) -> None:
    """Show the records that could not become messages, with the reason.

    In JSON, key_base64 and body_base64 have the bytes; key and body have the text, or null if they are not UTF-8.
    """
    from inturn.ingest import SourceControl

    path, name = split_source(source)
    with opened(path) as db:
        _check_known(db, path, name)
        found = list(SourceControl(db, name).rejected(limit))
    for each in found:
        if as_json:
            document = {key: value for key, value in each._asdict().items() if key != "exact"}
            say_json(document | _texts("key", each.key) | _texts("body", each.body))
        else:
            body = (each.body or b"").decode(errors="backslashreplace")
            say(f"{_place(each)}: {line(each.reason)}: {line(body)}")


def _place(each: "RejectedRecord | ResendPreview") -> str:
    """Return the number and the place of a rejected record; a webhook's request has no position."""
    position = "" if each.position == "null" else f" {line(each.position)}"
    return f"{each.number} {line(each.partition)}{position}"


def _texts(name: str, data: bytes | None) -> dict[str, str | None]:
    """Return bytes as text, if they are UTF-8, and as base64."""
    if data is None:
        return {name: None, f"{name}_base64": None}
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = None
    return {name: text, f"{name}_base64": base64.b64encode(data).decode()}


def resend(
    source: SourceAt,
    config: Config,
    number: Numbers = None,
    partition: FromPartitions = None,
    every: Every = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be sent and what would stay; change nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Map rejected records again with a mended mapping, and send those that can be mapped now, each once.

    Those that still cannot be mapped stay, with their new reason. It may be interrupted and begun again. A running
    'inturn ingest run' has its old mapping until it is started again.
    """
    from inturn.ingest import SourceControl

    path, name = split_source(source)
    intake = _intake(config, path, name)
    with opened(path) as db:
        control = SourceControl(db, name)
        which, places = _selected(control, number, partition, every=every)
        if dry_run:
            _show_preview(control, intake, which, as_json=as_json)
            return
        with progress("resend", len(places), quiet=as_json) as advance:
            counts = control.resend(intake, numbers=which, advance=advance)
    if as_json:
        say_json({"source": name, "action": "resend", **counts._asdict()})
        return
    others = {name: count for name, count in counts._asdict().items() if count and name not in ("sent", "stayed")}
    more = "".join(f", {count:,} {name}" for name, count in others.items())
    say(f"resend: {counted(counts.sent, 'record')} of {line(name)} sent{more}; {counts.stayed:,} stay rejected.")


def _show_preview(control: "SourceControl", intake: "IntakeRule", which: set[int], *, as_json: bool) -> None:
    sent = stay = 0
    for each in control.preview(intake, numbers=which):
        sent += each.outcome == "send"
        stay += each.outcome == "stay"
        if as_json:
            say_json(each._asdict())
            continue
        said = each.reason or f"group {each.group}, revision {each.revision}, id {each.id}"
        what = each.outcome if each.outcome == "ignored" else f"{each.outcome}: {line(said)}"
        say(f"{_place(each)}: {what}")
    if not as_json:
        say(f"resend, dry run: {counted(sent, 'record')} would be sent, {stay:,} would stay. Nothing was written.")


def purge(
    source: SourceAt,
    number: Numbers = None,
    partition: FromPartitions = None,
    every: Every = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be removed; change nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove rejected records, for good. Of RabbitMQ, SQS and webhooks they are the only copy."""
    from inturn.ingest import SourceControl

    path, name = split_source(source)
    with opened(path) as db:
        _check_known(db, path, name)
        control = SourceControl(db, name)
        which, places = _selected(control, number, partition, every=every)
        what = f"{counted(len(places), 'rejected record')} of {line(name)}"
        size = sum(each.size for each in places)
        if dry_run:
            if as_json:
                say_json({"source": name, "action": "purge", "would_remove": len(places), "bytes": size})
            else:
                say(f"purge, dry run: {what}, {counted(size, 'byte')}, would be removed. Nothing was written.")
            return
        confirm_loss(f"Remove {what}, for good?", yes=yes, as_json=as_json)
        with progress("purge", len(places), quiet=as_json) as advance:
            removed = control.purge(numbers=which, advance=advance)
    if as_json:
        say_json({"source": name, "action": "purge", "removed": removed})
    else:
        say(f"purge: {counted(removed, 'rejected record')} of {line(name)} removed.")


def _check_known(db: "Database", path: str, name: str) -> None:
    """Check that there is a source or a webhook; of a webhook, a database knows the rejected requests alone.

    Raises:
        InputError: if there is none.
    """
    from inturn.ingest import rejecting_names, source_names

    known = sorted({*source_names(db), *rejecting_names(db)})
    if name not in known:
        there = ", ".join(known) or "none"
        raise InputError(
            f"{shown(path)} has no source {name!r}, nor requests that such a webhook rejected; it has: {there}"
        )


def _selected(
    control: "SourceControl", numbers: list[int] | None, partitions: list[str] | None, *, every: bool
) -> "tuple[set[int], Sequence[RejectedPlace]]":
    """Return the numbers of the selected records, so that those that come meanwhile are left alone, and their places.

    Raises:
        InputError: if the options select nothing, or contradict each other, or name a partition that is not there.
    """
    if every == bool(numbers or partitions):
        raise InputError("select records by --number or --partition, or give --all alone")
    places = control.selected(numbers=frozenset(numbers or ()), partitions=frozenset(partitions or ()))
    if set(partitions or ()) - {each.partition for each in places}:  # none of its records is selected, or it is unknown
        known = {each.name for each in control.partitions()} | {each.partition for each in control.selected()}
        if missing := sorted(set(partitions or ()) - known):
            raise InputError(f"there is no partition {missing[0]!r}; there are: {', '.join(sorted(known)) or 'none'}")
    return {each.number for each in places} or {0}, places  # 0: no record, where no number would be all of them


def _intake(config: Path, path: str, name: str) -> "IntakeRule":
    """Return the rule of a source or a webhook in a configuration.

    Raises:
        InputError: if it is not there, or belongs to another database, or may belong to one of several.
    """
    from inturn.ingest.config import is_of_server, read

    if is_of_server(config):
        from inturn.server.config import load

        hooks = {each.name: each.webhook() for each in load(config).webhooks}
        if name not in hooks:
            raise InputError(f"the configuration has no webhook {name!r}; it has: {', '.join(hooks) or 'none'}")
        return hooks[name].intake
    sources = read(config).sources
    found = [each for each in sources if each.name == name]
    if not found:
        there = ", ".join(each.name for each in sources) or "none"
        raise InputError(f"the configuration has no source {name!r}; it has: {there}")
    databases = {each.queue.rpartition("#")[0]: each for each in found}
    same = [each for each in databases if each == path] or [
        each for each in databases if _is_same(path, each, config.parent)
    ]
    if not same:
        raise InputError(f"the source {name!r} of the configuration is of another database than {shown(path)}")
    if len(same) > 1:
        several = f"the source {name!r} of the configuration is of several databases that {shown(path)} may be"
        raise InputError(f"{several}: {', '.join(map(shown, same))}: write the one that is meant as it is there")
    return databases[same[0]].intake(config.parent)


def _is_same(path: str, configured: str, folder: Path) -> bool:
    """Return whether a database can be the one that is configured; two addresses may be of the same."""
    if is_address(path) or is_address(configured):
        return is_address(path) and is_address(configured)
    return Path(path).resolve() == (folder / configured).resolve()
