"""Parameters of commands as options: a text is an option's help, and a dataclass is one option for each of its fields.

``limit: Annotated[int, "Maximum number of results."] = 100`` is ``--limit``. Options that several commands share are
the fields of a frozen dataclass, and a command takes the dataclass as one value. ``typer.Option`` is for options with
another name, a range or a callback; a field without help is not an option.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import MISSING, asdict, fields, is_dataclass
from inspect import Parameter
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast, get_args, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Command = TypeVar("Command", bound=Callable[..., Any])


def expanded(command: Command) -> Command:
    """Return a command for typer that makes the dataclasses of its parameters from one option for each field."""
    signature = inspect.signature(command, eval_str=True)
    parameters: list[Parameter] = []
    groups: dict[str, tuple[type[DataclassInstance], list[str]]] = {}
    for parameter in signature.parameters.values():
        if is_dataclass(parameter.annotation) and isinstance(parameter.annotation, type):
            members = [*_members(parameter.annotation)]
            groups[parameter.name] = parameter.annotation, [member.name for member in members]
            parameters += members
        else:
            parameters.append(_parameter(parameter.name, parameter.annotation, parameter.default))

    @functools.wraps(command)
    def call(**arguments: Any) -> Any:
        values = {
            name: group(**{option: arguments.pop(option) for option in option_names})
            for name, (group, option_names) in groups.items()
        }
        return command(**arguments, **values)

    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return cast("Command", call)


def names(command: Callable[..., Any]) -> dict[str, str]:
    """Return the options of an expanded command by the names of their parameters."""
    infos = {
        name: get_args(parameter.annotation)[1] for name, parameter in inspect.signature(command).parameters.items()
    }
    return {
        name: info.default if isinstance(info.default, str) else spelling(name)
        for name, info in infos.items()
        if isinstance(info, OptionInfo)
    }


def given_options(options: "DataclassInstance") -> dict[str, Any]:
    """Return the options that are set, by name: without those that are None, and without flags that are not set."""
    return {name: value for name, value in asdict(options).items() if value is not None and value is not False}


def spelling(name: str) -> str:
    """Return the option of a parameter, such as ``--wait-s`` for ``wait_s``."""
    return f"--{name.strip('_').replace('_', '-')}"


def _members(group: "type[DataclassInstance]") -> Iterator[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        if len(get_args(hints[field.name])) > 1 and hasattr(hints[field.name], "__metadata__"):
            yield _parameter(
                field.name, hints[field.name], Parameter.empty if field.default is MISSING else field.default
            )


def _parameter(name: str, annotation: Any, default: Any) -> Parameter:
    kind, info = get_args(annotation)[:2]
    info = typer.Option(help=info) if isinstance(info, str) else copy(info)
    if isinstance(info, OptionInfo) and info.default is ... and not info.param_decls:
        info.param_decls = (spelling(name),)  # without a name, typer would add --no-… to a flag
    elif isinstance(info, ArgumentInfo):
        info.metavar = info.metavar or name.strip("_").upper()
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info])
