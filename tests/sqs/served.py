"""The whole endpoint in this process, and what every client must be able to rely on: each answer is one of its kind."""

import asyncio
import json
import logging
import re
import threading
from pathlib import Path
from typing import Any, NamedTuple, Self
from xml.etree import ElementTree as ET

import inturn
from inturn.sqs.config import Config
from inturn.sqs.run import Endpoint
from inturn.store.writer.event_loop import EventLoopWriter

WAIT_S = 60


class Served(logging.Handler):
    """An endpoint in a thread of its own; it keeps what is logged as an error, by whomever.

    Attributes:
        port: on which it listens.
        errors: what was logged, from ERROR on.
    """

    def __init__(self, path: Path, config: Config) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[str] = []
        self._path = path
        self._config = config
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def emit(self, record: logging.LogRecord) -> None:
        self.errors.append(logging.Formatter().format(record))

    def __enter__(self) -> Self:
        logging.getLogger().addHandler(self)
        self._thread.start()
        self.db = inturn.open(self._path, durable=False)
        self._in_loop = EventLoopWriter(self.db.writer, self.db.store)
        self._run(self._in_loop.__aenter__())
        self._endpoint = Endpoint(self.db, self._config)
        self._run(self._endpoint.start())
        self.port = self._endpoint.port
        self.url = self._endpoint.url
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._endpoint.stop(0))
        self._run(self._in_loop.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()
        self.db.close()
        logging.getLogger().removeHandler(self)

    def _run(self, awaitable: Any) -> None:
        asyncio.run_coroutine_threadsafe(awaitable, self._loop).result(WAIT_S)


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def answers_in(data: bytes) -> list[Answer]:
    """All answers that came, whole and with nothing between them."""
    answers = []
    while data:
        head, end, data = data.partition(b"\r\n\r\n")
        assert end, head
        first, *lines = head.decode("ascii").split("\r\n")
        match = re.fullmatch(r"HTTP/1\.1 (\d{3}) [A-Za-z ]+", first)
        assert match, first
        headers = {}
        for line in lines:
            name, colon, value = line.partition(": ")
            assert colon, line
            headers[name.lower()] = value
        length = int(headers["content-length"])
        assert len(data) >= length
        answers.append(Answer(int(match[1]), headers, data[:length]))
        data = data[length:]
    return answers


REFUSED_BY_HTTP = {400, 405, 408, 413, 431, 501}


def code_of(answer: Answer) -> str:
    """The code with which SQS refuses, "" if it does not, the status if HTTP does; whatever else came is a failure."""
    status, headers, body = answer
    kind = headers["content-type"]
    if kind == "text/plain":
        assert status in REFUSED_BY_HTTP, answer
        assert body.startswith(str(status).encode()), answer
        return str(status)
    assert status in {200, 400, 403, 404}, answer
    assert headers["x-amzn-requestid"]
    if kind == "application/x-amz-json-1.0":
        document = json.loads(body)
        if status == 200:
            return ""
        assert {*document} == {"__type", "message"}, answer
        code, _, fault_type = headers["x-amzn-query-error"].partition(";")
        assert document["__type"].startswith("com.amazon"), answer
        assert fault_type == "Sender", answer
        return code
    assert kind == "text/xml", answer
    root = ET.fromstring(body)  # noqa: S314 - what we have made ourselves
    if root.tag == "UnknownOperationException":  # a form that names no action
        assert status == 404, answer
        return root.tag
    if status == 200:
        assert root.tag.endswith("Response"), answer
        assert not root.tag.endswith("ErrorResponse"), answer
        return ""
    space = root.tag.removesuffix("ErrorResponse")
    assert root.findtext(f"{space}Error/{space}Type") == "Sender", answer
    return root.findtext(f"{space}Error/{space}Code") or "no code"
