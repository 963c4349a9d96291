"""``inturn check``: a differential test of the engines with the user's pipeline and messages."""

import contextlib
import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from inturn.cli.lab_knobs import fraction
from inturn.cli.options import AsJson, MessageFileOptions, MessagesFrom, PipelineAt
from inturn.cli.output import plain_console, print_json, print_line, visible_lines
from inturn.cli.targets import check_no_database
from inturn.core.errors import InputError, InturnError
from inturn.core.words import counted
from inturn.definitions import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from inturn.cli.sample import Sample
    from inturn.core.pipeline.definition import Pipeline
    from inturn.testing import Comparison, Difference, EngineResult

_MOST_SHOWN: Final = 5
"""The number of differences of an engine that are printed; JSON contains all of them."""
_REASONS: Final = 3
"""The number of reasons for rejections that are printed."""


def check(
    pipeline: PipelineAt,
    *,
    source: MessagesFrom,
    engines: Annotated[
        str, "Engines to compare: worker, batch, stream (replay always runs; worker needs no Spark)."
    ] = "replay,worker,batch,stream",
    seed: Annotated[int, "Random seed for batch boundaries and restarts."] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="Use only the first N messages.")] = None,
    disorder: Annotated[bool, "First make some messages late, out of order and duplicated."] = False,
    form: MessageFileOptions,
    max_rejected: Annotated[
        str, typer.Option(metavar="SHARE", help="Fail if a larger share of the messages is rejected or unreadable.")
    ] = "10%",
    master: Annotated[
        str, "Spark master: local[*], or a cluster with access to the temporary files of this machine."
    ] = "local[*]",
    as_json: AsJson = False,
) -> None:
    """Run your pipeline on your messages with each engine, and compare the results.

    Also reports a handler that is not deterministic. The exit code is 1 if engines differ, if the handler is not
    deterministic, or if too many messages are rejected, since the pipeline does not fit the messages then.
    """
    max_share = fraction(max_rejected, "--max-rejected")
    with contextlib.ExitStack() as stack:
        check_no_database(source)
        from inturn.cli.sample import from_lines, from_spark, line_files
        from inturn.testing import NotDeterministic, compare
        from inturn.testing.compare import ON_SPARK

        engine_names = [name.strip() for name in engines.split(",") if name.strip()]
        definition = load(pipeline)
        files = line_files(source, form.format_)
        dialect, change_events = form.dialect(csv=files is None), form.has_change_events
        spark = None
        if files is None or any(name in ON_SPARK for name in engine_names):
            from inturn.spark.local.session import running_session

            spark = stack.enter_context(running_session(master))
        with _showing(spark, f"reading {source}", quiet=as_json):
            if files is not None:
                sample = from_lines(definition, files, limit, change_events=change_events)
            else:
                assert spark is not None  # noqa: S101 - started above
                sample = from_spark(
                    spark, definition, source, form.format_, limit, dialect, change_events=change_events
                )
        messages = _disordered(definition, sample.messages, seed) if disorder else sample.messages
        try:
            comparison = compare(
                definition,
                messages,
                engines=engine_names,
                seed=seed,
                spark=spark,
                around=lambda name: _showing(spark, f"{definition.name}: {name}", quiet=as_json),
            )
        except NotDeterministic as fault:
            _name(str(fault), as_json=as_json)
            raise typer.Exit(1) from fault
        rejected = _rejections(comparison, sample, definition, messages)
        if as_json:
            print_json(_document(comparison, sample, seed) | {"rejections": rejected._asdict()})
        else:
            _show(comparison, sample, definition, source, seed)
            _show_rejections(rejected, max_share)
        if comparison.differences or rejected.share > max_share:
            raise typer.Exit(1)


class _Rejections(NamedTuple):
    """The messages that were rejected or could not be read, as a share of all, with the commonest reasons."""

    messages: int
    share: float
    commonest: list[tuple[str, int]]


def _rejections(comparison: "Comparison", sample: "Sample", pipeline: "Pipeline", messages: list[Any]) -> _Rejections:
    counts = comparison.results["replay"].counts
    left_out, rejected = len(sample.left_out), sum(counts.rejected.values())
    reasons = Counter(map(_without_details, sample.left_out))
    if rejected:
        try:
            reasons.update(
                f"{rejection.reason}: {_without_details(rejection.detail)}"
                for rejection in pipeline.replay(messages).rejected
            )
        except InturnError:  # raised by a policy that the comparison leaves out
            reasons.update(counts.rejected)
    total = counts.received + left_out
    return _Rejections(left_out + rejected, (left_out + rejected) / max(total, 1), reasons.most_common(_REASONS))


def _without_details(reason: str) -> str:
    """Return a reason without the line and the values of one message, so that the same reasons can be counted."""
    return re.sub(r"""'[^']*'|"[^"]*"|\b\d[\w.:+-]*""", "…", re.sub(r"^.*?, line \d+:? ", "", reason))


def _show_rejections(rejected: _Rejections, most: float) -> None:
    if rejected.share <= most:
        return
    console = plain_console()
    summary = f"{counted(rejected.messages, 'message')} ({rejected.share:.0%}) rejected; --max-rejected is {most:.0%}:"
    print_line(console, summary, "bold red")
    for reason, count in rejected.commonest:
        print_line(console, f"  {counted(count, 'time')}: {reason}")


def _name(fault: str, *, as_json: bool) -> None:
    """Print that the handler is not deterministic."""
    if as_json:
        print_json({"agree": False, "not_deterministic": fault})
    else:
        print_line(plain_console(), f"{fault[0].upper()}{fault[1:]}.", "bold red")


@contextlib.contextmanager
def _showing(spark: "SparkSession | None", title: str, *, quiet: bool) -> Iterator[None]:
    """Show progress on standard error, only at a terminal."""
    if spark is not None:
        from inturn.spark.local.progress import show_progress

        with show_progress(spark, title, quiet=quiet):
            yield
        return
    console = plain_console(stderr=True)
    with console.status(Text(visible_lines(title))) if console.is_terminal and not quiet else contextlib.nullcontext():
        yield


def _disordered(pipeline: "Pipeline", messages: list[Any], seed: int) -> list[Any]:
    from inturn.testing import disorder
    from inturn.testing.engine_input import value_of

    name = pipeline.arrival
    ordered = {type(value_of(message, name)) for message in messages} if name else set()
    if not ordered <= {int, type(None)}:
        kinds = ", ".join(sorted(kind.__name__ for kind in ordered))
        raise InputError(f"--disorder renumbers {name!r}, the order of arrival, which is {kinds}; omit --disorder")
    return disorder(messages, seed=seed, arrival=name if int in ordered else None)


def _show(comparison: "Comparison", sample: "Sample", pipeline: "Pipeline", source: str, seed: int) -> None:
    console = plain_console()
    title = Text(visible_lines(f"{pipeline.name}: {source}, seed {seed}"), "table.title")
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    for name in ("engine", "groups", "messages", "applied", "duplicate", "held", "rejected", "outputs", "s", "agrees"):
        table.add_column(name, justify="left" if name in ("engine", "agrees") else "right")
    failed = [difference.other for difference in comparison.differences if difference.other not in comparison.results]
    for name in (*comparison.results, *failed):
        agrees = comparison.agrees(name)
        word = "reference" if name == "replay" else "yes" if agrees else "NO"
        cells = _cells(comparison.results[name]) if name in comparison.results else [""] * 8
        table.add_row(name, *cells, Text(word, "" if name == "replay" else "green" if agrees else "bold red"))
    console.print(table)
    for line in _left_out(sample, pipeline):
        print_line(console, line, "yellow")
    for note in comparison.notes:
        print_line(console, f"Note: {note}.", "yellow")
    if not comparison.differences:
        rule = comparison.results["replay"]
        outputs = sum(map(len, rule.outputs.values()))
        summary = f"{len(rule.states):,} groups, {rule.counts.applied:,} messages applied, {outputs:,} outputs"
        print_line(console, f"All engines agree: {summary}. The handler is deterministic.", "green")
    for name in dict.fromkeys(difference.other for difference in comparison.differences):
        _print_differences(
            console, name, [difference for difference in comparison.differences if difference.other == name]
        )


def _numbers(result: "EngineResult") -> dict[str, Any]:
    """Return the numbers of a result, by their names in the JSON."""
    counts = result.counts
    return {
        "groups": len(result.states),
        "received": counts.received,
        "applied": counts.applied,
        "duplicate_or_stale": counts.duplicate + counts.stale,
        "held": result.holding(),
        "rejected": counts.rejected,
        "outputs": sum(map(len, result.outputs.values())),
    }


def _cells(result: "EngineResult") -> list[str]:
    numbers = _numbers(result)
    numbers["rejected"] = sum(numbers["rejected"].values())
    return [*(f"{number:,}" for number in numbers.values()), f"{result.seconds:.1f}"]


def _left_out(sample: "Sample", pipeline: "Pipeline") -> Iterator[str]:
    if sample.left_out:
        count = counted(len(sample.left_out), "message")
        kind = f" as {pipeline.message.__name__}" if pipeline.message else ""
        yield f"Unreadable{kind}: {count}, such as {sample.left_out[0]}"


def _print_differences(console: Console, engine: str, differences: "list[Difference]") -> None:
    """Print the differences in words."""
    groups = {difference.group for difference in differences if difference.group is not None}
    if groups:
        print_line(console, f"{engine} differs in {counted(len(groups), 'group')}:", "bold red")
    for difference in differences[:_MOST_SHOWN]:
        print_line(console, f"  {difference}")
    if len(differences) > _MOST_SHOWN:
        print_line(console, f"  … and {len(differences) - _MOST_SHOWN:,} more; use --json for all")


def _document(comparison: "Comparison", sample: "Sample", seed: int) -> dict[str, Any]:
    """Return the comparison as JSON values."""
    engines = {
        name: {"agrees": comparison.agrees(name), **_numbers(result), "seconds": round(result.seconds, 3)}
        for name, result in comparison.results.items()
    }
    differences = [
        {"engine": difference.other, "group": difference.group, "what": difference.what, "says": str(difference)}
        for difference in comparison.differences
    ]
    return {
        "agree": not differences,
        "seed": seed,
        "engines": engines,
        "differences": differences,
        "notes": comparison.notes,
        "left_out": sample.left_out,
    }
