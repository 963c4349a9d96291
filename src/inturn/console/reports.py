"""Reports that other commands have written, such as those of the audit and the lab: shown beside the pages.

A report is a page that the console has not made, so its answer is sandboxed: no script runs in it, it loads nothing,
and it has an origin of its own.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from starlette.responses import FileResponse, Response

from inturn.console.refusal import RequestRefused
from inturn.core.errors import InputError

SANDBOX: Final = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
_IN_FOLDER: Final = "report.html"


class ReportFiles:
    """The reports of a console, by their names.

    Args:
        files: HTML files, or folders that ``inturn audit --out`` has written; they may be written later.
        folder: where relative files are.

    Raises:
        InputError: if two have one name.
    """

    def __init__(self, files: Sequence[str], folder: Path) -> None:
        self._files: dict[str, Path] = {}
        for each in files:
            path = folder / each
            name = path.stem if path.suffix == ".html" else path.name
            if path.suffix != ".html":
                path /= _IN_FOLDER
            if not name or name in self._files:
                raise InputError(f"reports: {each!r} has the name {name!r}, as another; reports need different names")
            self._files[name] = path

    @property
    def names(self) -> list[str]:
        """Return the names of the reports that are written."""
        return [name for name, path in self._files.items() if path.is_file()]

    def answer(self, name: str) -> Response:
        """Return a report.

        Raises:
            RequestRefused: if there is none of this name.
        """
        path = self._files.get(name)
        if path is None or not path.is_file():
            raise RequestRefused("there is no such report", 404)
        return FileResponse(path, media_type="text/html", headers={"content-security-policy": SANDBOX})
