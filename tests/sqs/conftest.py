"""The endpoint for each test: server and clients are made once, the database and its clock anew."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from botocore.client import BaseClient
from endpoint import Endpoint, SharedServer, client_of

from inturn.sqs.events import EVENTS


@pytest.fixture(autouse=True)
def _all_events_are_logged() -> None:
    EVENTS.forget()


@pytest.fixture(scope="session")
def shared_server() -> Iterator[SharedServer]:
    shared_server = SharedServer()
    yield shared_server
    shared_server.close()


@pytest.fixture(scope="session")
def clients(shared_server: SharedServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, BaseClient]:
    return {
        protocol: client_of(protocol, shared_server.naming.base_url, tmp_path_factory.mktemp(protocol))
        for protocol in ("json", "query")
    }


def _endpoint(
    protocol: str, shared_server: SharedServer, clients: dict[str, BaseClient], path: Path | str
) -> Iterator[Endpoint]:
    endpoint = Endpoint(clients[protocol], protocol, shared_server, path)
    endpoint.open()
    yield endpoint
    with suppress(Exception):
        endpoint.close()


@pytest.fixture(params=["json", "query", "postgres"])
def sqs(
    request: pytest.FixtureRequest, shared_server: SharedServer, clients: dict[str, BaseClient], tmp_path: Path
) -> Iterator[Endpoint]:
    """The endpoint in each protocol over a file, and over PostgreSQL."""
    if request.param == "postgres":
        yield from _endpoint("json", shared_server, clients, request.getfixturevalue("postgres_url"))
    else:
        yield from _endpoint(request.param, shared_server, clients, tmp_path / "queues.db")
