r"""Rules for texts: which texts are accepted, and how texts for operators are made storable and shown.

Two rules, the same for every engine, store and command:

- *Input*: every text that a user passes must be encodable as UTF-8. The name of a group and an id must also have 1 to
  1,000 characters and no NUL. All other content is data and is stored unchanged. An argument that breaks these rules is
  refused. In a message of a pipeline such a text makes that message invalid.
- *Texts for operators*: errors, tracebacks, notes, reasons and the names of files are never refused. Characters that
  cannot be stored become visible escapes: ``caf\udce9.txt``. The text of an exception is made by :func:`text_of` and
  :func:`traceback_of`, since the exception may come from any code.
"""

import traceback
from collections.abc import Iterable, Mapping, Set
from typing import Any, Final

from inturn.core import limits
from inturn.core.errors import InputError
from inturn.core.source_lines import lines_as_loaded

_OTHERS: Final = frozenset({int, float, bool, bytes, type(None)})
"""Types of values that contain no text."""
_FIT: Final = f"expected a text of 1 to {limits.ID_LENGTH} characters"


def half_at(text: str) -> int | None:
    """Return the index of the first unpaired surrogate of a text, which UTF-8 cannot encode; None if it has none."""
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return None


def is_text(text: str) -> bool:
    """Return whether UTF-8 can encode a text: it contains no unpaired surrogate."""
    return half_at(text) is None


def name_fault(label: str, name: str) -> str:
    r"""Return why a text cannot be the name of a group or an id; empty if it can.

    >>> name_fault("group", "acct-1"), name_fault("group", "")
    ('', "group is ''; expected a text of 1 to 1000 characters")
    """
    if 0 < len(name) <= limits.ID_LENGTH and name.isascii() and "\0" not in name:  # as nearly all are
        return ""
    if not 0 < len(name) <= limits.ID_LENGTH:
        return f"{label} is {quoted(name)}; {_FIT}"
    if "\0" in name:
        return (
            f"{label} is {quoted(name)}, with a NUL at index {name.index(chr(0))}, which not every store supports; "
            "remove it"
        )
    return text_fault(label, name)


def text_fault(label: str, text: str) -> str:
    """Return why UTF-8 cannot encode a text; empty if it can."""
    index = half_at(text)
    if index is None:
        return ""
    return (
        f"{label} is {quoted(text)}, with an unpaired surrogate at index {index}, not encodable as UTF-8; fix the text"
    )


def checked(label: str, name: object) -> str:
    """Return the name of a group, or an id, after checking it.

    Raises:
        InputError: if it cannot be one.
    """
    if not isinstance(name, str):
        raise InputError(f"{label} is {name!r}; {_FIT}")
    if 0 < len(name) <= limits.ID_LENGTH and name.isascii() and "\0" not in name:  # as nearly all are
        return name
    if problem := name_fault(label, name):
        raise InputError(problem)
    return name


def checked_text(label: str, text: object) -> str:
    """Return a text, after checking that UTF-8 can encode it.

    Raises:
        InputError: if it is not a text, or one that UTF-8 cannot encode.
    """
    if not isinstance(text, str):
        raise InputError(f"{label} is {text!r}; expected a text")
    if problem := text_fault(label, text):
        raise InputError(problem)
    return text


def unstorable_path(value: Any) -> str | None:
    r"""Return the path to the first text within a value that UTF-8 cannot encode; None if there is none.

    >>> unholdable({"items": [{"name": "ok"}, {"name": "\ud800"}]})
    'items[1].name'
    """
    return None if _is_holdable(value) else _path(value, "")


def _is_holdable(value: Any) -> bool:
    """Return whether UTF-8 can encode all texts within a value; nearly always true, and checked for every message."""
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
    for value in values:  # a call for each value would take twice as long
        kind = value.__class__
        if not (value.isascii() if kind is str else kind in _OTHERS) and not _is_holdable(value):
            return False
    return True


def _fields(value: Any) -> Iterable[str]:
    """Return the fields of a dataclass, a Struct or a model; none of any other value."""
    known = ("__struct_fields__", "__dataclass_fields__", "__pydantic_fields__")
    return next(filter(None, (getattr(value, name, ()) for name in known)), ())


def _path(value: Any, path: str) -> str:
    if isinstance(value, str):
        return path or "the text"
    parts: Iterable[tuple[str, Any]]
    if isinstance(value, Mapping):
        if not all(map(_is_holdable, value)):
            return f"a name in {path}" if path else "a name"
        parts = ((f"{path}.{key}" if path else f"{key}", item) for key, item in value.items())
    elif isinstance(value, list | tuple | Set):
        parts = ((f"{path}[{index}]", item) for index, item in enumerate(value))
    else:
        parts = ((f"{path}.{name}" if path else name, getattr(value, name, None)) for name in _fields(value))
    return next((_path(item, place) for place, item in parts if not _is_holdable(item)), path)


def storable(text: str) -> str:
    r"""Return a text that every store can keep: unpaired surrogates and NUL become visible escapes.

    >>> storable("caf\udce9 \0")
    'caf\\udce9 \\x00'
    """
    if half_at(text) is not None:
        text = text.encode(errors="backslashreplace").decode()
    return text.replace("\0", "\\x00") if "\0" in text else text


def note(label: str, text: object) -> str:
    """Return an operator's note as it is stored: storable, and no longer than ``limits.ERROR_LENGTH``.

    Raises:
        InputError: if it is not a text.
    """
    if not isinstance(text, str):
        raise InputError(f"{label} is {text!r}; expected a text")
    return storable(text[: limits.ERROR_LENGTH])[: limits.ERROR_LENGTH]


def text_of(error: BaseException) -> str:
    """Return the text of an exception of any code, or a note that it has none: its ``__str__`` may raise."""
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001 - that code may raise anything
        return f"<str() of the exception raised {type(failure).__name__}>"


def traceback_of(error: BaseException) -> str:
    """Return an exception of any code with its traceback, as Python prints it; its text if that cannot be printed."""
    try:
        with lines_as_loaded(error):
            return "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001 - as above
        return f"{type(error).__name__}: {text_of(error)}\n"


def last_line(error: str | None) -> str:
    """Return the last line of an error with its traceback: the exception's type and text."""
    return (error or "").strip().rpartition("\n")[2]


def kept_error(text: str) -> str:
    """Return an error or a traceback as it is stored: storable, its last ``limits.ERROR_LENGTH`` characters."""
    return storable(text[-limits.ERROR_LENGTH :])[-limits.ERROR_LENGTH :]


def kept_name(name: str) -> str:
    """Return the stored form of an invalid group name, for operators: storable, and no longer than a name."""
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
        text = "".join(
            character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
        )
    if most is not None and (cut or len(text) > most):
        return text[: most - 1] + "…"
    return text


def shown(text: str) -> str:
    """Return a foreign text for a sentence or a table: visible, and cut if long."""
    return visible(text, limits.SHOWN_LENGTH)


def quoted(text: str) -> str:
    """Return a text in quotes for an error, cut if long."""
    shortened = repr(text[: limits.SHOWN_LENGTH])
    return shortened if len(text) <= limits.SHOWN_LENGTH else f"{shortened[:-1]}…{shortened[-1]}"
