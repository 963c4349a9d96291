"""Reports beside the pages: linked, sandboxed, and only those that the configuration names."""

from pathlib import Path

import pytest
from console_shop import HOST, Shop
from starlette.testclient import TestClient

from inturn.console import Account, ConsoleConfig, Role, console
from inturn.console.reports import ReportFiles
from inturn.core.errors import InputError


def browser(shop: Shop, folder: Path, *reports: str) -> TestClient:
    paths = tuple(str(folder / report) for report in reports)
    config = ConsoleConfig(reports=paths, actions_log=str(folder / "actions.jsonl"))
    return TestClient(console(shop.path, config=config), base_url=HOST)


def test_a_report_is_linked_and_sandboxed(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit" / "report.html").write_text("<h1>Gapless</h1><script>alert(1)</script>")
    (tmp_path / "lab.html").write_text("<h1>designs</h1>")
    asking = browser(shop, tmp_path, "audit", "lab.html", "later.html")
    page = asking.get("/steps").text
    assert 'href="/reports/audit"' in page
    assert 'href="/reports/lab"' in page
    assert "later" not in page, "it is not written yet"
    answer = asking.get("/reports/audit")
    assert (answer.status_code, "Gapless" in answer.text) == (200, True)
    assert answer.headers["content-security-policy"].startswith("sandbox; default-src 'none'")
    assert answer.headers["x-content-type-options"] == "nosniff"
    (tmp_path / "later.html").write_text("<h1>later</h1>")
    assert "later" in asking.get("/reports/later").text


@pytest.mark.parametrize("name", ["none", "..%2Flab", "%2e%2e/lab.html", "audit%00", "lab.html"])
def test_an_unknown_report_gets_404(shop: Shop, tmp_path: Path, name: str) -> None:
    (tmp_path / "lab.html").write_text("<h1>designs</h1>")
    assert browser(shop, tmp_path, "lab.html").get(f"/reports/{name}").status_code == 404


def test_viewers_have_no_reports_if_fields_are_masked(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "lab.html").write_text("<h1>4111</h1>")
    token = "x" * 30
    people = [Account(name="vera", role=Role.VIEWER, token=token)]
    config = ConsoleConfig(
        people=people, mask=["card"], reports=(str(tmp_path / "lab.html"),), actions_log=str(tmp_path / "a")
    )
    headers = {"authorization": f"Bearer {token}"}
    asking = TestClient(console(shop.path, config=config), base_url=HOST, headers=headers)
    assert "/reports/" not in asking.get("/steps").text
    assert asking.get("/reports/lab").status_code == 403


def test_reports_with_the_same_name_are_refused() -> None:
    with pytest.raises(InputError, match="'lab'; names must differ"):
        ReportFiles(["lab.html", "lab"])
