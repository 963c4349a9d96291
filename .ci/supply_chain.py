"""Check the pinned versions against published advisories, and write a software bill of materials.

The advisories come from PyPI's JSON interface or, where that does not answer, from OSV. A machine may reach neither:
then this says so and how many packages were not checked, and exits 0, because nothing was found out.

What is known is told, and never fails a change: an advisory of today says nothing about it.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BILL = ROOT / "build" / "sbom.cdx.json"
PINS = ROOT / "constraints.txt"


def advisories(service: str) -> list[dict[str, Any]]:
    """Return what a service knows of each pinned package; empty if the service does not answer."""
    options = ["--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off", "--timeout", "20"]
    command = [sys.executable, "-m", "pip_audit", "--requirement", PINS, "--vulnerability-service", service, *options]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        return list(json.loads(ran.stdout)["dependencies"])
    except (ValueError, KeyError):
        return []


def check() -> None:
    """Report known vulnerabilities."""
    pinned = sum(1 for line in PINS.read_text().splitlines() if line and not line.startswith("#"))
    known: dict[str, list[dict[str, Any]]] = {}
    for service in ("pypi", "osv"):
        found = {each["name"]: each["vulns"] for each in advisories(service) if "vulns" in each}
        known |= found
        if len(known) == pinned:
            break
    for name, vulnerabilities in sorted(known.items()):
        for each in vulnerabilities:
            mended = ", ".join(each["fix_versions"]) or "no version"
            print(f"ADVISORY {name}: {each['id']} {' '.join(each['aliases'])}; mended in {mended}")
    if len(known) < pinned:
        print(f"advisories: COULD NOT CHECK {pinned - len(known)} of {pinned} packages: no advisory data reached")
    else:
        print(f"advisories: {pinned} packages checked")


def write_bill() -> None:
    """Write the CycloneDX document of the environment that runs this."""
    BILL.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "cyclonedx_py", "environment", "--pyproject", ROOT / "pyproject.toml"]
    subprocess.run([*command, "--output-format", "JSON", "--output-file", BILL, sys.executable], check=True)
    components = json.loads(BILL.read_text())["components"]
    print(f"bill of materials: {BILL.relative_to(ROOT)}, {len(components)} packages")


if __name__ == "__main__":
    write_bill()
    check()
