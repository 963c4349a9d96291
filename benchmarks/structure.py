"""Count what tells how hard the code is to find one's way in: its size and names, and the trips of a verb through it.

    python benchmarks/structure.py            lines, names, long files and functions; files that a verb enters
    python benchmarks/structure.py --names    and which they are

Of a trip: each verb has run before, so that imports and first looks are not counted. All threads are watched. A file
counts if it lies in the package; a move is a call or a return from one such file into another of the same thread. Least
is the number of files that the lines of these files would fill, if each folder's were packed into files of the most
lines that are allowed: no structure with the same code and folders has a trip through fewer files.
"""

import argparse
import ast
import asyncio
import json
import math
import re
import secrets
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.table import Table

import inturn

PACKAGE = Path(inturn.__file__).parent
FILE_LINES, FUNCTION_LINES = 400, 60


class Trips:
    """Watches what runs while it is open.

    Attributes:
        files: in the order in which they were entered first.
        moves: from one of them into another.
    """

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self.moves = 0
        self._last: dict[int, str] = {}

    def note(self, frame: FrameType, event: str, _argument: object) -> None:
        """Take one call or return, as `sys.setprofile` tells it."""
        if event not in {"call", "return"}:
            return
        caller = frame if event == "call" else frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(str(PACKAGE)):
            caller = caller.f_back if event == "return" else None
        if caller is None:
            return
        file, thread = caller.f_code.co_filename, threading.get_ident()
        self.files.setdefault(file)
        if self._last.setdefault(thread, file) != file:
            self.moves += 1
            self._last[thread] = file


class Watch:
    """Sees all that every thread runs from its start on, and notes it while a verb runs."""

    def __init__(self) -> None:
        self._trips: Trips | None = None
        threading.setprofile(self._see)
        sys.setprofile(self._see)

    def _see(self, frame: FrameType, event: str, argument: object) -> None:
        if self._trips is not None:
            self._trips.note(frame, event, argument)

    def of(self, verb: Callable[[], Any]) -> Trips:
        """Run a verb."""
        self._trips = trips = Trips()
        verb()
        time.sleep(0.1)  # what another thread has left to do
        self._trips = None
        return trips


def verbs(folder: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield each verb with a call of it that does something."""
    with inturn.open(folder / "trips.db", durable=False) as db:
        queue = db.queue("q")

        def send() -> None:
            queue.send({"n": 1}, group="a")

        yield "send", send
        for n in range(4):
            queue.send({"n": n}, group=f"{n}")
        yield "receive", queue.receive
        held = queue.receive(2)
        yield "ack", lambda: held.pop().ack()
    yield from endpoint(folder)
    with inturn.open(folder / "work.db", durable=False) as db:
        pipeline = inturn.Pipeline(
            name="p", group="g", order=inturn.Gapless("revision"), handler=lambda state, message: (state, [message])
        )
        numbers = iter(range(1, 9))

        def task() -> None:
            db.queue("q").send({}, group="a", revision=next(numbers))
            inturn.work(pipeline, db.queue("q"), until="empty", concurrency=1)

        yield "send and a worker's task", task


def endpoint(folder: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the SendMessage of a client whose connection is open; the endpoint runs in this thread too."""
    from inturn.sqs.config import Config, ServerConfig
    from inturn.sqs.run import Endpoint

    with inturn.open(folder / "served.db", durable=False) as db, asyncio.Runner() as runner:
        db.queue("q.fifo")
        served = runner.run(Endpoint(db, Config(server=ServerConfig(port=0))).__aenter__())
        reader, writer = runner.run(asyncio.open_connection("127.0.0.1", served.port))
        body = {"QueueUrl": f"{served.url}/000000000000/q.fifo", "MessageBody": "m", "MessageGroupId": "a"}

        async def ask() -> None:
            text = json.dumps(body | {"MessageDeduplicationId": secrets.token_hex()}).encode()
            head = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-amz-json-1.0\r\n"
            head += f"X-Amz-Target: AmazonSQS.SendMessage\r\nContent-Length: {len(text)}\r\n\r\n"
            writer.write(head.encode() + text)
            response = await reader.readuntil(b"}")
            assert b"200 OK" in response, response

        yield "HTTP send", lambda: runner.run(ask())
        writer.close()
        runner.run(served.__aexit__(None, None, None))


def figures() -> Iterator[tuple[str, int, list[str]]]:
    """Yield what can be read off the source: what it is, how much, and which."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
    yield "lines of Python", sum(len(path.read_text(encoding="utf-8").splitlines()) for path in trees), []
    long = [f"{_name(path)} {_code_lines(path)}" for path in trees if _code_lines(path) > FILE_LINES]
    yield f"files of more than {FILE_LINES} lines", len(long), long

    classes: dict[str, list[str]] = defaultdict(list)
    long, questions, bare = [], [], []
    for path, tree in trees.items():
        if not ast.get_docstring(tree):
            bare.append(_name(path))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(_name(path))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                count = (node.body[-1].end_lineno or 0) - node.body[0].lineno + 1 - _docstring_lines(node)
                long += [f"{_name(path)} {node.name} {count}"] * (count > FUNCTION_LINES)
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
                first = (ast.get_docstring(node) or "").partition(" ")[0]
                questions += [f"{_name(path)} {getattr(node, 'name', '')}"] * (first in {"What", "Whether", "How"})
    yield f"functions of more than {FUNCTION_LINES} lines without the docstring", len(long), long
    repeated = [f"{name}: {', '.join(paths)}" for name, paths in sorted(classes.items()) if len(paths) > 1]
    yield "class names that two files or more define", len(repeated), repeated
    yield "docstrings that begin with What, Whether or How", len(questions), questions
    yield "modules that do not say why they exist", len(bare), bare

    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    literals = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    literals |= {node.arg for node in nodes if isinstance(node, ast.keyword) and node.arg}
    statements = [
        (path, name)
        for path in sorted(PACKAGE.rglob("*.sql"))
        for name in re.findall(r"^-- name: ?(\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    unused = [f"{_name(path)}: {name}" for path, name in statements if name not in literals]
    yield "SQL statements that nothing names", len(unused), unused
    shared = {name for path, name in statements if path.parent.name == "sql"}  # by both stores
    stores = Counter((path.parent, name) for path, name in statements)
    double = [
        f"{_name(folder)}: {name}"
        for (folder, name), count in stores.items()
        if count > 1 or (name in shared and folder.name != "sql")
    ]
    yield "SQL statements of one store with the same name", len(double), double


def _docstring_lines(node: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    if ast.get_docstring(node) is None:
        return 0
    docstring = node.body[0]
    return (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1


@cache
def _code_lines(path: Path) -> int:
    """Return the number of a file's lines without the page at its top; nobody should shorten that for code."""
    text = path.read_text(encoding="utf-8")
    return len(text.splitlines()) - _docstring_lines(ast.parse(text))


def least_files(files: Iterable[str]) -> int:
    """Return the number of full files into which the code of these files could be packed, folder by folder."""
    lines: Counter[Path] = Counter()
    for path in map(Path, files):
        lines[path.parent] += _code_lines(path)
    return sum(math.ceil(count / FILE_LINES) for count in lines.values())


def _name(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--names", action="store_true")
    args = options.parse_args()
    table = Table("", "files", "least", "moves", *(["which"] if args.names else []))
    counted = Table("", "", *(["which"] if args.names else []))
    for label, count, which_ones in figures():
        counted.add_row(label, f"{count:,}", *(["\n".join(which_ones)] if args.names else []))
    watch = Watch()
    with tempfile.TemporaryDirectory() as folder:
        for name, verb in verbs(Path(folder)):
            verb()
            trips = watch.of(verb)
            names = "\n".join(str(Path(path).relative_to(PACKAGE)) for path in trips.files)
            figures_of = map(str, (len(trips.files), least_files(trips.files), trips.moves))
            table.add_row(name, *figures_of, *([names] if args.names else []))
    Console().print(counted, table)


if __name__ == "__main__":
    main()
