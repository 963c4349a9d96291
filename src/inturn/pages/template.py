"""Pages from templates: one HTML file each, which opens without a network; text other than our markup is escaped."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from inturn.core.errors import SetupError
from inturn.core.texts import visible
from inturn.core.words import counted

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

_LONGEST: Final = 60
"""The maximum number of characters of a name that are shown."""


def environment(folder: Path, extra: str) -> "Environment":
    """Return the environment for the templates in a folder, with the filters ``number``, ``name`` and ``many``.

    Args:
        folder: the folder; ``style.css`` of this package can be included too.
        extra: the extra that installs jinja2.

    Raises:
        SetupError: if jinja2 is not installed.
    """
    check_installed(extra)
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader([folder, Path(__file__).parent]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    templates.filters |= {"number": number, "name": name, "many": counted}
    return templates


def check_installed(extra: str) -> None:
    """Check that pages can be created, before the work whose result they show.

    Args:
        extra: the extra that installs jinja2.

    Raises:
        SetupError: if jinja2 is not installed.
    """
    try:
        import jinja2  # noqa: F401 - checks only the import
    except ImportError as error:
        raise SetupError(f"the page needs jinja2; install it with: pip install 'inturn[{extra}]'") from error


def name(text: str) -> str:
    """Return a name from the data for display: a blank name in quotes, a long name without its middle."""
    if not text.strip():
        text = repr(text)
    shown = visible(text[: 2 * _LONGEST] + text[-_LONGEST:] if len(text) > 3 * _LONGEST else text)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST * 2 // 3]}…{shown[-_LONGEST // 3 + 1 :]}"


def number(value: float) -> str:
    """Return a number with thousands separators, and with one decimal if it is not whole."""
    return f"{int(value):,}" if value == int(value) else f"{value:,.1f}"


def markup(svg: str) -> "Markup":
    """Return our picture as markup; its text is already escaped."""
    from markupsafe import Markup

    return Markup(svg)  # noqa: S704 - created by this package, with all texts escaped


def _shown(value: Any) -> Any:
    """Return a value for the page; in text other than our markup, invisible characters are made visible."""
    return visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value
