"""The Idempotency-Key header when its store fails, and which responses are stored."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx2 as httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

import virtual_time
from inturn.core.errors import StoreUnavailable
from inturn.core.idempotency_keys import AcceptKey, KeyRequest, LockKey, ReleaseKey
from inturn.idempotency import IdempotencyKeys, IdempotencyMiddleware, MemoryKeys

KEY = {"Idempotency-Key": "k-1"}


class Service:
    """An application that counts its effects; the request says the status of the answer."""

    def __init__(self) -> None:
        self.effects = 0
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.has_begun = asyncio.Event()

    async def pay(self, request: Request) -> Response:
        self.effects += 1
        self.has_begun.set()
        await self.go_on.wait()
        return Response(b"%d" % self.effects, int(request.query_params.get("status", "201")))

    async def export(self, request: Request) -> Response:
        self.effects += 1

        async def parts() -> AsyncIterator[bytes]:
            yield b"not "
            yield b"now"

        return StreamingResponse(parts(), int(request.query_params["status"]))


def served(
    keys: IdempotencyKeys, ask: Callable[[Service, httpx.AsyncClient], Awaitable[None]], **options: Any
) -> Service:
    """Run requests against a new service, in virtual time."""

    async def main() -> Service:
        service = Service()
        routes = [Route(f"/{handler.__name__}", handler, methods=["POST"]) for handler in (service.pay, service.export)]
        app = Starlette(routes=routes)
        app.add_middleware(IdempotencyMiddleware, keys=keys, **options)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            await ask(service, client)
        return service

    return virtual_time.run(main)


class FailingKeys(MemoryKeys):
    """Keys in memory whose store is away for the next requests of a kind."""

    def __init__(self, kind: type[KeyRequest], times: float) -> None:
        super().__init__(clock=lambda: round(asyncio.get_running_loop().time() * 1000))
        self.times, self.failed_at = times, list[float]()
        run = self.writer.arun

        async def fail(command: Any) -> Any:
            if isinstance(command.request, kind) and len(self.failed_at) < self.times:
                self.failed_at.append(asyncio.get_running_loop().time())
                raise StoreUnavailable("the connection was lost")
            return await run(command)

        self.writer.arun = fail  # type: ignore[method-assign]


@pytest.mark.parametrize("times", [1, 5])
def test_storing_the_response_is_retried_while_the_store_fails(times: int) -> None:
    async def ask(_service: Service, client: httpx.AsyncClient) -> None:
        first, second = [await client.post("/pay", headers=KEY) for _ in range(2)]
        assert (first.status_code, first.text) == (second.status_code, second.text) == (201, "1")
        assert "idempotent-replayed" in second.headers

    keys = FailingKeys(AcceptKey, times)
    assert served(keys, ask).effects == 1
    assert len(keys.failed_at) == times
    assert len(set(keys.failed_at)) == times, "there is a pause between two tries"


def test_a_response_that_cannot_be_stored_gets_500_and_the_key_stays_locked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def ask(_service: Service, client: httpx.AsyncClient) -> None:
        answer = await client.post("/pay", headers=KEY)
        assert answer.status_code == 500
        assert answer.headers["content-type"] == "application/problem+json"
        assert "retry-after" not in answer.headers
        assert "was processed" in answer.json()["detail"]
        assert keys.failed_at[-1] - keys.failed_at[0] <= 10
        assert (await client.post("/pay", headers=KEY)).status_code == 409
        keys.times = 0
        await asyncio.sleep(20)
        assert (await client.post("/pay", headers=KEY)).text == "2"

    keys = FailingKeys(AcceptKey, math.inf)
    assert served(keys, ask, timeout_s=20).effects == 2
    assert "not stored" in caplog.text
    assert "k-1" not in caplog.text


def test_a_request_whose_key_cannot_be_locked_gets_503_and_does_not_run() -> None:
    async def ask(service: Service, client: httpx.AsyncClient) -> None:
        answer = await client.post("/pay", headers=KEY)
        assert (answer.status_code, service.effects) == (503, 0)
        assert answer.headers["content-type"] == "application/problem+json"
        assert int(answer.headers["retry-after"]) > 0
        assert (await client.post("/pay", headers=KEY)).text == "1"

    assert served(FailingKeys(LockKey, 1), ask).effects == 1


@pytest.mark.parametrize("status", [200, 302, 400, 402, 404, 409, 500, 501])
def test_most_response_statuses_are_stored_by_default(status: int) -> None:
    async def ask(_service: Service, client: httpx.AsyncClient) -> None:
        answers = [await client.post(f"/pay?status={status}", headers=KEY) for _ in range(2)]
        assert [(answer.status_code, answer.text) for answer in answers] == [(status, "1")] * 2

    served(MemoryKeys(), ask)


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_response_that_asks_for_a_retry_is_not_stored_by_default(status: int) -> None:
    async def ask(_service: Service, client: httpx.AsyncClient) -> None:
        answers = [await client.post(f"/pay?status={status}", headers=KEY) for _ in range(2)]
        assert [(answer.status_code, answer.text) for answer in answers] == [(status, "1"), (status, "2")]

    served(MemoryKeys(), ask)


def test_the_store_function_selects_the_stored_statuses() -> None:
    async def ask(_service: Service, client: httpx.AsyncClient) -> None:
        for status, effects in ((503, 1), (402, 2), (201, 1)):
            headers = {"Idempotency-Key": f"k-{status}"}
            answers = [await client.post(f"/pay?status={status}", headers=headers) for _ in range(2)]
            assert len({answer.text for answer in answers}) == effects

    served(MemoryKeys(), ask, store=lambda status: status < 400 or status == 503)


def test_a_response_that_is_not_stored_may_be_streamed() -> None:
    async def ask(_service: Service, client: httpx.AsyncClient) -> None:
        for _ in range(2):
            answer = await client.post("/export?status=503", headers=KEY)
            assert (answer.status_code, answer.text) == (503, "not now")

    assert served(MemoryKeys(), ask).effects == 2


def test_a_streamed_response_gets_500_and_the_handler_does_not_run_again() -> None:
    """The error in its place is stored, though one of the application with this status would not be."""

    async def ask(_service: Service, client: httpx.AsyncClient) -> None:
        for _ in range(2):
            assert (await client.post("/export?status=200", headers=KEY)).status_code == 500

    assert served(MemoryKeys(), ask, store=lambda status: status < 400).effects == 1


def test_an_unstored_response_is_sent_even_if_releasing_the_key_fails() -> None:
    async def ask(_service: Service, client: httpx.AsyncClient) -> None:
        assert (await client.post("/pay?status=503", headers=KEY)).status_code == 503
        assert (await client.post("/pay?status=503", headers=KEY)).status_code == 409

    assert served(FailingKeys(ReleaseKey, 1), ask).effects == 1


@pytest.mark.parametrize(("timeout_s", "seconds"), [(600, 2), (1, 1)])
def test_a_duplicate_of_a_running_request_gets_a_short_retry_after(timeout_s: float, seconds: int) -> None:
    async def ask(service: Service, client: httpx.AsyncClient) -> None:
        service.go_on.clear()
        first = asyncio.create_task(client.post("/pay", headers=KEY))
        await service.has_begun.wait()
        answer = await client.post("/pay", headers=KEY)
        assert (answer.status_code, answer.headers["retry-after"]) == (409, str(seconds))
        service.go_on.set()
        assert (await first).status_code == 201

    assert served(FailingKeys(LockKey, 0), ask, timeout_s=timeout_s).effects == 1


def test_a_request_cancelled_while_storing_its_response_is_stored_once_more() -> None:
    keys = FailingKeys(AcceptKey, 1)
    answers = list[httpx.Response]()

    async def ask(_service: Service, client: httpx.AsyncClient) -> None:
        asking = asyncio.create_task(client.post("/pay", headers=KEY))
        while not keys.failed_at:
            await asyncio.sleep(0.01)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        answers.append(await client.post("/pay", headers=KEY))

    service = served(keys, ask)
    assert (answers[0].status_code, service.effects) == (201, 1)
    assert answers[0].headers["idempotent-replayed"] == "true"
