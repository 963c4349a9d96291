"""``inturn lab``: simulate messaging designs on a log, as a table in the terminal, and as a page with --out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inturn.cli.lab_input import CsvOptions, LabColumns, LabLog, file_rows, is_queue, lab_log, queue_columns, queue_rows
from inturn.cli.lab_knobs import seconds, sweep_of, turned
from inturn.cli.lab_study import LabDemand, document, show, spinning, studied, write_page
from inturn.cli.options import AsDocument, Delimiter, Encoding, Null, Quote
from inturn.cli.texts import plain_console, say_json
from inturn.core.address import shown
from inturn.core.errors import InputError
from inturn.definitions import load, load_function

if TYPE_CHECKING:
    from inturn.lab.scenario import Scenario


def lab(
    log: Annotated[
        str | None, typer.Argument(help="Log: a file, a folder, or a queue, shop.db#payments or postgresql://…#….")
    ] = None,
    scenario: Annotated[
        str | None,
        typer.Option(help="Scenario instead of a log: transfers, auctions, hotel, flights, webhooks, hot-group."),
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="Column with the group; a nested field is a path, such as payload.account_id.")
    ] = None,
    order: Annotated[str | None, typer.Option(help="Column with the revision, a whole number or a time.")] = None,
    arrival: Annotated[
        str | None, typer.Option(help="Column with the time of arrival (default: the order of the rows, at --every).")
    ] = None,
    duration: Annotated[
        str | None, typer.Option(help="Column with the handler times, in milliseconds (default: --handler).")
    ] = None,
    every: Annotated[str, typer.Option(help="Time between two arrivals if the log has no times.")] = "1ms",
    pipeline: Annotated[
        str | None,
        typer.Option(
            help="Pipeline that computes the correct states, ledger.py:ledger (default: only the order is compared)."
        ),
    ] = None,
    commutes: Annotated[
        str | None,
        typer.Option(help="Function of a body: true if its message may be handled in any order, app.py:is_deposit."),
    ] = None,
    split: Annotated[
        bool,
        typer.Option("--split", help="Remove messages for which --commutes is true from the order of their groups."),
    ] = False,
    designs: Annotated[
        list[str] | None, typer.Option("--design", help="Only this design (repeatable; default: all).")
    ] = None,
    consumers: Annotated[
        int | None, typer.Option(help="Number of consumers (this and the next options: as in the scenario by default).")
    ] = None,
    prefetch: Annotated[
        int | None, typer.Option(help="Number of messages that a broker sends ahead to a consumer.")
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Number of messages that a consumer requests at once.")] = None,
    partitions: Annotated[
        int | None, typer.Option(help="Number of partitions of a topic, or queues of a consistent hash.")
    ] = None,
    handler: Annotated[
        str | None, typer.Option(help="Handler times: 5ms, 1ms-20ms (uniform), 20ms~0.5 (log-normal: median, sigma).")
    ] = None,
    failures: Annotated[
        str | None, typer.Option(help="Share of attempts that fail and succeed when tried again: 2%.")
    ] = None,
    poison: Annotated[str | None, typer.Option(help="Share of messages that always fail: 2%.")] = None,
    crashes: Annotated[str | None, typer.Option(help="Share of attempts in which the consumer crashes: 2%.")] = None,
    restart: Annotated[str | None, typer.Option(help="Time until a crashed consumer runs again: 1s.")] = None,
    visibility: Annotated[
        str | None, typer.Option(help="Time until an unacknowledged message is delivered again: 30s.")
    ] = None,
    max_attempts: Annotated[int | None, typer.Option(help="Attempts after which a message is given up.")] = None,
    backoff: Annotated[str | None, typer.Option(help="Pause before another attempt: 100ms.")] = None,
    reorder: Annotated[
        str | None, typer.Option(help="Maximum wait of a resequencer for a missing message: 10s.")
    ] = None,
    dedup: Annotated[str | None, typer.Option(help="Deduplication window of a broker: 5min.")] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed.")] = None,
    sweep: Annotated[
        list[str] | None, typer.Option(help="Values of a knob to plot results against: consumers=1,2,4,8 (repeatable).")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="With --sweep: number of seeds per point.")] = 5,
    recommend: Annotated[
        bool, typer.Option("--recommend", help="Name the cheapest design that meets --max-wrong and --p99.")
    ] = False,
    max_wrong: Annotated[
        int, typer.Option(min=0, help="With --recommend: maximum number of groups with a wrong final state.")
    ] = 0,
    p99: Annotated[
        str, typer.Option(help="With --recommend: time within which 99% of the messages must be done.")
    ] = "5s",
    follow: Annotated[
        str | None, typer.Option(help="Message to trace: GROUP:REVISION (default: one that went wrong).")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File for the page, such as lab.html.")] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format", help="Format of the files: parquet, json (JSON lines) or csv (default: by their names)."
        ),
    ] = None,
    delimiter: Delimiter = None,
    quote: Quote = None,
    encoding: Encoding = None,
    null: Null = None,
    as_json: AsDocument = False,
) -> None:
    """Simulate messaging designs on a log or a scenario: wrong states, times, throughput, wasted work."""
    if (log is None) == (scenario is None):
        raise InputError("expected either a log or a scenario: inturn lab events.jsonl, or inturn lab --scenario hotel")
    knobs = turned(
        {
            "consumers": consumers,
            "prefetch": prefetch,
            "batch": batch,
            "partitions": partitions,
            "handler": handler,
            "failures": failures,
            "poison": poison,
            "crashes": crashes,
            "restart": restart,
            "visibility": visibility,
            "max_attempts": max_attempts,
            "backoff": backoff,
            "reorder": reorder,
            "dedup": dedup,
            "seed": seed,
        }
    )
    demand = LabDemand(
        knobs=knobs,
        designs=tuple(designs or ()),
        sweeps=tuple(map(sweep_of, sweep or ())),
        seeds=seeds,
        recommend=(max_wrong, seconds(p99, "--p99")) if recommend else None,
        split=split,
        follow=None if follow is None else _followed(follow),
    )
    if scenario is not None:
        given = (group, order, arrival, duration, pipeline, commutes, format_, delimiter, quote, encoding, null)
        if any(each is not None for each in given):
            raise InputError("a scenario has its own messages and handler; omit the options of a log")
        from inturn.lab.scenarios import scenario as scenario_named

        story, read = scenario_named(scenario), LabLog()
    else:
        columns = _columns(log or "", group, order, arrival, duration, every)
        csv = CsvOptions(delimiter=delimiter, quote=quote, encoding=encoding, null=null)
        with spinning(f"reading {shown(log or '')}", quiet=as_json):
            story, read = _story_of(log or "", columns, format_, csv, pipeline, commutes)
    study = studied(story, demand, quiet=as_json)
    if out is not None:
        write_page(study, out)
    if as_json:
        say_json(document(study, read, out))
    else:
        show(study, plain_console(), read, out)


def _columns(
    log: str, group: str | None, order: str | None, arrival: str | None, duration: str | None, every: str
) -> LabColumns:
    every_us = round(seconds(every, "--every") * 1e6)
    if is_queue(log):
        named = {"group": group, "order": order, "arrival": arrival, "duration": duration}
        if any(value is not None for value in named.values()):
            option = next(name for name, value in named.items() if value is not None)
            raise InputError(
                f"--{option} is only for files, since messages of a queue have group, revision and time; omit it"
            )
        return queue_columns(None)
    if group is None or order is None:
        missing = "--group" if group is None else "--order"
        raise InputError(
            f"{missing} is missing; expected the name of the column with the {'group' if group is None else 'revision'}"
        )
    return LabColumns(group=group, order=order, arrival=arrival, duration=duration, every_us=every_us)


def _story_of(
    log: str, columns: LabColumns, form: str | None, csv: CsvOptions, pipeline: str | None, commutes: str | None
) -> "tuple[Scenario, LabLog]":
    """Return a log as a scenario without a story."""
    from inturn.lab.knobs import Knobs
    from inturn.lab.scenario import Scenario

    from_queue = is_queue(log)
    if from_queue and form is not None:
        raise InputError("--format is only for files; omit it for a queue")
    rows = queue_rows(log) if from_queue else file_rows(log, columns, form, csv)
    read = lab_log(rows, columns, log, from_queue=from_queue)
    name = shown(log)
    made = Scenario(
        name=name,
        title=name,
        story="",
        source=name,
        messages=read.messages,
        pipeline=None if pipeline is None else load(pipeline),
        knobs=Knobs(),
        commutes=None if commutes is None else load_function(commutes, {}),
    )
    return made, read


def _followed(text: str) -> tuple[str, int]:
    group, sign, revision = text.rpartition(":")
    if not sign or not revision.lstrip("-").isdecimal():
        raise InputError(f"--follow is {text!r}; expected GROUP:REVISION, such as acct-1:12")
    return group, int(revision)
