"""The pages of the console: Jinja2 templates that escape all values."""

import datetime as dt
import glob
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.ext import Extension
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse

from inturn.console.actions_log import CARRIED_OUT
from inturn.console.picture import picture
from inturn.console.rates import svg_points
from inturn.console.roles import Person, Role
from inturn.core.errors import GroupMoved, StoreError
from inturn.core.texts import last_line, shown, visible
from inturn.core.words import counted, time_of, when

FOLDER: Final = Path(__file__).parent
_RETRY_S: Final = 5
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_TABLE_ROLES: Final = {
    "table": "table",
    "thead": "rowgroup",
    "tbody": "rowgroup",
    "tr": "row",
    "td": "cell",
    'th scope="col"': "columnheader",
    'th scope="row"': "rowheader",
}


class StackedTables(Extension):
    """Add ARIA roles to the parts of tables: browsers drop the roles where the phone style lays rows out as blocks."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:  # noqa: ARG002 - a hook
        """Return the source of a template with the roles."""
        for tag, role in _TABLE_ROLES.items():
            source = re.sub(f"<{tag}(?=[ >])", f'<{tag} role="{role}"', source)
        return source


class ConsolePages:
    """Templates with the filters and links that all pages share."""

    def __init__(self, token: Callable[[Request], str], *, has_log_in: bool) -> None:
        self._token, self._has_log_in = token, has_log_in
        self._templates = Environment(
            loader=FileSystemLoader(FOLDER),
            extensions=[StackedTables],
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "name": shown,
            "visible": visible,
            "many": counted,
            "since": lambda moment: when(moment, dt.datetime.now(dt.UTC)),
            "json": lambda value: json.dumps(value, default=str, ensure_ascii=False, indent=2),
            "line": lambda value: json.dumps(value, default=str, ensure_ascii=False),
            "last_line": last_line,
            "number": "{:,}".format,
            "seconds": _seconds,
            "kind": _kind,
            "record": lambda value: value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value),
            "time": lambda moment: f"{moment:%Y-%m-%d %H:%M:%S} UTC",
            "ago": _ago,
            "moment": time_of,
            "unquoted": lambda text: json.loads(text) if text.startswith('"') else text,
            "word": lambda action: str(action).replace("-", " "),
            "svg_points": svg_points,
            "exactly": glob.escape,  # a text as a pattern that matches only this text
        }

    def page(
        self, request: Request, template: str, *, status: int = 200, retry: bool = False, **values: Any
    ) -> HTMLResponse:
        """Return a page."""
        person: Person | None = getattr(request.state, "person", None)
        text = self._templates.get_template(template).render(
            link=lambda to, **fields: self.link(request, to, **fields),
            asset=lambda name: self._path(request, "static", path=name),
            report=lambda name: self._path(request, "reports", report=name),
            token=self._token(request),
            here=template.partition(".")[0],
            person=person,
            may=lambda role: person is not None and person.may(Role(role)),
            has_log_in=self._has_log_in,
            picture=picture,
            **values,
        )
        return HTMLResponse(text, status, headers={"refresh": str(_RETRY_S)} if retry else None)

    def log_in(self, request: Request, status: int, *, wrong: bool = False) -> HTMLResponse:
        """Return the page on which a person logs in with a token."""
        return self.page(request, "login.html.j2", status=status, wrong=wrong)

    def fault(self, request: Request, error: Exception, status: int | None = None) -> HTMLResponse:
        """Return the page of an error; for an unavailable store it reloads until the store is available again."""
        is_away = isinstance(error, StoreError | OSError)
        retries = is_away and request.method == "GET"  # a form is not sent again
        return self.page(
            request,
            "fault.html.j2",
            status=status or (503 if is_away else 400),
            retry=retries,
            retries=retries,
            text=str(error),
            away=is_away,
            done=str(error).endswith(CARRIED_OUT),
            moved=getattr(request.state, "fields", {}) if isinstance(error, GroupMoved) else None,
        )

    def link(self, request: Request, to: str, **fields: object) -> str:
        """Return the path of a route, below the path at which the console is mounted, with a query."""
        path = self._path(request, to)
        query = urlencode({name: value for name, value in fields.items() if value is not None})
        return f"{path}?{query}" if query else path

    @staticmethod
    def _path(request: Request, to: str, **parts: str) -> str:
        return str(request.scope.get("root_path", "")) + str(request.app.url_path_for(to, **parts))


def _seconds(length_s: float | None) -> str:
    """Return a length of time in its largest unit."""
    if length_s is None:
        return ""
    for unit, name in _UNITS[:-1]:
        if length_s >= unit:
            return f"{length_s / unit:,.1f} {name}"
    return f"{length_s:,.1f} s"


def _kind(value: Any) -> str:
    """Return the type of a JSON value in plain words."""
    names = {bool: "true or false", int: "whole number", float: "number", str: "text", list: "list", dict: "object"}
    return names.get(type(value), "empty")


def _ago(moment: dt.datetime) -> Markup:
    """Return how long ago a time was, with the time itself as tooltip."""
    elapsed_s = (dt.datetime.now(dt.UTC) - moment).total_seconds()
    size, unit = next((candidate for candidate in _UNITS if abs(elapsed_s) >= candidate[0]), _UNITS[-1])
    text = f"{int(elapsed_s // size)} {unit} ago" if elapsed_s >= 0 else f"in {int(-elapsed_s // size)} {unit}"
    iso, full = moment.isoformat(timespec="seconds"), f"{moment:%Y-%m-%d %H:%M:%S} UTC"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(iso, full, text)
