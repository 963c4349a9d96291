r"""Rules for texts: which texts are accepted, and how texts kept for people are made storable and shown.

Two rules, the same for every engine, store and command:

- *Input*: every text that a user gives must be one that UTF-8 can hold. The name of a group and an id must also have 1
  to 1,000 characters and no NUL. All other content is data and is kept as it is. A text that does not fit is refused
  where it is an argument. In a message of a pipeline it makes that message invalid.
- *Kept for people*: errors, tracebacks, notes, reasons and the names of files are never refused. Characters that cannot
  be stored become visible escapes: ``caf\udce9.txt``. The text of an exception is made by :func:`text_of` and
  :func:`traceback_of`, since the exception may be of anybody's code.
"""

import traceback
from collections.abc import Iterable, Mapping, Set
from typing import Any, Final

from inturn.core import limits
from inturn.core.errors import InputError
from inturn.core.source_lines import lines_as_loaded

_OTHERS: Final = frozenset({int, float, bool, bytes, type(None)})
"""Types of values that contain no text."""
_FIT: Final = f"it is a text of 1 to {limits.ID_LENGTH} characters"


def half_at(text: str) -> int | None:
    """Return where a text has half of a surrogate pair, which no UTF-8 can hold; None if it has none."""
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return None


def is_text(text: str) -> bool:
    """Return whether UTF-8 can hold a text: it has no half of a surrogate pair."""
    return half_at(text) is None


def name_fault(what: str, name: str) -> str:
    r"""Return why a text cannot be the name of a group or an id; empty if it can.

    >>> name_fault("group", "acct-1"), name_fault("group", "")
    ('', "group is ''; it is a text of 1 to 1000 characters")
    """
    if 0 < len(name) <= limits.ID_LENGTH and name.isascii() and "\0" not in name:  # as nearly all are
        return ""
    if not 0 < len(name) <= limits.ID_LENGTH:
        return f"{what} is {quoted(name)}; {_FIT}"
    if "\0" in name:
        return (
            f"the {what} {quoted(name)} has a NUL at {name.index(chr(0))}, which not every store can keep; leave it out"
        )
    return text_fault(what, name)


def text_fault(what: str, text: str) -> str:
    """Return why no UTF-8 can hold a text; empty if it can."""
    at = half_at(text)
    if at is None:
        return ""
    return f"the {what} {quoted(text)} has half a surrogate pair at {at}, which no UTF-8 can hold; mend the text"


def checked(what: str, name: object) -> str:
    """Return the name of a group, or an id, after checking it.

    Raises:
        InputError: if it cannot be one.
    """
    if not isinstance(name, str):
        raise InputError(f"{what} is {name!r}; {_FIT}")
    if 0 < len(name) <= limits.ID_LENGTH and name.isascii() and "\0" not in name:  # as nearly all are
        return name
    if fault := name_fault(what, name):
        raise InputError(fault)
    return name


def checked_text(what: str, text: object) -> str:
    """Return a text, if UTF-8 can hold it.

    Raises:
        InputError: if it is no text, or one that UTF-8 cannot hold.
    """
    if not isinstance(text, str):
        raise InputError(f"{what} is {text!r}; it is a text")
    if fault := text_fault(what, text):
        raise InputError(fault)
    return text


def unholdable(value: Any) -> str | None:
    r"""Return the path to the first text within a value that no UTF-8 can hold; None if there is none.

    >>> unholdable({"items": [{"name": "ok"}, {"name": "\ud800"}]})
    'items[1].name'
    """
    return None if _is_holdable(value) else _path(value, "")


def _is_holdable(value: Any) -> bool:
    """Return whether UTF-8 can hold all texts within a value; nearly always true, and checked for every message."""
    if value.__class__ in _OTHERS:
        return True
    if isinstance(value, str):
        return is_text(value)
    if isinstance(value, Mapping):
        return _are_holdable(value) and _are_holdable(value.values())
    if isinstance(value, list | tuple | Set):
        return _are_holdable(value)
    return all(_is_holdable(getattr(value, name, None)) for name in _fields(value))


def _are_holdable(values: Iterable[Any]) -> bool:
    for each in values:  # a call for each value would take twice as long
        kind = each.__class__
        if not (each.isascii() if kind is str else kind in _OTHERS) and not _is_holdable(each):
            return False
    return True


def _fields(value: Any) -> Iterable[str]:
    """Return the fields of a dataclass, a Struct or a model; none of any other value."""
    known = ("__struct_fields__", "__dataclass_fields__", "__pydantic_fields__")
    return next(filter(None, (getattr(value, each, ()) for each in known)), ())


def _path(value: Any, path: str) -> str:
    if isinstance(value, str):
        return path or "the text"
    parts: Iterable[tuple[str, Any]]
    if isinstance(value, Mapping):
        if not all(map(_is_holdable, value)):
            return f"a name in {path}" if path else "a name"
        parts = ((f"{path}.{key}" if path else f"{key}", each) for key, each in value.items())
    elif isinstance(value, list | tuple | Set):
        parts = ((f"{path}[{at}]", each) for at, each in enumerate(value))
    else:
        parts = ((f"{path}.{name}" if path else name, getattr(value, name, None)) for name in _fields(value))
    return next((_path(each, at) for at, each in parts if not _is_holdable(each)), path)


def storable(text: str) -> str:
    r"""Return a text that every store can keep: half surrogate pairs and NUL become visible escapes.

    >>> storable("caf\udce9 \0")
    'caf\\udce9 \\x00'
    """
    if half_at(text) is not None:
        text = text.encode(errors="backslashreplace").decode()
    return text.replace("\0", "\\x00") if "\0" in text else text


def note(what: str, text: object) -> str:
    """Return a person's note as it is kept: storable, and no longer than ``limits.ERROR_LENGTH``.

    Raises:
        InputError: if it is no text.
    """
    if not isinstance(text, str):
        raise InputError(f"{what} is {text!r}; it is a text")
    return storable(text[: limits.ERROR_LENGTH])[: limits.ERROR_LENGTH]


def text_of(error: BaseException) -> str:
    """Return the text of an exception of anybody's, or that it has none: ``__str__`` and ``__repr__`` may raise."""
    try:
        return str(error)
    except Exception as fault:  # noqa: BLE001 - that code may raise anything
        return f"<its text raises {type(fault).__name__}>"


def traceback_of(error: BaseException) -> str:
    """Return an exception of anybody's with its traceback, as Python prints it; its text if that cannot be printed."""
    try:
        with lines_as_loaded(error):
            return "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001 - as above
        return f"{type(error).__name__}: {text_of(error)}\n"


def last_line(error: str | None) -> str:
    """Return the last line of an error with its traceback, which says what was raised."""
    return (error or "").strip().rpartition("\n")[2]


def kept_error(text: str) -> str:
    """Return an error or a traceback as it is kept: storable, its last ``limits.ERROR_LENGTH`` characters."""
    return storable(text[-limits.ERROR_LENGTH :])[-limits.ERROR_LENGTH :]


def kept_name(name: str) -> str:
    """Return the kept form of an invalid group name, for people: storable, and no longer than a name."""
    name = storable(name)
    return name if len(name) <= limits.ID_LENGTH else name[: limits.ID_LENGTH - 1] + "…"


def visible(text: str, most: int | None = None) -> str:
    r"""Return a text that a terminal or a page only shows: on one line, unprintable characters as in Python, ``\x1b``.

    Args:
        text: foreign text.
        most: greatest length, in characters; a text that is cut ends with an ellipsis.
    """
    cut = most is not None and len(text) > most
    if cut:
        text = text[:most]
    if not text.isprintable():
        text = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
    if most is not None and (cut or len(text) > most):
        return text[: most - 1] + "…"
    return text


def shown(text: str) -> str:
    """Return a foreign text for a sentence or a table: visible, and cut if long."""
    return visible(text, limits.SHOWN_LENGTH)


def quoted(text: str) -> str:
    """Return a text in quotes for an error, cut if long."""
    said = repr(text[: limits.SHOWN_LENGTH])
    return said if len(text) <= limits.SHOWN_LENGTH else f"{said[:-1]}…{said[-1]}"
