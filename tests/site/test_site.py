"""The documentation as a site: no broken link or anchor, every page in it, and nothing from the web."""

import re
import subprocess
import sys
from os.path import normpath
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from waiting import PROGRAM_S

ROOT = Path(__file__).parents[2]
LOADED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?([^"'\s>]+)|<link\b[^>]*\bhref=["']?([^"'\s>]+)"""
)
LINK = re.compile(r"""<a\b[^>]*\bhref=["']?([^"'\s>]+)""")
ANCHOR = re.compile(r"""\bid=["']?([^"'\s>]+)""")


@pytest.mark.slow
def test_the_documentation_site_has_no_broken_link_or_web_resource(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PROGRAM_S)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    check_links(tmp_path)
    check_that_nothing_is_loaded_from_the_web(tmp_path)


def check_links(site: Path) -> None:
    pages = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    anchors = {str(page): set(ANCHOR.findall(text)) for page, text in pages.items()}
    paths = {str(path) for path in site.rglob("*")}
    assert len(pages) > 30
    broken = []
    for page, text in pages.items():
        if page.name == "404.html":  # its links are those of a server's root
            continue
        for link in LINK.findall(text):
            parts = urlsplit(link)
            if parts.scheme or link.startswith("//"):
                continue
            target = normpath(page.parent / unquote(parts.path)) if parts.path else str(page)
            target = f"{target}/index.html" if f"{target}/index.html" in paths else target
            anchor = unquote(parts.fragment)
            if target not in paths or (anchor and target in anchors and anchor not in anchors[target]):
                broken.append((page.name, link))
    assert broken == []


def check_that_nothing_is_loaded_from_the_web(site: Path) -> None:
    loaded = {
        (page.name, address)
        for page in site.rglob("*.html")
        for addresses in LOADED.findall(page.read_text(encoding="utf-8"))
        for address in addresses
        if urlsplit(address).scheme in ("http", "https") or address.startswith("//")
    }
    assert loaded == set()
    styles = "".join(file.read_text(encoding="utf-8") for file in site.rglob("*.css"))
    assert not re.search(r"url\(\s*[\"']?(?:https?:)?//", styles)
    assert not re.search(r"@import\s+(?:url\()?[\"']?(?:https?:)?//", styles)
