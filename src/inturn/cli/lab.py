"""``inturn lab``: simulate messaging designs on a log, as a table in the terminal, and as a page with --out."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inturn.cli.lab_input import LabColumns, LabLog, file_rows, is_queue, lab_log, queue_columns, queue_rows
from inturn.cli.lab_knobs import changed_knobs, seconds, sweep_of
from inturn.cli.lab_study import StudyRequest, document, run_study, show, spinner, write_page
from inturn.cli.option_groups import given_options
from inturn.cli.options import AsJson, FileOptions
from inturn.cli.output import plain_console, print_json
from inturn.core.address import shown
from inturn.core.errors import InputError
from inturn.definitions import load, load_function

if TYPE_CHECKING:
    from inturn.lab.scenario import Scenario


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """The columns of a log, and the rules of its messages."""

    group: Annotated[str | None, "Column with the group; a nested field is a path, such as payload.account_id."] = None
    order: Annotated[str | None, "Column with the revision, a whole number or a time."] = None
    arrival: Annotated[str | None, "Column with the time of arrival (default: the order of the rows, at --every)."] = (
        None
    )
    duration: Annotated[str | None, "Column with the handler times, in milliseconds (default: --handler)."] = None
    every: Annotated[str, "Time between two arrivals if the log has no times."] = "1ms"
    pipeline: Annotated[
        str | None, "Pipeline that computes the correct states, ledger.py:ledger (default: only the order is compared)."
    ] = None
    commutes: Annotated[
        str | None, "Function of a body: true if its message may be handled in any order, app.py:is_deposit."
    ] = None

    @property
    def columns(self) -> dict[str, str]:
        """The given columns."""
        return {
            name: value
            for name, value in given_options(self).items()
            if name in ("group", "order", "arrival", "duration")
        }


@dataclass(frozen=True, kw_only=True)
class KnobOptions:
    """Knobs with other values than the input's."""

    consumers: Annotated[
        int | None, "Number of consumers (this and the next options: as in the scenario by default)."
    ] = None
    prefetch: Annotated[int | None, "Number of messages that a broker sends ahead to a consumer."] = None
    batch: Annotated[int | None, "Number of messages that a consumer requests at once."] = None
    partitions: Annotated[int | None, "Number of partitions of a topic, or queues of a consistent hash."] = None
    handler: Annotated[str | None, "Handler times: 5ms, 1ms-20ms (uniform), 20ms~0.5 (log-normal: median, sigma)."] = (
        None
    )
    failures: Annotated[str | None, "Share of attempts that fail and succeed when tried again: 2%."] = None
    poison: Annotated[str | None, "Share of messages that always fail: 2%."] = None
    crashes: Annotated[str | None, "Share of attempts in which the consumer crashes: 2%."] = None
    restart: Annotated[str | None, "Time until a crashed consumer runs again: 1s."] = None
    visibility: Annotated[str | None, "Time until an unacknowledged message is delivered again: 30s."] = None
    max_attempts: Annotated[int | None, "Attempts after which a message is given up."] = None
    backoff: Annotated[str | None, "Pause before another attempt: 100ms."] = None
    reorder: Annotated[str | None, "Maximum wait of a resequencer for a missing message: 10s."] = None
    dedup: Annotated[str | None, "Deduplication window of a broker: 5min."] = None
    seed: Annotated[int | None, "Random seed."] = None


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """Sweeps and the recommendation."""

    sweep: Annotated[list[str] | None, "Values of a knob to plot results against: consumers=1,2,4,8 (repeatable)."] = (
        None
    )
    seeds: Annotated[int, typer.Option(min=1, help="With --sweep: number of seeds per point.")] = 5
    recommend: Annotated[bool, "Name the cheapest design that meets --max-wrong and --p99."] = False
    max_wrong: Annotated[
        int, typer.Option(min=0, help="With --recommend: maximum number of groups with a wrong final state.")
    ] = 0
    p99: Annotated[str, "With --recommend: time within which 99% of the messages must be done."] = "5s"


def lab(
    log: Annotated[
        str | None, typer.Argument(help="Log: a file, a folder, or a queue, shop.db#payments or postgresql://…#….")
    ] = None,
    *,
    scenario: Annotated[
        str | None, "Scenario instead of a log: transfers, auctions, hotel, flights, webhooks, hot-group."
    ] = None,
    options: LogOptions,
    split: Annotated[bool, "Remove messages for which --commutes is true from the order of their groups."] = False,
    designs: Annotated[
        list[str] | None, typer.Option("--design", help="Only this design (repeatable; default: all).")
    ] = None,
    knobs: KnobOptions,
    study: StudyOptions,
    follow: Annotated[str | None, "Message to trace: GROUP:REVISION (default: one that went wrong)."] = None,
    out: Annotated[Path | None, "File for the page, such as lab.html."] = None,
    files: FileOptions,
    as_json: AsJson = False,
) -> None:
    """Simulate messaging designs on a log or a scenario: wrong states, times, throughput, wasted work."""
    if (log is None) == (scenario is None):
        raise InputError("expected either a log or a scenario: inturn lab events.jsonl, or inturn lab --scenario hotel")
    demand = StudyRequest(
        knobs=changed_knobs(given_options(knobs)),
        designs=tuple(designs or ()),
        sweeps=tuple(map(sweep_of, study.sweep or ())),
        seeds=study.seeds,
        recommend=(study.max_wrong, seconds(study.p99, "--p99")) if study.recommend else None,
        split=split,
        follow=None if follow is None else _followed(follow),
    )
    if scenario is not None:
        if given_options(options).keys() - {"every"} or given_options(files):
            raise InputError("a scenario has its own messages and handler; omit the options of a log")
        from inturn.lab.scenarios import scenario as scenario_named

        study_scenario, read = scenario_named(scenario), LabLog()
    else:
        with spinner(f"reading {shown(log or '')}", quiet=as_json):
            study_scenario, read = _log_scenario(log or "", options, files)
    completed = run_study(study_scenario, demand, quiet=as_json)
    if out is not None:
        write_page(completed, out)
    if as_json:
        print_json(document(completed, read, out))
    else:
        show(completed, plain_console(), read, out)


def _columns(log: str, options: LogOptions) -> LabColumns:
    every_us = round(seconds(options.every, "--every") * 1e6)
    named = options.columns
    if is_queue(log):
        if named:
            raise InputError(
                f"--{next(iter(named))} is only for files, since messages of a queue have group, revision and time; "
                "omit it"
            )
        return queue_columns(None)
    for option, noun in (("group", "group"), ("order", "revision")):
        if option not in named:
            raise InputError(f"--{option} is missing; expected the name of the column with the {noun}")
    return LabColumns(**named, every_us=every_us)


def _log_scenario(log: str, options: LogOptions, files: FileOptions) -> "tuple[Scenario, LabLog]":
    """Return a log as a scenario without a story."""
    from inturn.lab.knobs import Knobs
    from inturn.lab.scenario import Scenario

    columns, from_queue = _columns(log, options), is_queue(log)
    if from_queue and files.format_ is not None:
        raise InputError("--format is only for files; omit it for a queue")
    rows = queue_rows(log) if from_queue else file_rows(log, columns, files)
    read = lab_log(rows, columns, log, from_queue=from_queue)
    name = shown(log)
    scenario = Scenario(
        name=name,
        title=name,
        description="",
        source=name,
        messages=read.messages,
        pipeline=None if options.pipeline is None else load(options.pipeline),
        knobs=Knobs(),
        commutes=None if options.commutes is None else load_function(options.commutes, {}),
    )
    return scenario, read


def _followed(text: str) -> tuple[str, int]:
    group, sign, revision = text.rpartition(":")
    if not sign or not revision.lstrip("-").isdecimal():
        raise InputError(f"--follow is {text!r}; expected GROUP:REVISION, such as acct-1:12")
    return group, int(revision)
