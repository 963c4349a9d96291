"""A study of the lab for a command: the designs, the sweeps and the recommendation, as a table and as a page."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from inturn.cli.errors import needed
from inturn.cli.lab_input import LabLog
from inturn.cli.output import plain_console, print_line, visible_lines
from inturn.core.errors import InputError
from inturn.core.words import counted

if TYPE_CHECKING:
    from inturn.lab import LabResult
    from inturn.lab.design import Design
    from inturn.lab.page import AuditLink
    from inturn.lab.recommend import Recommendation
    from inturn.lab.scenario import Scenario
    from inturn.lab.sweep import SweepResult

MOST_READ: Final = 300_000
"""The number of messages at the start of an audited log from which distributions are fitted."""
_FITTED: Final = 10_000
"""The maximum number of messages that are drawn from the fitted distributions."""
_GAP_US: Final = 1_000
"""Time between two arrivals of a log without a clock."""
_TRIED: Final = (1, 2, 4, 8, 16)
"""The numbers of consumers that a recommendation tries, if no sweep sets others."""


@dataclass(frozen=True, kw_only=True)
class StudyRequest:
    """A user's questions to the lab.

    Attributes:
        knobs: knobs with other values than the input's.
        designs: names of the designs; empty for all that fit the input.
        sweeps: knobs with their values.
        seeds: seeds of each point of a sweep.
        recommend: greatest number of wrong groups and greatest p99 in seconds; None for no recommendation.
        split: whether commuting messages are removed from the order of their groups.
        follow: group and revision of the message to trace.
    """

    knobs: dict[str, Any] = field(default_factory=dict)
    designs: tuple[str, ...] = ()
    sweeps: tuple[tuple[str, list[float]], ...] = ()
    seeds: int = 5
    recommend: tuple[int, float] | None = None
    split: bool = False
    follow: tuple[str, int] | None = None


@dataclass(frozen=True, kw_only=True)
class LabStudy:
    """The lab's answers about one input."""

    scenario: "Scenario"
    result: "LabResult"
    sweeps: "list[SweepResult]"
    recommendation: "Recommendation | None"


def run_study(scenario: "Scenario", demand: StudyRequest, *, quiet: bool) -> LabStudy:
    """Run the designs, the sweeps and the recommendation, with progress on standard error.

    Raises:
        InputError: if a design, a knob or the followed message does not exist.
    """
    import msgspec

    from inturn.lab.designs import design_named
    from inturn.lab.recommend import recommend

    knobs = msgspec.structs.replace(scenario.knobs, **demand.knobs)
    scenario = replace(scenario, knobs=knobs, follow=demand.follow or scenario.follow)
    if demand.designs:
        scenario = replace(scenario, designs=[design_named(name) for name in demand.designs])
    with _reporting_designs(scenario, scenario.title, quiet=quiet) as watched:
        result = watched.run(split=demand.split)
    sweeps = []
    for knob, values in demand.sweeps:
        runs = counted(len(values) * demand.seeds, "run")
        with spinner(f"{scenario.title}: sweep over {knob}, {runs} of each design", quiet=quiet):
            sweeps.append(_run_sweep(scenario, knob, values, demand.seeds))
    recommendation = None
    if demand.recommend is not None:
        tried = next((values for knob, values in demand.sweeps if knob == "consumers"), _TRIED)
        other_counts = sorted({int(count) for count in tried} - {knobs.consumers})
        with spinner(f"{scenario.title}: with other numbers of consumers", quiet=quiet):
            runs_of = [result, *(scenario.run(split=demand.split, consumers=count) for count in other_counts)]
        max_wrong, p99_s = demand.recommend
        recommendation = recommend(runs_of, max_wrong=max_wrong, p99_s=p99_s)
    return LabStudy(scenario=scenario, result=result, sweeps=sweeps, recommendation=recommendation)


def study_like(messages: Iterable[tuple[str, int, int | None, float | None]], source: str, *, quiet: bool) -> LabStudy:
    """Run the lab on messages similar to those of a log: in arrivals, skew, lateness, copies and handler times.

    Args:
        messages: group, place, clock in microseconds and handler time in milliseconds of each, in the order of arrival.
        source: name of the log.
        quiet: whether to show no progress.

    Raises:
        InputError: if there are no messages.
    """
    from inturn.lab import Knobs, LabMessage
    from inturn.lab.fit import fitted
    from inturn.lab.scenario import Scenario

    messages_in_order, clock_us = list[LabMessage](), 0
    for group, place, time_us, duration_ms in messages:
        # The clock may be that of the events, so it is made non-decreasing in the order of arrival.
        clock_us = clock_us + _GAP_US if time_us is None else max(clock_us, time_us)
        duration_us = None if duration_ms is None or duration_ms < 0 else round(duration_ms * 1_000)
        messages_in_order.append(LabMessage(at_us=clock_us, group=group, revision=place, duration_us=duration_us))
    distinct = len({(message.group, message.revision) for message in messages_in_order})
    fitted_scenario = Scenario(
        name=source,
        title=f"messages similar to {source}",
        description=f"{min(distinct, _FITTED):,} messages, and copies, were drawn with the arrivals, skew, lateness "
        f"and copies of the first {len(messages_in_order):,} messages of {source}. "
        "Missing handler times are drawn too.",
        source=source,
        messages=fitted(messages_in_order, min(distinct, _FITTED)),
        pipeline=None,
        knobs=Knobs(),
    )
    return run_study(
        fitted_scenario, StudyRequest(sweeps=(("consumers", list(_TRIED)),), seeds=3, recommend=(0, 5.0)), quiet=quiet
    )


def _run_sweep(scenario: "Scenario", knob: str, values: Sequence[float], seeds: int) -> "SweepResult":
    from inturn.lab.sweep import sweep

    return sweep(
        scenario.messages,
        over=knob,
        values=values,
        seeds=seeds,
        pipeline=scenario.pipeline,
        knobs=scenario.knobs,
        designs=scenario.designs,
        handlers=scenario.handlers,
    )


class ReportingDesign:
    """A design that reports its start, and otherwise behaves like the wrapped one."""

    def __init__(self, design: "Design", began: Any) -> None:
        self._design = design
        self._began = began

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the wrapped design."""
        return getattr(self._design, name)

    def simulate(self, *args: Any) -> Any:
        """Run the design."""
        self._began(self._design.title)
        return self._design.simulate(*args)


@contextlib.contextmanager
def _reporting_designs(scenario: "Scenario", title: str, *, quiet: bool) -> "Iterator[Scenario]":
    """Show the running design at a terminal."""
    from inturn.lab.designs import default_designs

    console = plain_console(stderr=True)
    if quiet or not console.is_terminal:
        yield scenario
        return
    chosen = default_designs() if scenario.designs is None else scenario.designs
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        task = progress.add_task(visible_lines(title), total=len(chosen), completed=-1)

        def began(name: str) -> None:
            progress.update(task, advance=1, description=visible_lines(f"{title}: {name}"))

        watched: list[Any] = [ReportingDesign(design, began) for design in chosen]
        yield replace(scenario, designs=watched)


@contextlib.contextmanager
def spinner(title: str, *, quiet: bool) -> Iterator[None]:
    """Show a spinner at a terminal while the block runs."""
    console = plain_console(stderr=True)
    with console.status(Text(visible_lines(title))) if console.is_terminal and not quiet else contextlib.nullcontext():
        yield


def rendered(study: LabStudy, audit: "AuditLink | None" = None) -> str:
    """Return the page of a study.

    Raises:
        SetupError: if jinja2 is missing.
    """
    with needed("the page needs", "lab"):
        from inturn.lab.page import render

    return render(
        study.result,
        title=study.scenario.title,
        description=study.scenario.description,
        sweeps=study.sweeps,
        recommendation=study.recommendation,
        audit=audit,
    )


def write_page(study: LabStudy, out: Path) -> None:
    """Write the page of a study to a file.

    Raises:
        InputError: if it cannot be written.
    """
    page = rendered(study)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"--out {str(out)!r} cannot be written: {error.strerror}; expected a file, such as lab.html"
        ) from error


def document(study: LabStudy, read: LabLog | None = None, out: Path | None = None) -> dict[str, Any]:
    """Return the study as JSON values."""
    from inturn.lab.results import plain

    return {
        "result": plain(study.result),
        "sweeps": [plain(sweep) for sweep in study.sweeps],
        "recommendation": None if study.recommendation is None else plain(study.recommendation),
        "left_out": {"rows": read.left_out, "reasons": read.reasons} if read else {"rows": 0, "reasons": []},
        "page": None if out is None else str(out),
    }


def show(study: LabStudy, console: Console, read: LabLog | None = None, out: Path | None = None) -> None:
    """Print the table, the reasons and the recommendation."""
    from inturn.lab.page import words

    result = study.result
    print_line(console, f"{study.scenario.title}: {words.headline(result)}", style="bold")
    print_line(console, " ".join(words.input_words(result)), style="dim")
    if read and read.left_out:
        print_line(console, f"{counted(read.left_out, 'row')} left out: {'; '.join(read.reasons)}", style="yellow")
    table = Table("design", "wrong", "99% within", "per second", "wasted", "model basis", box=None, pad_edge=False)
    for column in table.columns[1:5]:
        column.justify = "right"
    for design_result in words.ranked(result):
        colour = "red" if design_result.wrong_groups else "green" if words.is_clean(design_result) else "yellow"
        table.add_row(
            Text(design_result.design),
            Text(f"{design_result.wrong_groups:,}" if design_result.wrong_groups else "none", colour),
            words.span(design_result.latency.p99_us),
            words.rate(design_result.throughput_per_s),
            words.share(words.wasted_share(design_result)),
            Text(design_result.standing, "dim"),
        )
    console.print(table)
    for design_result in words.ranked(result):
        for reason in design_result.reasons:
            print_line(console, f"{design_result.design}: {words.sentence(reason)}")
    if study.recommendation is not None:
        _show_recommendation(study, console)
    if out is not None:
        print_line(console, f"page {out}")


def _show_recommendation(study: LabStudy, console: Console) -> None:
    from inturn.lab.page import words

    recommendation = study.recommendation
    if recommendation is None:
        return
    if recommendation.design is None:
        print_line(console, f"Nothing to recommend: {words.sentence(recommendation.why)}", style="bold red")
    else:
        print_line(
            console, f"Recommended: {recommendation.design}. {words.sentence(recommendation.why)}", style="bold green"
        )
    for refusal in recommendation.refused:
        print_line(console, f"  not {refusal.design}: {words.sentence(refusal.why)}")
