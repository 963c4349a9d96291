"""The endpoint with a real server on a free port, and boto3's client for it, in both protocols.

Server and clients are made once, since a client costs more than a test.
"""

import asyncio
import copy
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import boto3
import botocore.session
import pytest
from boto_halves import service
from botocore.client import BaseClient
from botocore.config import Config
from botocore.exceptions import ClientError

import inturn
from clocks import Clock
from inturn.serving.http.http1 import Reply, Request
from inturn.serving.http.server import HttpServer
from inturn.sqs.app import App
from inturn.sqs.naming import Home, Scope
from waiting import DEADLINE_S

if TYPE_CHECKING:
    from inturn.database import Database

ACCOUNT = "000000000000"
REGION = "us-east-1"
in_json = pytest.mark.parametrize("sqs", ["json"], indirect=True)
"""For a test of a rule that is behind the protocols and before the stores: what is valid, and what attributes mean."""


class SharedServer:
    """A server in a thread of its own, which hands each request to the app of the test that runs."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.app: App | None = None
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.server = self.run(self._start())
        self.naming = SimpleNamespace(
            home=Home(Scope(REGION, ACCOUNT)), joined=False, base_url=f"http://127.0.0.1:{self.server.port}"
        )

    async def _start(self) -> HttpServer:
        server = HttpServer(self._handle, "127.0.0.1")
        await server.start()
        return server

    def _handle(self, request: Request, reply: Reply) -> None:
        assert self.app is not None
        self.app.handle(request, reply)

    def run(self, awaitable: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(awaitable, self.loop).result(30)

    def close(self) -> None:
        self.run(self.server.stop(5))
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(DEADLINE_S)
        self.loop.close()


def client_of(protocol: str, url: str, where: Path) -> BaseClient:
    """boto3's client, which checks nothing by itself and never tries again."""
    session = botocore.session.get_session()
    if protocol == "query":
        description = copy.deepcopy(service("query")._service_description)
        description["metadata"] = {**description["metadata"], "protocol": "query", "protocols": ["query"]}
        described = where / "sqs" / "2012-11-05"
        described.mkdir(parents=True)
        (described / "service-2.json").write_text(json.dumps(description))
        session.get_component("data_loader").search_paths.insert(0, str(where))
    return boto3.Session(botocore_session=session).client(
        "sqs",
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id="any",
        aws_secret_access_key="any",  # noqa: S106 - nobody looks at it
        config=Config(
            retries={"total_max_attempts": 1}, parameter_validation=False, read_timeout=30, max_pool_connections=20
        ),
    )


@dataclass
class Endpoint:
    """What a test works with: a client, and behind it a database of its own."""

    client: Any
    protocol: str
    shared_server: SharedServer
    path: Path | str
    clock: Clock = field(default_factory=Clock)
    options: dict[str, Any] = field(default_factory=dict)

    def open(self) -> None:
        self.db: Database = inturn.open(self.path, durable=False, clock=self.clock)
        self.app = App(self.db, self.shared_server.naming, **self.options)
        self.shared_server.run(self.app.start())
        self.shared_server.app = self.app

    def close(self) -> None:
        self.shared_server.run(self.app.stop())
        self.db.close()

    def restart(self, after_s: float = 0) -> None:
        self.close()
        self.clock.forward(after_s)
        self.open()

    def queue(self, name: str, **attributes: Any) -> str:
        """A new queue's URL."""
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in attributes.items()}
        if name.endswith(".fifo"):
            texts["FifoQueue"] = "true"
        url: str = self.client.create_queue(QueueName=name, Attributes=texts)["QueueUrl"]
        return url

    def arn(self, name: str) -> str:
        return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}"

    def url(self, name: str) -> str:
        return f"{self.shared_server.naming.base_url}/{ACCOUNT}/{name}"

    def receive(self, url: str, most: int = 10, **more: Any) -> list[dict[str, Any]]:
        answer = self.client.receive_message(
            QueueUrl=url, MaxNumberOfMessages=most, **{"MessageSystemAttributeNames": ["All"], **more}
        )
        return list(answer.get("Messages", []))

    def bodies(self, url: str, most: int = 10, **more: Any) -> list[str]:
        return [message["Body"] for message in self.receive(url, most, **more)]

    def attributes(self, url: str, *names: str) -> dict[str, str]:
        answer = self.client.get_queue_attributes(QueueUrl=url, AttributeNames=list(names) or ["All"])
        return dict(answer.get("Attributes", {}))

    def refused(self, call: Callable[..., Any], **params: Any) -> tuple[str, str]:
        """The code and the text with which a call is refused, the code as boto3 has it: the Query protocol's."""
        with pytest.raises(ClientError) as caught:
            call(**params)
        error = caught.value.response["Error"]
        return error["Code"], error["Message"]

    def status(self, call: Callable[..., Any], **params: Any) -> int:
        with pytest.raises(ClientError) as caught:
            call(**params)
        return int(caught.value.response["ResponseMetadata"]["HTTPStatusCode"])
