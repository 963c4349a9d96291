"""The log of actions: it cannot be switched off, is found again after a rotation, and says what was done."""

import errno
import json
import os
import resource
import signal
from pathlib import Path

import pytest
from console_shop import Shop

from inturn.cli.targets import open_inspector
from inturn.console import actions_log
from inturn.console.actions_log import ActionsLog
from inturn.console.roles import Person, Role
from inturn.console.routes import ACTIONS
from inturn.core.errors import InputError, StoreError

ANN = Person("ann", Role.OPERATOR)


def lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def figures(shop: Shop) -> list[tuple[str, int]]:
    """Return the queues and the number of their messages; their rates change with each look."""
    (database,) = shop.browser.get("/api/queues").json()["databases"]
    return [(row["queue"], row["messages"]) for row in database["queues"]]


def test_no_action_is_executed_if_the_actions_log_cannot_be_written(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "actions.jsonl").mkdir()
    before = figures(shop)
    fields = {
        "store": shop.store, "group": "eu-1", "action": "drop", "database": shop.path, "queue": "payments",
        "again": "payments", "body": "1", "source": "bank",
    }  # fmt: skip
    for action in ACTIONS:
        posted = {field.name: fields[field.name] for field in action.fields if field.name in fields}
        answer = shop.browser.post(f"/api{action.path}", json=posted)
        assert (answer.status_code, "nothing was changed" in answer.json()["error"]) == (503, True), action.path
        formed = shop.browser.post(action.path, data=posted | {"token": shop.token()})
        assert (formed.status_code, "nothing was changed" in formed.text) == (503, True), action.path
    with open_inspector(shop.store) as inspector:
        assert inspector.pending_decisions("eu-1") == []
    assert figures(shop) == before


def test_a_rotated_actions_log_is_recreated(shop: Shop, tmp_path: Path) -> None:
    shop.decide(group="eu-1", action="drop")
    (tmp_path / "actions.jsonl").rename(tmp_path / "actions.jsonl.1")
    shop.decide(group="eu-2", action="drop")
    assert [entry["event"] for entry in lines(tmp_path / "actions.jsonl.1")] == ["begins", "done"]
    assert [entry["event"] for entry in lines(tmp_path / "actions.jsonl")] == ["begins", "done"]
    assert (tmp_path / "actions.jsonl").stat().st_mode & 0o077 == 0, "it quotes messages"
    assert "eu-1" not in shop.page("/actions")
    assert "eu-2" in shop.page("/actions")


def test_a_failed_action_is_logged(shop: Shop, tmp_path: Path) -> None:
    shop.decide(group="none", action="drop")
    (_, failed) = lines(tmp_path / "actions.jsonl")
    assert (failed["event"], "has no group" in failed["error"]) == ("failed", True)


def test_an_unexpected_exception_is_logged(tmp_path: Path) -> None:
    log = ActionsLog(tmp_path / "log")
    with pytest.raises(ZeroDivisionError), log.action(ANN, "/x", {}):
        _ = 1 / 0
    assert lines(tmp_path / "log")[-1]["error"] == "ZeroDivisionError('division by zero')"


def test_an_unwritable_log_end_raises_that_the_action_was_carried_out(tmp_path: Path) -> None:
    log = ActionsLog(tmp_path / "log")
    done: list[str] = []
    with pytest.raises(StoreError, match="the action was carried out"), log.action(ANN, "/x", {}):
        done.append((tmp_path / "log").rename(tmp_path / "moved").name + str((tmp_path / "log").mkdir()))
    assert done


def test_the_page_says_that_an_action_was_done_if_only_its_log_end_failed(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = actions_log._append

    def refused(file: int, data: bytes) -> None:
        if b'"event": "done"' in data:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(file, data)

    posted = {"store": shop.store, "group": "eu-1", "action": "drop", "why": "twice", "token": shop.token()}
    monkeypatch.setattr(actions_log, "_append", refused)
    answer = shop.browser.post("/decide", data=posted)
    assert (answer.status_code, "the action was carried out" in answer.text) == (503, True)
    assert "Nothing was changed" not in answer.text
    assert "The action was not logged" in answer.text


def test_a_log_line_truncated_by_a_full_disk_leaves_other_lines_readable(tmp_path: Path) -> None:
    log = ActionsLog(tmp_path / "log")
    log.note("/a", "ann", "one")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "log").stat().st_size + 5, before[1]))
    try:
        with pytest.raises(StoreError, match="nothing was changed"), log.action(ANN, "/b", {}):
            pytest.fail("nothing may be done")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, old)
    log.note("/c", "ann", "three")
    assert [entry["event"] for entry in log.latest()] == ["three", "one"]


@pytest.mark.parametrize("text", ["a\nb", "a\r\n{}", "\u2028", '"}', "\x00", "\ud800"])
def test_any_field_value_is_logged_in_one_line_without_secrets(tmp_path: Path, text: str) -> None:
    log = ActionsLog(tmp_path / "log")
    with pytest.raises(InputError), log.action(ANN, "/x", {"why": text, "token": "secret", "secret": "secret"}):
        raise InputError(text)
    data = (tmp_path / "log").read_bytes()
    assert data.count(b"\n") == 2
    assert b"secret" not in data
    assert len(log.latest()) == 2


def test_two_processes_write_whole_log_lines(tmp_path: Path) -> None:
    children = []
    for number in range(2):
        child = os.fork()
        if child == 0:
            log = ActionsLog(tmp_path / "log")
            for _ in range(50):
                log.note("/x", str(number), "y" * 9000)
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    assert len(lines(tmp_path / "log")) == 100
