"""The last line of the demo: the console that it opens, the aircraft that is parked there, and its mending."""

import re
import shlex
import time
from html import unescape
from pathlib import Path
from typing import Any

import httpx2
import pytest
from served_console import served

pytest.importorskip("jinja2", reason="the demo's page is filled in with jinja2, from the extra [demo]")

from inturn.demo import run
from inturn.demo.delivery import MISSPELT

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def ended(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, list[str]]:
    """Run the demo, and return the aircraft that it says is parked, and the command of its last line."""
    assert run.main(tmp_path / "demo", spark=spark).good
    printed = capsys.readouterr().out.strip().splitlines()
    parked = re.search(r"^(\w+) is parked", "\n".join(printed), re.MULTILINE)
    assert parked
    return parked.group(1), shlex.split(printed[-1])


def test_the_parked_aircraft_of_the_demo_is_corrected_in_both_stores(
    ended: tuple[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tail, (program, command, *rest) = ended
    assert (program, command) == ("inturn", "console")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with served(tmp_path, rest) as url, httpx2.Client(base_url=url, timeout=60, follow_redirects=True) as browser:
        page = browser.get("/").text
        links = [unescape(link) for link in re.findall(rf'href="(/group\?[^"]*group={tail})"', page)]
        assert len(links) == 2, "it is parked in the worker's store and in Spark's"
        assert f"unknown type {MISSPELT!r}" in unescape(page)
        for link in links:
            page = browser.get(link).text
            fields = re.findall(r'<input[^>]* name="([^"]+)" value="([^"]*)"', page)
            fields += re.findall(r'<textarea[^>]* name="([^"]+)"[^>]*>\n?([^<]*)<', page)
            fields += re.findall(r'<select[^>]* name="([^"]+)".*?<option value="([^"]*)" selected', page, re.DOTALL)
            form = {name: unescape(value) for name, value in fields}
            assert form.get("field.type") == MISSPELT, re.findall(r"<[^>]*field[.]type[^>]*>", page) or page[-3000:]
            form |= {"field.type": "cancelled", "action": "replace", "why": "it is written with two l"}
            for _ in range(3):  # a dry run ends after ten seconds, in which a busy machine may not do it
                tried = browser.post("/try", data=form).text
                if "took longer than" not in tried:
                    break
            assert f"<del>&#34;{MISSPELT}&#34;</del>" in tried
            assert "1 group: 1 open. Nothing was written" in tried
            browser.post("/decide", data=form).raise_for_status()
            store = httpx2.URL(link).params["store"]
            assert gone_on(browser, {"store": store, "group": tail})["state"]["cancelled"] == 1
        assert tail not in browser.get("/").text, "nothing is stuck any more"
        assert not browser.get("/api/stuck").json()["stores"][0]["groups"]


def gone_on(browser: httpx2.Client, group: dict[str, str]) -> dict[str, Any]:
    """Return the status of a group once it goes on; within a minute, of which a process and a step take some."""
    until = time.monotonic() + 60
    while True:
        status: dict[str, Any] = browser.get("/api/group", params=group).json()["group"]
        if status["status"] == "open":
            return status
        assert time.monotonic() < until, status
        time.sleep(0.2)
