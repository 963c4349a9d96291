"""Error messages for configuration files, in terms of TOML instead of msgspec."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import msgspec


def misfit_text(text: str, tables: Mapping[str, Any], data: dict[str, Any], source: str) -> str:
    """Return the error text for a configuration, with the line and the table of the error.

    Args:
        text: msgspec's error text.
        tables: the type of each table by its name; "" is the whole configuration.
        data: the parsed data.
        source: the text of the file.
    """
    what, _, path = text.partition(" - at `$")
    steps = re.findall(r"[^.\[\]`]+", path)
    table = steps.pop(0) if steps else ""
    number = int(steps.pop(0)) if steps and steps[0].isdigit() else None
    name = steps[0] if steps else None
    named = re.search(r"field `(.*)`$", what)
    if named and "unknown" in what:
        name, what = named[1], _unknown(named[1], tables.get(table))
    elif named:
        what = f"the setting {named[1]!r} is missing"
    elif table not in tables or (table and number is None and what.startswith("Expected") and name is None):
        what = f"expected {f'[[{table}]] tables' if table in {'keys', 'queues', 'webhooks'} else 'a table'}"
    elif name is not None:
        what = misfit(tables[table], name, _value(data, table, number, name))
    line = _line(source, table, number or 0, name)
    place = "" if not table else f"[{table}]" if number is None else f"[[{table}]] number {number + 1}"
    where = ", ".join(part for part in (f"line {line}" if line else "", place) if part)
    return f"{where}: {what}" if where else what


def _unknown(name: str, table: Any) -> str:
    known = () if table is None else table.__struct_fields__
    near = get_close_matches(name, known, 1)
    meant = f"; did you mean {near[0]!r}? Known" if near else "; known"
    return f"unknown setting {name!r}{meant} settings: {', '.join(known)}"


def misfit(table: Any, name: str, value: Any) -> str:
    """Return the error text for an invalid value of a setting in a table of this type."""
    info = msgspec.inspect.type_info(table)
    fields = {each.name: each.type for each in info.fields} if isinstance(info, msgspec.inspect.StructType) else {}
    of = fields.get(name)
    expected = (of.extra_json_schema or {}).get("description", "") if isinstance(of, msgspec.inspect.Metadata) else ""
    shown = "of the wrong type" if name in {"secret", "secrets"} else f"{value!r}"
    return f"{name} is {shown}; expected {expected}"


def _value(data: Any, table: str, number: int | None, name: str) -> Any:
    found = data.get(table)
    if number is not None and isinstance(found, Sequence):
        found = found[number]
    return found.get(name) if isinstance(found, dict) else found


def _line(source: str, table: str, number: int, name: str | None) -> int | None:
    """Return the line of a name in a table, or of the table; None if the text has an unusual form."""
    current, seen = "", Counter[str]()
    for line, text in enumerate(source.splitlines(), 1):
        header = re.match(r"\s*(\[\[?)\s*([\w-]+)", text)
        if header:
            current = header[2]
            seen[current] += header[1] == "[["
            is_it = name is None
            if not table and current == name:
                return line
        else:
            key = re.match(r"\s*[\"']?([\w-]+)", text)
            is_it = name is not None and key is not None and key[1] == name
        if is_it and current == table and (not seen[current] or seen[current] == number + 1):
            return line
    return None
