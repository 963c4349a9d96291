"""The demo's output on the console."""

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from inturn.core.pipeline.journal import Counts
from inturn.demo import naive
from inturn.demo.delivery import MISSPELT
from inturn.demo.result import DISTINCT, NAIVE, REASONS, DemoResult

_COUNTS = ("received", "released", "applied", "duplicate", "stale", "held")


def show(console: Console, result: DemoResult, files: Mapping[str, str], hints: Sequence[str], last: str) -> None:
    """Print the tables, explanations, and locations of the files.

    Args:
        console: target of the output.
        result: result of the demo.
        files: files by purpose.
        hints: commands to try next.
        last: the command that opens the console; the last line.
    """
    kill = result.kill
    airlines = ", ".join(f"{name} {count:,}" for name, count in result.producers.items())
    console.print(
        f"\n{result.messages:,} messages about {result.aircraft:,} aircraft, sent by {len(result.producers)} processes "
        f"at the same time ({airlines}): {result.late:,} were hours late, {result.twice:,} were sent twice, 1 was sent "
        "again with other content.\n",
        highlight=False,
    )
    if result.intake is not None:
        console.print(
            f"They arrived through {result.intake.broker}: {result.intake.received:,} were ingested, each once, and "
            f"{result.intake.rejected} without a tail number were rejected.\n",
            highlight=False,
        )
    console.print(_counts_table(result))
    console.print(
        f"Spark was killed in step {kill.step}, before its commit: the {kill.again:,} messages of that step were "
        f"processed again. {kill.waiting:,} aircraft lacked a message at that time.\n",
        highlight=False,
    )
    console.print(_wrong_table(result))
    console.print(f"[dim]{NAIVE}: {naive.LAST_WRITE}\n{DISTINCT}: {naive.WITHOUT_COPIES}", highlight=False)
    console.print("[dim]phantom landings: processed before the departure of their flight\n", highlight=False)
    if result.good:
        console.print(
            f"The results of Spark and of the worker are equal: {result.aircraft:,} states, {result.outputs:,} outputs "
            "with the same effect ids, one for each landing, and "
            f"{sum(result.process.rejected.values())} rejected messages.\n",
            highlight=False,
        )
    else:
        console.print(f"[red]The results are wrong, please report this:[/] {result.differences}\n", highlight=False)
    for name, path in files.items():
        console.print(f"{name:8} {path}", highlight=False, soft_wrap=True)
    for index, hint in enumerate(hints):
        console.print(f"{'' if index else 'try':8} {hint}", highlight=False, soft_wrap=True)
    console.print(
        f"\n[bold]{result.misspelt} is parked[/]: for a cancelled flight its airline wrote “{MISSPELT}”, which the "
        "handler refuses. Show the reason, correct the message and resume the aircraft:",
        highlight=False,
    )
    console.print(last, highlight=False, soft_wrap=True)


def _counts_table(result: DemoResult) -> Table:
    table = _table("received + released = applied + duplicate + stale + held + rejected", *_COUNTS, "rejected")
    for number, counts in enumerate(result.steps, start=1):
        table.add_row(f"step {number}{', again' if number == result.kill.step else ''}", *_row(counts))
    table.add_section()
    table.add_row("on Spark", *_row(result.spark))
    table.add_row("in process", *_row(result.process))
    rejected = ", ".join(f"{count} {REASONS.get(reason, reason)}" for reason, count in result.process.rejected.items())
    table.caption, table.caption_justify = f"Rejected: {rejected}", "left"
    return table


def _row(counts: Counts) -> list[str]:
    numbers = [*(getattr(counts, name) for name in _COUNTS), sum(counts.rejected.values())]
    return [f"{number:,}" for number in numbers]


def _wrong_table(result: DemoResult) -> Table:
    table = _table(f"Of {result.aircraft:,} aircraft, wrong at the end", *result.wrong)
    rows = (
        ("location", "place"),
        ("legs", "flights"),
        ("minutes", "minutes in the air"),
        ("phantoms", "phantom landings"),
        ("aircraft", "any of these"),
    )
    for key, name in rows:
        numbers = [getattr(wrong, key) for wrong in result.wrong.values()]
        table.add_row(name, *(f"[{'red' if number else 'green'}]{number:,}[/]" for number in numbers))
    return table


def _table(title: str, *numbers: str) -> Table:
    """Return a table with a column of names and columns of numbers."""
    table = Table(
        box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", padding=(0, 1, 0, 0), pad_edge=False
    )
    table.add_column("", no_wrap=True)
    for name in numbers:
        table.add_column(name, justify="right", min_width=max(map(len, name.split())))
    return table
