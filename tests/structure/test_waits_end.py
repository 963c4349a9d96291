"""No test waits without a limit: what is stuck says where, and holds up nothing else."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
RUNS = {"run", "check_output", "check_call", "call", "urlopen"}
"""Calls that take `timeout`."""
ENDS = {"wait", "join", "communicate"}
"""Methods that wait for ever if they are given nothing; with `await` they are a task's, which its test ends."""


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls of a program."""
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def is_barrier(value: ast.expr) -> bool:
    """Return whether a value is a barrier, which has its limit."""
    return isinstance(value, ast.Call) and ast.unparse(value.func) == "threading.Barrier"


def unlimited(source: str) -> Iterator[int]:
    """Yield the lines that wait without a limit."""
    tree = ast.parse(source)
    asyncio_s = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Await)}
    asyncio_s |= {
        id(argument) for call in calls(tree) if "wait_for" in ast.unparse(call.func) for argument in call.args
    }
    barriers = {
        ast.unparse(node.targets[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and is_barrier(node.value)
    }
    for call in calls(tree):
        if id(call) in asyncio_s:
            continue
        keywords = {keyword.arg for keyword in call.keywords}
        match call.func:
            case ast.Attribute(value=ast.Name(id="subprocess") | ast.Attribute(attr="request"), attr=name) if (
                name in RUNS
            ):
                is_limited = bool(keywords & {"timeout", None})
            case ast.Name(id="urlopen"):
                is_limited = "timeout" in keywords or len(call.args) > 2
            case ast.Attribute(attr="Barrier", value=ast.Name(id="threading")):
                is_limited = "timeout" in keywords
            case ast.Attribute(attr=name, value=on) if name in ENDS:
                is_limited = bool(call.args or call.keywords) or ast.unparse(on) in barriers
            case _:
                is_limited = True
        if not is_limited:
            yield call.lineno


@pytest.mark.parametrize("path", sorted(TESTS.rglob("*.py")), ids=lambda path: str(path.relative_to(TESTS)))
def test_no_test_waits_without_a_timeout(path: Path) -> None:
    assert [f"{path.relative_to(TESTS)}:{line}" for line in unlimited(path.read_text())] == []


def test_unlimited_finds_waits_without_a_timeout() -> None:
    sample = """
import subprocess, threading, urllib.request
subprocess.run(["x"])
subprocess.run(["x"], timeout=1)
process.wait()
process.wait(1)
threading.Barrier(2)
urllib.request.urlopen("x")
thread.join()
async def wait(event):
    await event.wait()
"""
    assert list(unlimited(sample)) == [3, 5, 7, 8, 9]
