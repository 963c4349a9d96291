"""``inturn ingest``: read sources into queues; show and control their positions and rejected records."""

import gc
import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from inturn.cli.errors import Commands
from inturn.cli.ingest_runs import SharedDatabases, SourceRun
from inturn.cli.options import AsJson, AsLines
from inturn.cli.output import cell, one_line, print_json, print_table, print_text
from inturn.cli.rejections import SourceAt, check_known, purge, rejected, resend, split_source
from inturn.cli.services import TelemetryOptions, monitored, with_telemetry_options
from inturn.cli.targets import opened_database, split_target
from inturn.core import limits
from inturn.core.address import shown
from inturn.core.errors import InputError, StoreUnavailable
from inturn.core.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from inturn.core.source_shares import SourcePartition
    from inturn.database import Database
    from inturn.ingest import Ingest
    from inturn.ingest.config import AnySource, IngestConfig

ingest = Commands(help="Read records of sources into queues, and show and control the sources.", no_args_is_help=True)

ingest.command()(rejected)
ingest.command()(resend)
ingest.command()(purge)

ConfigFile = Annotated[Path, typer.Argument(help="Configuration file (TOML) with the sources.")]
_COUNTS = ("received", "rejected", "kept", "dropped", "lag")
Partitions = Annotated[list[str] | None, "Only this partition (repeatable)."]


@ingest.command()
def run(
    config: ConfigFile,
    *,
    only: Annotated[list[str] | None, "Only this source (repeatable)."] = None,
    until_caught_up: Annotated[bool, "End once all records are read; wait while a queue is full."] = False,
    telemetry: TelemetryOptions,
    as_json: AsJson = False,
) -> None:
    """Read records of sources into queues as messages, until SIGTERM or Ctrl-C."""
    from inturn.ingest.config import read
    from inturn.serving.logs import configure
    from inturn.serving.signals import end_process, stop_on_signals

    chosen = with_telemetry_options(read(config), telemetry)
    configure(chosen.log_level, json_lines=chosen.log_json)
    with ExitStack() as stack:
        databases = SharedDatabases(stack.enter_context(ExitStack()))
        running = _runs(databases, chosen, config.parent, only or [], waits=not until_caught_up)
        done = threading.Event()

        def stop() -> None:
            done.set()
            for source_run in running:
                source_run.stop_soon()

        stack.enter_context(monitored(chosen, [source_run.path for source_run in running], lambda: _health(running)))
        gc.freeze()  # spares the collector repeated scans of long-lived objects while records come by the thousand
        stack.callback(gc.unfreeze)
        pool = stack.enter_context(ThreadPoolExecutor(len(running)))
        stack.callback(stop)
        with stop_on_signals(stop, force=end_process):
            futures = [
                pool.submit(source_run.run, until="caught up" if until_caught_up else "stopped")
                for source_run in running
            ]
            # A source that fails (its log and health report it) does not end the others. Python runs signal handlers
            # in the main thread, so this one wakes regularly.
            while wait(futures, limits.WORKER_LOOK_S).not_done:
                pass
            results = {source_run.name: future.result() for source_run, future in zip(running, futures, strict=True)}
    if as_json:
        print_json([{"source": name, **counts._asdict()} for name, counts in results.items()])
        return
    for name, counts in results.items():
        text = f"{counts.received:,} received, {counts.rejected:,} rejected, {counts.ignored:,} ignored"
        print_text(f"{one_line(name)}: {text}" + (f", {counts.moved:,} moved" if counts.moved else ""))


def _health(running: "list[SourceRun]") -> dict[str, Any]:
    return {
        "ready": all(source_run.is_ready for source_run in running),
        "sources": [source_run.status() for source_run in running],
    }


@ingest.command()
def check(
    config: ConfigFile,
    limit: Annotated[int, typer.Option(help="Maximum number of records per source.", min=1)] = 5,
    as_json: AsJson = False,
) -> None:
    """Show the messages that the first records of each source would become, without writing or consuming anything.

    Messages of RabbitMQ and SQS are not read, since the broker counts deliveries; the login, the queue and the
    settings are checked, and the number of messages is shown. For a configuration file of 'inturn serve', the settings
    and secrets of its webhooks are checked.
    """
    from inturn.ingest.config import is_server_config, read

    if is_server_config(config):
        _check_webhooks(config, as_json=as_json)
        return
    previews = [row for table in read(config).sources for row in _checked(table, config.parent, limit)]
    if as_json:
        print_json(previews)
        return
    for row in previews:
        location = f"{one_line(row['source'])} {one_line(row['partition'])}"
        if "not_read" in row:
            print_text(
                f"{location}: {counted(row['not_read'] or 0, 'message')}, not read, since the broker counts deliveries"
            )
            continue
        outcome = row.get("rejected") or f"group {row['group']}, revision {row['revision']}, id {row['id']}"
        kind = "rejected: " if "rejected" in row else ""
        print_text(f"{location} {json.dumps(row['position'])}: {kind}{one_line(str(outcome))}")


def _check_webhooks(config: Path, *, as_json: bool) -> None:
    """Check the webhooks in a configuration file of the server; they have no requests to show."""
    from inturn.sqs.config import load

    webhooks = [table.webhook() for table in load(config).webhooks]
    if as_json:
        print_json(
            [{"webhook": webhook.name, "queue": webhook.queue, "signature": webhook.signature} for webhook in webhooks]
        )
        return
    for webhook in webhooks:
        print_text(
            f"{one_line(webhook.name)}: webhook of queue {one_line(webhook.queue)}, signature {webhook.signature}"
        )
    if not webhooks:
        print_text(f"{config} contains no webhooks.")


def _checked(table: "AnySource", folder: Path, limit: int) -> list[dict[str, Any]]:
    from inturn.core.errors import PositionGone, SourceError
    from inturn.ingest.known_ids import with_id
    from inturn.ingest.mapping import with_decoder

    source = table.source(folder)
    map_ = with_decoder(table.decoder(folder), with_id(source, table.message_mapping(), once=table.once).compiled())
    previews: list[dict[str, Any]] = []
    try:
        for partition in source.partitions():
            source.open(partition, None)
            if not source.has_positions:
                previews.append({"source": table.name, "partition": partition, "not_read": source.lag(partition)})
        for record in source.poll(limit, 1.0) if source.has_positions else ():
            known = {"source": table.name, "partition": record.partition, "position": record.position}
            try:
                draft = map_(record)
            except InputError as error:
                previews.append(known | {"rejected": str(error)})
                continue
            if draft is not None:
                previews.append(known | {"group": draft.group, "revision": draft.revision, "id": draft.dedup_id})
    except PositionGone as error:
        raise InputError(f"{table.name}: {error}") from error
    except SourceError as error:
        raise SourceError(f"{table.name}: {error}") from error
    finally:
        source.shutdown()
    return previews


@ingest.command()
def status(
    database: Annotated[str, typer.Argument(help="Database, or DATABASE#SOURCE for one source.")],
    as_json: AsJson = False,
) -> None:
    """Show the partitions of sources: position, owner, counts, and the reason if one is not read."""
    from inturn.ingest import names_with_rejections, source_names

    path, source_name = split_target(database)
    with opened_database(path) as db:
        names = [source_name] if source_name else sorted({*source_names(db), *names_with_rejections(db)})
        rows = [row for name in names for row in _rows(db, name)]
    if source_name and not rows:
        raise InputError(
            f"{shown(path)} has no source {source_name!r}; list all with 'inturn ingest status {shown(path)}'"
        )
    if as_json:
        print_json(rows)
        return
    table = Table("source", "partition", "position", *_COUNTS, "status", box=None, pad_edge=False)
    for row in rows:
        counts = ["" if row[name] is None else f"{row[name]:,}" for name in _COUNTS]
        status = f"{row['status']}: {row['note']}" if row["note"] else row["status"]
        if row["error"]:
            status += f"; waits: {row['error']}"
        if row["moved_s"] is not None:
            status += f"; moved {row['moved_s']:,.0f} s ago"
        position = "" if row["position"] is None else json.dumps(row["position"])
        table.add_row(cell(row["source"]), cell(row["partition"]), cell(position), *counts, cell(status))
    if rows:
        print_table(table)
    else:
        print_text(f"{shown(path)} has no sources.")


def _rows(db: "Database", name: str) -> list[dict[str, Any]]:
    """Return the partitions of a source; of a webhook, those of its rejected requests."""
    from inturn.core.source_shares import SourcePartition
    from inturn.ingest import SourceControl

    control, now_ms = SourceControl(db, name), db.writer.clock()
    moved, problems, kept_counts = (
        control.moved_counts(),
        control.problems(),
        Counter(p.partition for p in control.rejected_places()),
    )
    partitions = control.partitions()
    rows = [
        _row(name, partition, now_ms)
        | {
            "moved": moved.get(partition.name, 0),
            "kept": kept_counts.pop(partition.name, 0),
            "error": problems.get(partition.owner or ""),
        }
        for partition in partitions
    ]
    for partition, count in kept_counts.items():  # of a webhook, which has no position and no owner
        row = _row(name, SourcePartition(partition, rejected=count), now_ms) | {"kept": count, "error": None}
        rows.append(row | {"moved": 0, "status": "webhook"})
    return rows


def _row(name: str, partition: "SourcePartition", now_ms: int) -> dict[str, Any]:
    if partition.note is not None:
        status = "refused"
    elif partition.is_paused:
        status = "paused"
    elif partition.is_finished:
        status = "read to its end"
    else:
        status = f"read by {partition.owner}" if partition.is_owned(now_ms) else "read by nobody"
    return {
        "source": name,
        "partition": partition.name,
        "position": None if partition.position is None else json.loads(partition.position),
        "received": partition.received,
        "rejected": partition.rejected,
        "dropped": partition.dropped,
        "lag": partition.lag,
        "age_s": partition.age_s(now_ms),
        "moved_s": (now_ms - partition.moved_ms) / 1000 if partition.moved_ms else None,
        "status": status,
        "note": partition.note,
    }


@ingest.command()
def moved(
    source: SourceAt,
    limit: Annotated[int, typer.Option(help="Maximum number of results.", min=1)] = 100,
    as_json: AsLines = False,
) -> None:
    """Show messages that wait because their group moved to another partition."""
    from inturn.ingest import SourceControl

    path, name = split_source(source)
    with opened_database(path) as db:
        check_known(db, path, name)
        moves = list(islice(SourceControl(db, name).moved(), limit))
    for move in moves:
        if as_json:
            print_json({key: value for key, value in move._asdict().items() if key != "draft"})
        else:
            now = f"now from {one_line(move.partition)} at {one_line(move.position)}"
            print_text(
                f"{move.number} {one_line(move.group)}: {now}, before in {one_line(move.home)} "
                f"since {one_line(move.home_position)}"
            )


@ingest.command()
def accept(
    source: SourceAt,
    group: Annotated[list[str] | None, "Only this group (repeatable)."] = None,
    as_json: AsJson = False,
) -> None:
    """Accept the new partition of moved groups, and send their waiting messages."""
    from inturn.ingest import SourceControl

    path, name = split_source(source)
    with opened_database(path) as db:
        check_known(db, path, name)
        count = SourceControl(db, name).accept(*(group or []))
    if as_json:
        print_json({"source": name, "action": "accept", "messages": count})
    else:
        print_text(f"accept: {count:,} message{'' if count == 1 else 's'} of {one_line(name)} sent.")


@ingest.command()
def pause(source: SourceAt, partition: Partitions = None, as_json: AsJson = False) -> None:
    """Stop reading a source or some of its partitions."""
    _changed(source, "pause", partition or [], as_json=as_json)


@ingest.command()
def resume(source: SourceAt, partition: Partitions = None, as_json: AsJson = False) -> None:
    """Continue reading a paused source or some of its partitions."""
    _changed(source, "resume", partition or [], as_json=as_json)


@ingest.command(context_settings={"ignore_unknown_options": True})  # -1 is not an option
def seek(
    source: SourceAt,
    position: Annotated[
        str, typer.Argument(help="Position to continue at, as JSON, such as 4711; or start for the beginning.")
    ],
    partition: Partitions = None,
    as_json: AsJson = False,
) -> None:
    """Continue a source at another position, also if a partition was recreated or its position no longer exists."""
    from inturn.ingest.positions import InvalidJson

    try:
        where = None if position == "start" else json.loads(position)
    except ValueError:
        where = InvalidJson(position)
    _changed(source, "seek", partition or [], where, as_json=as_json)


def _changed(source: str, act: str, partitions: list[str], *position: Any, as_json: bool) -> None:
    from inturn.ingest import SourceControl

    path, name = split_source(source)
    with opened_database(path) as db:
        count = getattr(SourceControl(db, name), act)(*position, *partitions)
    if as_json:
        print_json({"source": name, "action": act, "partitions": count})
    else:
        print_text(f"{act}: {count} partition{'' if count == 1 else 's'} of {one_line(name)} changed.")


def _runs(
    databases: SharedDatabases, config: "IngestConfig", folder: Path, only: list[str], *, waits: bool
) -> list[SourceRun]:
    """Open the sources; with ``waits``, one whose database is unavailable is opened later."""
    runs = []
    for source in _chosen(config, only):
        path, queue = split_source(source.queue, "queue", "payments")
        if "://" not in path:
            path = str(folder / path)
        run = SourceRun(source.name, path, databases, _maker(source, folder, queue))
        try:
            run.begin()
        except StoreUnavailable as error:
            if not waits:
                raise
            run.note(error)
        runs.append(run)
    return runs


def _maker(table: "AnySource", folder: Path, queue: str) -> "Callable[[Database], Ingest]":
    """Return a function that creates the source's host in a database, after checking the settings."""
    from inturn.ingest import Ingest

    settings = ("batch", "batch_bytes", "lease_s", "once", "on_move", "max_rejected", "max_rejected_bytes")
    options: dict[str, Any] = {name: getattr(table, name) for name in settings}
    source, mapping, decode = table.source(folder), table.message_mapping(), table.decoder(folder)
    return lambda db: Ingest(source, db.queue(queue), mapping, name=table.name, decode=decode, **options)


def _chosen(config: "IngestConfig", only: list[str]) -> "list[AnySource]":
    known = [source.name for source in config.sources]
    missing = [name for name in only if name not in known]
    if missing or not known:
        problem = f"no source {missing[0]!r}" if missing else "no sources"
        raise InputError(f"the configuration has {problem}; existing sources: {', '.join(known) or 'none'}")
    return [source for source in config.sources if not only or source.name in only]
