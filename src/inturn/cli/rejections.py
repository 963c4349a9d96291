"""Commands about rejected records of sources: show, send again, remove."""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inturn.cli.options import AsJson, AsLines, Yes
from inturn.cli.output import confirm_loss, one_line, print_json, print_text, progress
from inturn.cli.targets import opened_database, split_target
from inturn.core.address import is_address, shown
from inturn.core.errors import InputError
from inturn.core.words import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inturn.database import Database
    from inturn.ingest import IntakeRule, ResendPreview, SourceControl
    from inturn.store.sources import RejectedPlace, RejectedRecord

SourceAt = Annotated[str, typer.Argument(help="Source: DATABASE#SOURCE, such as shop.db#bank.")]
Config = Annotated[
    Path,
    typer.Argument(
        help="Configuration file (TOML) with the corrected mapping, of the sources or of the server's webhooks."
    ),
]


@dataclass(frozen=True, kw_only=True)
class RecordOptions:
    """The selection of rejected records."""

    number: Annotated[
        list[int] | None, "Record with this number, as shown by 'inturn ingest rejected' (repeatable)."
    ] = None
    partition: Annotated[list[str] | None, "Only this partition (repeatable)."] = None
    every: Annotated[bool, typer.Option("--all", help="Select all rejected records of the source.")] = False


def split_source(target: str, noun: str = "source", such_as: str = "bank") -> tuple[str, str]:
    """Return the database and the source, or another object in it, that an argument names.

    Raises:
        InputError: if one of them is missing.
    """
    path, name = split_target(target)
    if not path or not name:
        raise InputError(
            f"{shown(target)!r} names no {noun}; expected DATABASE#{noun.upper()}, such as shop.db#{such_as}"
        )
    return path, name


def rejected(
    source: SourceAt,
    limit: Annotated[int, typer.Option(help="Maximum number of results.", min=1)] = 100,
    as_json: AsLines = False,
) -> None:
    """Show records that could not be mapped to messages, with the reasons.

    In JSON, key_base64 and body_base64 contain the bytes; key and body contain the text, or null if it is not UTF-8.
    """
    from inturn.ingest import SourceControl

    path, name = split_source(source)
    with opened_database(path) as db:
        check_known(db, path, name)
        records = list(SourceControl(db, name).rejected(limit))
    for record in records:
        if as_json:
            document = {key: value for key, value in record._asdict().items() if key != "exact"}
            print_json(document | _texts("key", record.key) | _texts("body", record.body))
        else:
            body = (record.body or b"").decode(errors="backslashreplace")
            print_text(f"{_place(record)}: {one_line(record.reason)}: {one_line(body)}")


def _place(record: "RejectedRecord | ResendPreview") -> str:
    """Return the number and the place of a rejected record; a webhook's request has no position."""
    position = "" if record.position == "null" else f" {one_line(record.position)}"
    return f"{record.number} {one_line(record.partition)}{position}"


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
    *,
    records: RecordOptions,
    dry_run: Annotated[bool, "Show which records would be sent and which not, without changing anything."] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON document; with --dry-run, one per line.")
    ] = False,
) -> None:
    """Send rejected records again with a corrected mapping, each once.

    Records that still cannot be mapped remain, with the new reason. The command can be interrupted and run again. A
    running 'inturn ingest run' uses its old mapping until it is restarted.
    """
    from inturn.ingest import SourceControl

    path, name = split_source(source)
    intake = _intake(config, path, name)
    with opened_database(path) as db:
        control = SourceControl(db, name)
        numbers, places = _selected(control, records)
        if dry_run:
            _show_preview(control, intake, numbers, as_json=as_json)
            return
        with progress("resend", len(places), quiet=as_json) as advance:
            counts = control.resend(intake, numbers=numbers, on_progress=advance)
    if as_json:
        print_json({"source": name, "action": "resend", **counts._asdict()})
        return
    others = {name: count for name, count in counts._asdict().items() if count and name not in ("sent", "stayed")}
    more = "".join(f", {count:,} {name}" for name, count in others.items())
    print_text(
        f"resend: {counted(counts.sent, 'record')} of {one_line(name)} sent{more}; {counts.stayed:,} stay rejected."
    )


def _show_preview(control: "SourceControl", intake: "IntakeRule", numbers: set[int], *, as_json: bool) -> None:
    sent = stay = 0
    for preview in control.preview(intake, numbers=numbers):
        sent += preview.outcome == "send"
        stay += preview.outcome == "stay"
        if as_json:
            print_json(preview._asdict())
            continue
        detail = preview.reason or f"group {preview.group}, revision {preview.revision}, id {preview.id}"
        summary = preview.outcome if preview.outcome == "ignored" else f"{preview.outcome}: {one_line(detail)}"
        print_text(f"{_place(preview)}: {summary}")
    if not as_json:
        print_text(
            f"resend, dry run: {counted(sent, 'record')} would be sent, {stay:,} would stay rejected. "
            "Nothing was written."
        )


def purge(
    source: SourceAt,
    *,
    records: RecordOptions,
    yes: Yes = False,
    dry_run: Annotated[bool, "Show which records would be removed, without changing anything."] = False,
    as_json: AsJson = False,
) -> None:
    """Remove rejected records permanently.

    For RabbitMQ, SQS and webhooks, the rejected records are the only copy.
    """
    from inturn.ingest import SourceControl

    path, name = split_source(source)
    with opened_database(path) as db:
        check_known(db, path, name)
        control = SourceControl(db, name)
        numbers, places = _selected(control, records)
        summary = f"{counted(len(places), 'rejected record')} of {one_line(name)}"
        size = sum(place.size for place in places)
        if dry_run:
            if as_json:
                print_json({"source": name, "action": "purge", "would_remove": len(places), "bytes": size})
            else:
                print_text(
                    f"purge, dry run: {summary}, {counted(size, 'byte')}, would be removed. Nothing was written."
                )
            return
        confirm_loss(f"Remove {summary} permanently?", yes=yes, as_json=as_json)
        with progress("purge", len(places), quiet=as_json) as advance:
            removed = control.purge(numbers=numbers, on_progress=advance)
    if as_json:
        print_json({"source": name, "action": "purge", "removed": removed})
    else:
        print_text(f"purge: {counted(removed, 'rejected record')} of {one_line(name)} removed.")


def check_known(db: "Database", path: str, name: str) -> None:
    """Check that a source or a webhook exists; of a webhook, a database contains only the rejected requests.

    Raises:
        InputError: if it does not exist.
    """
    from inturn.ingest import names_with_rejections, source_names

    known = sorted({*source_names(db), *names_with_rejections(db)})
    if name not in known:
        existing = ", ".join(known) or "none"
        raise InputError(
            f"{shown(path)} has no source {name!r} and no rejected requests of a webhook {name!r}; existing: {existing}"
        )


def _selected(control: "SourceControl", records: RecordOptions) -> "tuple[set[int], Sequence[RejectedPlace]]":
    """Return the numbers and places of the selected records; records that arrive later are not affected.

    Raises:
        InputError: if the options select nothing, or contradict each other, or name a partition that does not exist.
    """
    numbers, partitions = frozenset(records.number or ()), frozenset(records.partition or ())
    if records.every == bool(numbers or partitions):
        raise InputError("expected a selection of records: --number or --partition, or --all alone")
    places = control.rejected_places(numbers=numbers, partitions=partitions)
    if partitions - {place.partition for place in places}:  # unknown, or without rejected records
        known = {partition.name for partition in control.partitions()} | {
            place.partition for place in control.rejected_places()
        }
        if missing := sorted(partitions - known):
            raise InputError(f"no partition {missing[0]!r}; existing partitions: {', '.join(sorted(known)) or 'none'}")
    return {place.number for place in places} or {0}, places  # 0 matches no record; an empty set would select all


def _intake(config: Path, path: str, name: str) -> "IntakeRule":
    """Return the rule of a source or a webhook in a configuration.

    Raises:
        InputError: if it does not exist, belongs to another database, or is ambiguous.
    """
    from inturn.ingest.config import is_server_config, read

    if is_server_config(config):
        from inturn.sqs.config import load

        hooks = {hook.name: hook.webhook() for hook in load(config).webhooks}
        if name not in hooks:
            raise InputError(
                f"the configuration has no webhook {name!r}; existing webhooks: {', '.join(hooks) or 'none'}"
            )
        return hooks[name].intake
    sources = read(config).sources
    matching = [source for source in sources if source.name == name]
    if not matching:
        existing = ", ".join(source.name for source in sources) or "none"
        raise InputError(f"the configuration has no source {name!r}; existing sources: {existing}")
    databases = {source.queue.rpartition("#")[0]: source for source in matching}
    same = [database for database in databases if database == path] or [
        database for database in databases if _is_same(path, database, config.parent)
    ]
    if not same:
        raise InputError(f"the source {name!r} of the configuration belongs to another database than {shown(path)}")
    if len(same) > 1:
        several = f"{shown(path)} is ambiguous: the configuration has the source {name!r} in several databases"
        raise InputError(f"{several}; write the address as there, one of {', '.join(map(shown, same))}")
    return databases[same[0]].intake(config.parent)


def _is_same(path: str, configured: str, folder: Path) -> bool:
    """Return whether a database may be the configured one; two different addresses can name the same database."""
    if is_address(path) or is_address(configured):
        return is_address(path) and is_address(configured)
    return Path(path).resolve() == (folder / configured).resolve()
