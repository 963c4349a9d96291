"""The Idempotency-Key header over ASGI, case by case of the IETF draft, over every store of keys."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

import httpx2 as httpx
import pytest
from fastapi import BackgroundTasks, Depends, FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from hypothesis import given
from hypothesis import strategies as st
from starlette.authentication import SimpleUser, UnauthenticatedUser

import inturn
import virtual_time
from inturn.core.errors import SetupError, StoreError
from inturn.core.idempotency_keys import ExtendKey
from inturn.idempotency import IdempotencyKeys, IdempotencyMiddleware, KeyedRequest, MemoryKeys, StoredResponse
from inturn.idempotency.asgi import key_of, signed_in
from inturn.idempotency.fastapi import requires_key

KEY = {"Idempotency-Key": '"8e03978e-40d5-43e8-bc93-6894a57f9324"'}


class Shop:
    """A service that counts its effects."""

    def __init__(self) -> None:
        self.effects: Counter[str] = Counter()
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.has_begun = asyncio.Event()
        self.app = FastAPI()
        self.app.post("/payments", status_code=201)(self.pay)
        self.app.post("/refunds", status_code=201)(self.pay)
        self.app.post("/orders/{name}")(self.order)
        self.app.post("/exports")(self.export)
        self.app.post("/needed")(self.needed)
        self.app.get("/payments")(self.pay)
        self.app.post("/broken")(self.broken)
        self.app.post("/wrong")(self.wrong)
        self.app.post("/later")(self.later)

    async def pay(self, request: Request, response: Response) -> dict[str, Any]:
        content = await request.body()
        self.has_begun.set()
        await self.go_on.wait()
        self.effects["pay"] += 1
        response.headers["location"] = f"/payments/{self.effects['pay']}"
        return {"paid": content.decode(), "number": self.effects["pay"]}

    async def order(self, name: str) -> Response:
        self.effects[name] += 1
        return Response(b"\x00\xff" + name.encode(), 202, {"x-number": str(self.effects[name])})

    async def export(self) -> StreamingResponse:
        self.effects["export"] += 1

        async def lines() -> AsyncIterator[bytes]:
            for n in range(3):
                yield b"%d\n" % n

        return StreamingResponse(lines())

    async def needed(self, request: Annotated[KeyedRequest, Depends(requires_key)]) -> dict[str, str]:
        self.effects["needed"] += 1
        return {"key": request.key}

    async def broken(self) -> None:
        self.effects["broken"] += 1
        if self.effects["broken"] == 1:
            raise ZeroDivisionError

    async def wrong(self) -> Response:
        self.effects["wrong"] += 1
        return Response(b'{"why": "no money"}', 402)

    async def later(self, tasks: BackgroundTasks) -> dict[str, str]:
        async def fail() -> None:
            self.effects["later"] += 1
            raise ZeroDivisionError

        tasks.add_task(fail)
        return {"said": "later"}


Asked = Callable[[Shop, httpx.AsyncClient], Awaitable[None]]


def played(
    keys: IdempotencyKeys, ask: Asked, run: Callable[[Any], Shop] = lambda main: asyncio.run(main()), **options: Any
) -> Shop:
    """Run requests against a new service."""

    async def main() -> Shop:
        shop = Shop()
        shop.app.add_middleware(IdempotencyMiddleware, keys=keys, **options)
        transport = httpx.ASGITransport(shop.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            await ask(shop, client)
        return shop

    return run(main)


def loop_ms() -> int:
    """Return the time of the event loop."""
    return round(asyncio.get_running_loop().time() * 1000)


def is_problem(answer: httpx.Response, status: int) -> bool:
    problem = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["status"] == answer.status_code
    assert all(problem[name] for name in ("type", "title", "detail"))
    return answer.status_code == status


def test_a_repeated_request_runs_once_and_gets_status_headers_and_body(keys: IdempotencyKeys) -> None:
    async def ask(shop: Shop, client: httpx.AsyncClient) -> None:
        first = await client.post("/payments", json={"amount": 5}, headers=KEY)
        second = await client.post("/payments", json={"amount": 5}, headers=KEY)
        assert (first.status_code, second.status_code) == (201, 201)
        assert first.json() == second.json() == {"paid": '{"amount":5}', "number": 1}
        assert second.headers.pop("idempotent-replayed") == "true"
        assert first.headers == second.headers
        binary = [await client.post("/orders/a", headers=KEY) for _ in range(3)]
        assert {(response.status_code, response.content, response.headers["x-number"]) for response in binary} == {
            (202, b"\x00\xffa", "1")
        }

    assert played(keys, ask).effects == {"pay": 1, "a": 1}


def test_a_duplicate_of_a_running_request_gets_409_with_retry_after(keys: IdempotencyKeys) -> None:
    async def ask(shop: Shop, client: httpx.AsyncClient) -> None:
        shop.go_on.clear()
        first = asyncio.create_task(client.post("/payments", content=b"5", headers=KEY))
        await shop.has_begun.wait()
        answer = await client.post("/payments", content=b"5", headers=KEY)
        assert is_problem(answer, 409)
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        assert is_problem(await client.post("/payments", content=b"6", headers=KEY), 422)
        shop.go_on.set()
        assert (await first).status_code == 201
        assert (await client.post("/payments", content=b"5", headers=KEY)).json() == (await first).json()
        assert is_problem(await client.post("/payments", content=b"6", headers=KEY), 422)
        assert is_problem(await client.post("/payments?x=1", content=b"5", headers=KEY), 422)

    assert played(keys, ask).effects == {"pay": 1}


@pytest.mark.parametrize(
    "sent",
    [
        [""],
        [" "],
        ['"'],
        ['""'],
        ['"a'],
        ['a"'],
        ['"a" b'],
        ["a b"],
        ["a,b"],
        ['"a"', '"a"'],
        ["a", "b"],
        ['"\\a"'],
        ["é"],
    ],
)
def test_a_malformed_key_and_two_keys_are_refused(sent: list[str]) -> None:
    async def ask(_shop: Shop, client: httpx.AsyncClient) -> None:
        headers = [(b"Idempotency-Key", value.encode()) for value in sent]
        assert is_problem(await client.post("/payments", headers=headers), 400)

    assert not played(MemoryKeys(), ask).effects


def test_a_missing_required_key_gets_400() -> None:
    async def ask(shop: Shop, client: httpx.AsyncClient) -> None:
        assert is_problem(await client.post("/needed"), 400)
        assert not shop.effects
        assert (await client.post("/needed", headers={"Idempotency-Key": "k-1"})).json() == {"key": "k-1"}
        assert (await client.post("/needed", headers={"Idempotency-Key": '"k-1"'})).json() == {"key": "k-1"}
        assert (await client.post("/payments")).status_code == 201

    assert played(MemoryKeys(), ask).effects == {"needed": 1, "pay": 1}

    async def ask_all(_shop: Shop, client: httpx.AsyncClient) -> None:
        assert is_problem(await client.post("/payments"), 400)
        assert (await client.post("/refunds")).status_code == 201
        assert (await client.get("/payments")).status_code == 200

    assert played(MemoryKeys(), ask_all, required=lambda scope: scope["path"] == "/payments").effects == {"pay": 2}


def test_requiring_a_key_without_the_middleware_raises_setup_error() -> None:
    async def main() -> None:
        transport = httpx.ASGITransport(Shop().app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            with pytest.raises(SetupError, match="add_middleware"):
                await client.post("/needed", headers=KEY)

    asyncio.run(main())


def test_keys_are_scoped_to_caller_method_and_path() -> None:
    async def ask(_shop: Shop, client: httpx.AsyncClient) -> None:
        for path in ("/payments", "/refunds"):
            for user in ({}, {"Authorization": "Bearer a"}, {"Authorization": "Bearer b"}):
                for _ in range(2):
                    assert (await client.post(path, headers={**KEY, **user})).status_code == 201
        for _ in range(2):  # a safe method has no keys
            assert (await client.get("/payments", headers=KEY)).status_code == 200

    assert played(MemoryKeys(), ask).effects == {"pay": 8}


def test_a_user_function_identifies_the_caller() -> None:
    async def ask(_shop: Shop, client: httpx.AsyncClient) -> None:
        for cookie in ("a", "b", "a"):
            await client.post("/payments", headers={**KEY, "x-session": cookie})

    def user(scope: Any) -> str:
        return dict(scope["headers"])[b"x-session"].decode()

    assert played(MemoryKeys(), ask, user=user).effects == {"pay": 2}


def test_an_error_response_is_stored_and_a_raised_error_is_not() -> None:
    async def ask(_shop: Shop, client: httpx.AsyncClient) -> None:
        assert [(await client.post("/wrong", headers=KEY)).status_code for _ in range(3)] == [402] * 3
        assert [(await client.post("/broken", headers=KEY)).status_code for _ in range(3)] == [500, 200, 200]

    assert played(MemoryKeys(), ask).effects == {"wrong": 1, "broken": 2}


def test_a_streamed_or_very_long_response_is_refused_and_does_not_run_again(caplog: pytest.LogCaptureFixture) -> None:
    async def ask(_shop: Shop, client: httpx.AsyncClient) -> None:
        for _ in range(2):
            answer = await client.post("/exports", headers=KEY)
            assert is_problem(answer, 500)
            assert "streamed" in answer.json()["detail"]
        assert (await client.post("/exports")).text == "0\n1\n2\n"
        long = await client.post("/payments", content=b"x" * 800_000, headers=KEY)
        assert is_problem(long, 500)

    assert played(MemoryKeys(), ask).effects == {"export": 2, "pay": 1}
    assert "exclude its route" in caplog.text


def test_a_request_over_the_size_limit_gets_413_and_does_not_run() -> None:
    async def ask(_shop: Shop, client: httpx.AsyncClient) -> None:
        assert is_problem(await client.post("/payments", content=b"x" * 101, headers=KEY), 413)
        assert (await client.post("/payments", content=b"x" * 100, headers=KEY)).status_code == 201
        assert (await client.post("/payments", content=b"x" * 101)).status_code == 201

    assert played(MemoryKeys(), ask, body_bytes=100).effects == {"pay": 2}


def test_a_failing_background_task_does_not_change_the_response() -> None:
    async def ask(_shop: Shop, client: httpx.AsyncClient) -> None:
        assert [(await client.post("/later", headers=KEY)).json() for _ in range(2)] == [{"said": "later"}] * 2

    assert played(MemoryKeys(), ask).effects == {"later": 1}


def test_the_lock_of_a_long_handler_is_extended() -> None:
    """The lock is for ten seconds and the handler takes thirty: without being extended the others would take it."""

    async def ask(shop: Shop, client: httpx.AsyncClient) -> None:
        shop.go_on.clear()
        first = asyncio.create_task(client.post("/payments", headers=KEY))
        await shop.has_begun.wait()
        seen = set()
        for _ in range(30):
            await asyncio.sleep(1)
            seen.add((await client.post("/payments", headers=KEY)).status_code)
        assert seen == {409}
        shop.go_on.set()
        assert (await first).status_code == 201

    assert played(MemoryKeys(clock=loop_ms), ask, virtual_time.run, timeout_s=10).effects == {"pay": 1}


def test_extending_a_lock_is_retried_if_the_store_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    keys, failed = MemoryKeys(clock=loop_ms), []
    run = keys.writer.arun

    async def fails_once(command: Any) -> Any:
        if isinstance(command.request, ExtendKey) and not failed:
            failed.append(command)
            raise StoreError("the connection was lost")
        return await run(command)

    monkeypatch.setattr(keys.writer, "arun", fails_once)

    async def ask(shop: Shop, client: httpx.AsyncClient) -> None:
        shop.go_on.clear()
        first = asyncio.create_task(client.post("/payments", headers=KEY))
        await shop.has_begun.wait()
        for _ in range(25):
            await asyncio.sleep(1)
            assert (await client.post("/payments", headers=KEY)).status_code == 409
        shop.go_on.set()
        assert (await first).status_code == 201

    assert played(keys, ask, virtual_time.run, timeout_s=10).effects == {"pay": 1}
    assert failed


class Named:
    """A user as Starlette's BaseUser has it, who need not have an identity."""

    is_authenticated = True

    def __init__(self, name: str) -> None:
        self.display_name = name

    @property
    def identity(self) -> str:
        raise NotImplementedError


def test_the_caller_is_the_authenticated_user() -> None:
    def scope(user: Any) -> dict[str, Any]:
        return {"user": user, "headers": []}

    assert signed_in(scope(Named("ann"))) == "user ann" != signed_in(scope(Named("bob")))
    assert signed_in(scope(SimpleUser("ann"))) == "user ann"
    assert signed_in(scope(UnauthenticatedUser())) == ""
    with pytest.raises(SetupError, match="user="):
        signed_in(scope(Named("")))


def test_requiring_a_key_for_an_uncovered_method_raises_setup_error() -> None:
    async def ask(shop: Shop, client: httpx.AsyncClient) -> None:
        shop.app.put("/needed")(shop.needed)
        transport = httpx.ASGITransport(shop.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as other:
            with pytest.raises(SetupError, match="methods="):
                await other.put("/needed", headers=KEY)

    played(MemoryKeys(), ask)


def test_two_hundred_duplicates_at_once_have_one_effect_and_no_error(keys: IdempotencyKeys) -> None:
    async def ask(shop: Shop, client: httpx.AsyncClient) -> None:
        async def until_done(n: int) -> tuple[int, str]:
            content, headers = b"%d" % (n // 100), {"Idempotency-Key": f"k{n // 100}"}
            while (answer := await client.post("/payments", content=content, headers=headers)).status_code == 409:
                await asyncio.sleep(0.01)
            return answer.status_code, answer.text

        others = [client.post("/orders/o", content=b"", headers={"Idempotency-Key": f"o{n}"}) for n in range(50)]
        *answers, _ = await asyncio.gather(*map(until_done, range(200)), asyncio.gather(*others))
        assert len(set(answers)) == 2
        assert {status for status, _ in answers} == {201}

    assert played(keys, ask).effects == {"pay": 2, "o": 50}


def test_an_accept_in_the_handlers_transaction_survives_a_crash_as_the_response(
    tmp_path: Path,
) -> None:
    with inturn.open(tmp_path / "shop.db", durable=False) as db:
        keys = db.idempotency_keys("payments")
        with db.transaction() as tx:
            tx.execute("create table paid (amount int)")
        app = FastAPI()
        app.add_middleware(IdempotencyMiddleware, keys=keys)
        dies = True

        @app.post("/payments", status_code=201)
        async def pay(request: Annotated[KeyedRequest, Depends(requires_key)]) -> dict[str, int]:
            response = StoredResponse(201, (("content-type", "application/json"),), b'{"paid":5}')
            with db.transaction() as tx:
                tx.execute("insert into paid values (5)")
                keys.accept(request.lock, response.result(), tx=tx)
            if dies:
                raise KeyboardInterrupt
            return {"paid": 5}

        async def post() -> httpx.Response:
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
                return await client.post("/payments", headers=KEY)

        with pytest.raises(KeyboardInterrupt):
            asyncio.run(post())
        dies = False
        answer = asyncio.run(post())
        assert (answer.status_code, answer.json()) == (201, {"paid": 5})
        with db.transaction() as tx:
            assert tx.execute("select count(*) from paid").fetchone() == (1,)


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1))
def test_every_string_of_the_standard_is_a_valid_key(key: str) -> None:
    quoted = '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'
    assert key_of([quoted.encode()]) == key


@given(st.binary())
def test_an_arbitrary_header_is_parsed_as_a_key_or_refused(sent: bytes) -> None:
    with contextlib.suppress(ValueError):
        key = key_of([sent])
        assert key
        assert key.isascii()
        assert key.isprintable()
