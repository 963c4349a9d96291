"""The pages of the console, made of Jinja2 templates that escape whatever they are given."""

import datetime as dt
import glob
import json
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from inturn.core.errors import StoreError
from inturn.core.pipeline.inspection import counted, when
from inturn.core.pipeline.selection import last_line
from inturn.core.texts import shown, visible

FOLDER: Final = Path(__file__).parent
_RETRY_S: Final = 5


class ConsolePages:
    """Templates with the words and links that all pages share."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._templates = Environment(
            loader=FileSystemLoader(FOLDER),
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
            "exactly": glob.escape,  # a text as the pattern that matches it alone
        }

    def page(
        self, request: Request, template: str, *, status: int = 200, retry: bool = False, **found: Any
    ) -> HTMLResponse:
        """Return a page."""
        text = self._templates.get_template(template).render(
            link=lambda to, **fields: self.link(request, to, **fields), token=self._token, **found
        )
        return HTMLResponse(text, status, headers={"refresh": str(_RETRY_S)} if retry else None)

    def fault(self, request: Request, error: Exception, status: int | None = None) -> HTMLResponse:
        """Return the page of an error; one of a store that is away loads itself again until it is back."""
        is_away = isinstance(error, StoreError | OSError)
        return self.page(
            request,
            "fault.html.j2",
            status=status or (503 if is_away else 400),
            retry=is_away,
            text=str(error),
            away=is_away,
        )

    def link(self, request: Request, to: str, **fields: str | None) -> str:
        """Return the path of a route, below the path at which the console is mounted, with a query."""
        at = {"path": "console.css"} if to == "static" else {}
        path = request.scope.get("root_path", "") + str(request.app.url_path_for(to, **at))
        query = urlencode({name: value for name, value in fields.items() if value is not None})
        return f"{path}?{query}" if query else path
