"""``inturn demo``: deliver real flights badly, put them in order on Spark, and show who got the answers wrong."""

import json as json_text
import os
import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table

from inturn.core.errors import SetupError
from inturn.demo import delivery, flights, naive, page, picture
from inturn.demo import result as results
from inturn.demo.crash import CHECKPOINT, FILES, STREAM, stream
from inturn.demo.result import DISTINCT, INTURN, NAIVE, REASONS, Result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from inturn.core.fold import Counts

    Part = Callable[[str], AbstractContextManager[None]]

NEEDED = (flights.PACKAGE, "jinja2", "matplotlib", "pyarrow", "pyspark")
MARK = ".inturn-demo"  # a folder with this file in it is the demo's own
FIRST, SECOND = "delivery-1.parquet", "delivery-2.parquet"
BUCKETS = 4  # few messages: more tasks would cost more than they win
STORE, PICTURE, PAGE = "store", "demo.png", "demo.html"


def main(
    out: Path = Path("demo"),
    *,
    json: bool = False,
    crash: bool = False,
    cores: str | int = "*",
    spark: "SparkSession | None" = None,
) -> Result:
    """Run the demo and show what came out.

    Args:
        out: the folder to write to; what an earlier demo made there is made anew.
        json: write one JSON document to standard output in place of the tables.
        crash: deliver as a stream whose driver is killed in the middle and started again.
        cores: how many tasks Spark runs at once; ``"*"`` is one for each core.
        spark: the session to work in, which is left running; without it one is started, and stopped at the end.

    Returns:
        What the demo found out; its ``good`` says whether everything was as it should be.

    Raises:
        SetupError: Spark, Java, the data or a library is missing, or the folder holds files that are not the demo's.
    """
    progress = Console(stderr=True)
    seconds: dict[str, float] = {}

    @contextmanager
    def part(name: str) -> Iterator[None]:
        began = time.perf_counter()
        with progress.status(f"{name} …"):
            yield
        seconds[name] = round(time.perf_counter() - began, 1)
        progress.print(f"[green]✓[/] {name} [dim]{seconds[name]:.1f} s[/]", highlight=False)

    check()
    prepare(out)
    if spark is not None:
        result = play(spark, out, part, crash=crash)
    else:
        with part("Starting Spark"):
            from inturn.spark.local.session import local_session

            # So short a run is over before the optimising compiler of Java has earned what it costs.
            os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
            own = local_session("inturn demo", cores=cores)
        try:
            result = play(own, out, part, crash=crash)
        finally:
            own.stop()
    with part("Drawing the picture"):
        picture.draw(result, out / PICTURE)
        text = page.render(result, (out / PICTURE).read_bytes(), hints(out))
        (out / PAGE).write_text(text, encoding="utf-8")
    if json:
        files = {"picture": str(out / PICTURE), "page": str(out / PAGE), "store": str(out / STORE)}
        document = result.as_json() | files | {"seconds": seconds}
        sys.stdout.write(json_text.dumps(document, ensure_ascii=False, indent=2) + "\n")
    else:
        _show(Console(), result, out)
    return result


def check() -> None:
    """Look for everything the demo needs, so that nothing is found missing when most of the work is done.

    Raises:
        SetupError: a package is not installed.
    """
    for name in NEEDED:
        if find_spec(name) is None:
            raise SetupError(f"the demo needs {name}; install it with: pip install 'inturn[demo]'")


def prepare(out: Path) -> None:
    """Make the folder ready: what an earlier demo made is deleted, what somebody else made is left and refused.

    Raises:
        SetupError: the folder holds a file of the demo's names that no demo made.
    """
    made = [path for name in (FIRST, SECOND, STREAM, CHECKPOINT, STORE, PICTURE, PAGE) if (path := out / name).exists()]
    if made and not (out / MARK).exists():
        raise SetupError(f"{made[0]} is there already and no demo made it; give another folder with --out")
    for path in made:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    out.mkdir(parents=True, exist_ok=True)
    (out / MARK).write_text("inturn demo made the files beside this one, and deletes them when it runs again\n")


def play(spark: "SparkSession", out: Path, part: "Part", *, crash: bool = False) -> Result:
    """Deliver, put in order, ask the naive pipelines too, and compare with the truth.

    Args:
        spark: the session to work in.
        out: the folder for the messages and the store, empty of both.
        part: a context manager that is entered with the name of each part of the work.
        crash: deliver as a stream whose driver is killed in the middle and started again.
    """
    import inturn.spark

    with part("Reading the flights and delivering them badly"):
        legs = flights.read_legs()
        sent = delivery.deliver(flights.events(legs), flights.strays(legs))
        truth = flights.truth(legs)
        files = [str(out / FIRST), str(out / SECOND)]
        for rows, file in zip((sent.first, sent.second), files, strict=True):
            delivery.write(rows, Path(file))
    store = str(out / STORE)
    if crash:
        steps = stream(sent, out, store, BUCKETS, part)
        first = FILES
    else:
        steps = _batches(spark, files, store, part)
        first = 1
    with part("Reading the tables"):
        waiting = inturn.spark.read(spark, store, "states", step=first).where("status = 'waiting'").count()
        states = naive.answers(inturn.spark.read(spark, store, "states"), "group")
        outputs = inturn.spark.read(spark, store, "outputs").count()
    with part("The last write wins, with and without copies"):
        messages = spark.read.parquet(*files)
        distinct = naive.without_copies(messages)
        found = {
            NAIVE: naive.answers(naive.last_write_wins(messages)),
            DISTINCT: naive.answers(naive.last_write_wins(distinct)),
            INTURN: states,
        }
    wrong = [tail for tail, true in truth.items() if any(naive.faults(true, found[NAIVE].get(tail)))]
    knot = results.choose_knot(sent.rows, wrong or list(truth))
    return Result(
        messages=len(sent.rows),
        aircraft=len(truth),
        late=sent.late,
        twice=sent.twice,
        missing=sent.missing,
        contradicted=sent.contradicted,
        waiting=waiting,
        steps=steps,
        outputs=outputs,
        landings=sum(true.legs for true in truth.values()),
        wrong={name: naive.compare(truth, answers) for name, answers in found.items()},
        knot=knot,
        examples=results.choose_examples(truth, found, [knot.tail, sent.contradicted]),
    )


def _batches(spark: "SparkSession", files: list[str], store: str, part: "Part") -> "list[Counts]":
    import inturn.spark
    from inturn.demo.pipeline import aircraft

    says = ("inturn, delivery 1: what lacks a predecessor waits", "inturn, delivery 2: what waited is released")
    steps = []
    for name, file in zip(says, files, strict=True):
        with part(name):
            steps.append(inturn.spark.batch(aircraft, spark.read.parquet(file), store=store, buckets=BUCKETS).counts)
    return steps


def hints(out: Path) -> list[str]:
    """Commands to try next: the same two steps by hand."""
    files = (shlex.quote(str(out / name)) for name in (FIRST, SECOND))
    return [f"inturn run inturn.demo.pipeline:aircraft --from {file} --store out/" for file in files]


def _show(console: Console, result: Result, out: Path) -> None:
    console.print()
    console.print(
        f"{result.messages:,} messages about {result.aircraft:,} aircraft: {result.late:,} hours late, "
        f"{result.twice:,} delivered twice, {result.missing} missing until the second delivery, "
        "1 again with other content.\n",
        highlight=False,
    )
    console.print(_counts_table(result))
    reasons = sum((Counter(counts.rejected) for counts in result.steps), Counter[str]())
    rejected = ", ".join(f"{count} {REASONS.get(why, why)}" for why, count in reasons.items())
    console.print(
        f"After delivery 1, {result.waiting:,} aircraft waited for a message that had not come; delivery 2 brought "
        f"it.\nRejected: {rejected}. Outputs: {result.outputs:,}, one for each of {result.landings:,} landings.\n",
        highlight=False,
    )
    console.print(_wrong_table(result))
    console.print(f"[dim]{NAIVE}: {naive.LAST_WRITE}\n{DISTINCT}: {naive.WITHOUT_COPIES}[/]", highlight=False)
    console.print()
    if not result.good:
        console.print("[red]This is not as it should be: please report it.[/]")
    for name, path in (("picture", out / PICTURE), ("page", out / PAGE), ("store", out / STORE)):
        console.print(f"{name:8} {path}", highlight=False, soft_wrap=True)
    for at, hint in enumerate(hints(out)):
        console.print(f"{'' if at else 'try':8} {hint}", highlight=False, soft_wrap=True)


def _counts_table(result: Result) -> Table:
    names = ("received", "released", "applied", "duplicate", "stale", "held")
    table = _table("received + released = applied + duplicate + stale + held + rejected", *names, "rejected")
    what = "delivery" if len(result.steps) == 2 else "step"
    for number, counts in enumerate(result.steps, start=1):
        numbers = [*(getattr(counts, name) for name in names), sum(counts.rejected.values())]
        table.add_row(f"{what} {number}", *(f"{each:,}" for each in numbers))
    return table


def _wrong_table(result: Result) -> Table:
    table = _table(f"Of {result.aircraft:,} aircraft, wrong at the end", *result.wrong)
    rows = (
        ("location", "place"),
        ("legs", "flights"),
        ("minutes", "minutes in the air"),
        ("phantoms", "landed before it left"),
        ("aircraft", "any of these"),
    )
    for key, name in rows:
        numbers = [getattr(wrong, key) for wrong in result.wrong.values()]
        table.add_row(name, *(f"[{'red' if number else 'green'}]{number:,}[/]" for number in numbers))
    return table


def _table(title: str, *numbers: str) -> Table:
    """A table with a column of names and then columns of numbers."""
    table = Table(
        box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", padding=(0, 1, 0, 0), pad_edge=False
    )
    table.add_column("", no_wrap=True)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table
