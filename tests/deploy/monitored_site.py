"""A site with Prometheus: the units of deploy/systemd as processes, and a shell for the runbook's commands."""

import json
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import yaml

import inturn
from composed import DEPLOY, ROOT, page, status
from inturn.demo.free_ports import free_port
from inturn.queue import QueueSettings
from waiting import DEADLINE_S, until

APP = """
import pathlib, time
import inturn

HERE = pathlib.Path(__file__).parent

def apply(state, message):
    if message.get("poison"):
        raise ValueError("poison")
    time.sleep(message.get("sleep", 0))
    return state, [message["out"]] if "out" in message else []

def pipeline(name):
    return inturn.Pipeline(name=name, group="account", order=inturn.Gapless("revision"), handler=apply)

ledger, mails, backlog, intake = map(pipeline, ("ledger", "mails", "backlog", "intake"))

def post(output, effect_id):
    if output == "bank" and (HERE / "bank-down").exists():
        raise ConnectionError("the bank is closed")
"""
QUEUES = ("payments", "mails", "backlog")
JOBS = ("inturn-worker", "inturn-ingest", "inturn-serve")
SOURCE = """
[[sources]]
name = "bank"
kind = "outbox"
queue = "{db}#intake"
database = "bank.db"
table = "outbox"
batch = 1
lease_s = 1

[sources.mapping]
group = "body.account"
"""
SHIM = '#!/bin/sh\necho "$(basename "$0") $*" >> "$SHIMS"\n'
SHORTER = {
    r"for: \d+m": "for: 1s",
    r"\[\d+m\]": "[6s]",
    r"\[\d+m:\d+m\]": "[6s:1s]",
    r"_seconds\) > \d+": "_seconds) > 4",
    r"_seconds\) < \d+": "_seconds) < 4",
    r"> 3$": "> 0",
}
"""What the rules say, and what takes its place, so that a test need not wait."""


class Monitored:
    """Prometheus with shortened rules over pages of this machine, and a shell for the runbook.

    Args:
        folder: for all files.
        jobs: the ports of the pages, by the names that prometheus.yml has for them.
        environment: variables of the processes, and of the runbook's commands.
    """

    def __init__(self, folder: Path, jobs: Mapping[str, int], **environment: str) -> None:
        self.folder = folder
        self.jobs = jobs
        self._port = free_port()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._environment = os.environ | {"SHIMS": str(folder / "shims.log")} | environment
        for name in ("systemctl", "journalctl"):
            shim = folder / "bin" / name
            shim.parent.mkdir(exist_ok=True)
            shim.write_text(SHIM)
            shim.chmod(0o755)

    def begin(self) -> None:
        """Start Prometheus, and wait until it has scraped all targets."""
        rules = shortened((DEPLOY / "prometheus" / "alerts.yml").read_text())
        (self.folder / "alerts.yml").write_text(rules)
        self._rules = {
            rule["alert"]: rule["expr"] for group in yaml.safe_load(rules)["groups"] for rule in group["rules"]
        }
        config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
        config["scrape_configs"] = [job for job in config["scrape_configs"] if job["job_name"] in self.jobs]
        for job in config["scrape_configs"]:
            job["static_configs"] = [{"targets": [f"127.0.0.1:{self.jobs[job['job_name']]}"]}]
        (self.folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        listen = f"127.0.0.1:{self._port}"
        options = [f"--web.listen-address={listen}", f"--storage.tsdb.path={self.folder / 'tsdb'}"]
        options += [f"--config.file={self.folder / 'prometheus.yml'}", "--query.lookback-delta=5s"]
        self.start("prometheus", [shutil.which("prometheus") or "", *options])
        until(lambda: status(f"http://{listen}/-/ready") == 200)
        until(self._are_up, "Prometheus does not see all of them")

    def ask(self, endpoint: str, **parameters: str) -> Any:
        url = f"http://127.0.0.1:{self._port}/api/v1/{endpoint}?{urlencode(parameters)}"
        return json.loads(page(url))["data"]

    def _are_up(self) -> bool:
        return len(self.ask("query", query="up == 1")["result"]) == len(self.jobs)

    def is_firing(self, alert: str, **labels: str) -> bool:
        return any(
            active["state"] == "firing" and ({"alertname": alert} | labels).items() <= active["labels"].items()
            for active in self.ask("alerts")["alerts"]
        )

    def is_well(self, alert: str, **labels: str) -> bool:
        """Whether it does not fire, though all pages are read, and nothing that it is about is there now."""
        if self.is_firing(alert, **labels) or not self._are_up():
            return False
        series = self.ask("query", query=self._rules[alert])["result"]
        return not any(labels.items() <= sample["metric"].items() for sample in series)

    def process(self, unit: str) -> "subprocess.Popen[bytes]":
        return self._processes[unit]

    def start(self, name: str, command: list[str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command, cwd=self.folder, env=self._environment, stdout=log, stderr=subprocess.STDOUT
            )

    def log(self, unit: str) -> str:
        return (self.folder / f"{unit}.log").read_text()

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait(DEADLINE_S)

    def run(self, alert: str, **variables: str) -> list[str]:
        """Run the commands of an alert's section; return those that are not of inturn, and were noted only."""
        (block,) = re.findall(r"^```shell\n(.*?)^```", section(alert), re.MULTILINE | re.DOTALL)
        shims = Path(self._environment["SHIMS"])
        shims.write_text("")
        path = f"{self.folder / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = self._environment | {"PATH": path} | variables
        done = subprocess.run(
            ["/bin/sh", "-ec", block],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
        return shims.read_text().splitlines()


class Site(Monitored):
    """A folder in place of /etc/inturn, and the services that it configures."""

    def __init__(self, folder: Path, db: str) -> None:
        super().__init__(folder, {job: free_port() for job in JOBS}, DB=db)
        self.db = db
        (folder / "app.py").write_text(APP)
        self._configure()
        health = f'health = "127.0.0.1:{self.jobs["inturn-ingest"]}"'
        (folder / "bank.toml").write_text(health + SOURCE.format(db=db))
        self.make_outbox()
        (folder / "serve.toml").write_text(f'[server]\nport = {self.jobs["inturn-serve"]}\nmetrics = "all"\n')

    def _configure(self) -> None:
        lines = [f'health = "127.0.0.1:{self.jobs["inturn-worker"]}"', "grace_s = 5"]
        with inturn.open(self.db) as opened:
            for queue in QUEUES:
                opened.queue(queue, QueueSettings(visibility_timeout_s=2))
                pipeline = "ledger" if queue == "payments" else queue
                lines += ["[[pipelines]]", f'pipeline = "app.py:{pipeline}"', f'queue = "{self.db}#{queue}"']
                lines += ['deliver = "app.py:post"'] if queue == "payments" else []
                lines += ["concurrency = 1"] if queue == "backlog" else []
        (self.folder / "ledger.toml").write_text("\n".join(lines))

    def make_outbox(self) -> None:
        """Make the table of the source, again if it is there."""
        with closing(sqlite3.connect(self.folder / "bank.db")) as bank, bank:
            bank.execute("drop table if exists outbox")
            bank.execute("create table outbox (id integer primary key autoincrement, account text, revision integer)")

    def insert(self, *accounts: str | None) -> None:
        """Write records into the table of the source, each the first of its account."""
        with closing(sqlite3.connect(self.folder / "bank.db")) as bank, bank:
            bank.executemany(
                "insert into outbox (account, revision) values (?, 1)", [(account,) for account in accounts]
            )

    def send(self, queue: str, body: dict[str, Any], *, group: str, revision: int) -> None:
        """Send a message to a queue of the site."""
        with inturn.open(self.db) as opened:
            opened.queue(queue).send(body, group=group, revision=revision)

    def systemctl(self, verb: str, unit: str) -> None:
        """Do what a unit file says, with the paths and the program of the test."""
        if verb in {"restart", "stop"} and unit in self._processes:
            self.process(unit).terminate()
            self.process(unit).wait(60)
        if verb in {"restart", "start"}:
            name, _, instance = unit.partition("@")
            file = DEPLOY / "systemd" / (f"{name}@.service" if instance else f"{name}.service")
            (line,) = re.findall(r"^ExecStart=(.*)$", file.read_text(), re.MULTILINE)
            line = line.replace("%i", instance).replace("/etc/inturn", str(self.folder))
            line = line.replace("/opt/inturn/bin", str(Path(sys.executable).parent))
            self.start(unit, [self.db if word == "${INTURN_DB}" else word for word in shlex.split(line)])


def shortened(rules: str) -> str:
    for pattern, shorter in SHORTER.items():
        rules, count = re.subn(pattern, shorter, rules, flags=re.MULTILINE)
        assert count, f"no rule says {pattern}"
    return rules


def section(alert: str) -> str:
    """The section of the runbook about an alert."""
    text = (ROOT / "docs" / "operations.md").read_text()
    matched = re.search(rf"^### {alert}\n(.*?)(?=^### |\Z)", text, re.MULTILINE | re.DOTALL)
    assert matched, f"docs/operations.md has no section {alert}"
    return matched[1]
