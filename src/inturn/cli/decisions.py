"""Decisions from the command line: selection, dry runs, waiting for their application, and the report."""

import getpass
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inturn.cli.options import AsJson, Yes
from inturn.cli.output import confirm, one_line, print_json, print_reasons, print_text, progress
from inturn.cli.targets import open_inspector
from inturn.core.errors import InputError
from inturn.core.pipeline.dry_run import DryRunSummary
from inturn.core.pipeline.selection import PARKED
from inturn.core.texts import last_line
from inturn.core.words import counted
from inturn.definitions import load
from inturn.dry_runs import run
from inturn.pending_decisions import apply_decisions

if TYPE_CHECKING:
    from collections.abc import Callable

    from inturn.core.pipeline.decision import DecisionAction
    from inturn.core.pipeline.decision_service import DecisionService
    from inturn.core.pipeline.selection import DecisionDraft, DecisionReport

_POLL_S = 0.1


@dataclass(frozen=True, kw_only=True)
class DecisionOptions:
    """Options for making and reporting a decision."""

    by: Annotated[str, "User who decides (default: the login name)."] = ""
    why: Annotated[str, "Reason, stored with the decision."] = ""
    pipeline: Annotated[
        str | None,
        "Location of the pipeline, such as ledger.py:ledger; applies the decision here if no process does.",
    ] = None
    wait_s: Annotated[
        float, typer.Option(min=0, help="Wait this many seconds for a running worker or stream to apply the decision.")
    ] = 10.0
    dry_run: Annotated[bool, "Show the result with the handler of --pipeline, without writing anything."] = False
    sample: int = 1
    yes: bool = False
    as_json: AsJson = False

    @property
    def author(self) -> str:
        """The name of the user who decides."""
        return self.by or getpass.getuser()


@dataclass(frozen=True, kw_only=True)
class BulkDecisionOptions(DecisionOptions):
    """Options for making and reporting decisions about one group or many."""

    sample: Annotated[
        int, typer.Option(min=0, help="With --dry-run: number of groups of each outcome to show in full.")
    ] = 3
    yes: Yes = False


def decide_many(
    store: str, action: "DecisionAction", names: Iterable[str], options: DecisionOptions, **selected: Any
) -> None:
    """Decide about several groups, selected by name or by patterns, and report the results."""
    with open_inspector(store) as inspector:
        draft = inspector.prepare(action, *names, by=options.author, why=options.why, **selected)
        if options.dry_run:
            show_dry_run(inspector, draft, options)
            return
        count = counted(len(draft.decisions), "group")
        asks = not (names or options.yes or len(draft.decisions) < 2)
        confirm(f"{action}: {count} in {one_line(store)}", asks=asks, as_json=options.as_json)
        report = apply_or_wait(inspector, inspector.record(draft), options, store)
        takes = inspector.applied_when
    parked_again = _parked_again(store, report) if report.done else {}
    if options.as_json:
        print_json(report.to_dict() | {"parked": parked_again})
    else:
        _say_report(report, parked_again, takes)
    if report.void:
        raise typer.Exit(1)


def _parked_again(store: str, report: "DecisionReport") -> dict[str, str]:
    """Return the groups that are parked again after their decision was applied, with their errors."""
    done = set(report.done)
    with open_inspector(store) as inspector:
        return {
            parked.group: last_line(parked.error)
            for parked in inspector.parked()
            if parked.group in done and parked.status in PARKED
        }


def _say_report(report: "DecisionReport", parked_again: dict[str, str], takes: str) -> None:
    counts = f"{len(report.done):,} done, {len(report.void):,} void, {len(report.pending):,} not applied yet"
    print_text(
        f"{report.action}: {counts}" + (f"; {takes} (or pass --pipeline to apply it now)." if report.pending else ".")
    )
    print_reasons("parked", parked_again)
    print_reasons("void", report.void)


# --- dry runs ---


def show_dry_run(inspector: "DecisionService", draft: "DecisionDraft", options: DecisionOptions) -> None:
    """Show the results of decisions with the handler of the given definition, without recording them."""
    if options.pipeline is None:
        raise InputError("--dry-run needs the handler; pass --pipeline, such as --pipeline ledger.py:ledger")
    total, summary = len(draft.decisions) + len(draft.void), DryRunSummary(options.sample)
    with progress(f"{draft.action}, dry run", total, quiet=options.as_json) as advance:
        for result in run(load(options.pipeline), inspector, draft):
            summary.add([result])
            advance(1)
    if options.as_json:
        sample = [result.to_dict() for result in summary.sample]
        print_json(
            {"action": draft.action, "groups": total, "outcomes": summary.outcomes, "sample": sample}, default=str
        )
    else:
        outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(summary.outcomes.items()))
        print_text(f"{draft.action}, dry run: {counted(total, 'group')}" + (f": {outcomes}." if total else "."))
        for result in summary.sample:
            print_text(str(result))
        print_text("Nothing was written.")
    if summary.outcomes["void"]:
        raise typer.Exit(1)


# --- taking ---


def apply_or_wait(
    inspector: "DecisionService", report: "DecisionReport", options: DecisionOptions, store: str
) -> "DecisionReport":
    """Return a report once the running process has applied its decisions, or apply them with the given definition."""
    is_beside = options.pipeline is not None and inspector.unit == "task"  # workers tolerate a second one
    with progress(str(report.action), len(report.pending), quiet=options.as_json) as advance:
        if inspector.may_apply_automatically() and not is_beside:
            report = _wait_for_verdicts(inspector, report, options.wait_s, advance)
        if report.pending and options.pipeline is not None:
            apply_decisions(inspector, load(options.pipeline), store, advance)
            report = _wait_for_verdicts(inspector, report, 0, lambda _count: None)
    return report


def _wait_for_verdicts(
    inspector: "DecisionService", report: "DecisionReport", wait_s: float, advance: "Callable[[int], None]"
) -> "DecisionReport":
    """Return a report after all of its decisions are applied, or no further one was for ``wait_s``."""
    until = time.monotonic() + wait_s
    while True:
        began, before = time.monotonic(), len(report.pending)
        report = inspector.updated(report)
        advance(before - len(report.pending))
        now = time.monotonic()
        if len(report.pending) < before:
            until = now + wait_s
        if not report.pending or now >= until:
            return report
        time.sleep(max(_POLL_S, 5 * (now - began)))
