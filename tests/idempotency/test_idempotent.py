"""The wrapper: a handler runs once for each key, whatever it returns or raises."""

import asyncio
import functools
import inspect
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from inturn.core.errors import InputError, KeyConflict, KeyInProgress, LockLost
from inturn.idempotency import Completed, IdempotencyKeys, InProgress, MemoryKeys, idempotent
from threads import Running


@dataclass
class Receipt:
    id: str
    amount: int


class Bank:
    """Handlers, plain or async, that note their calls."""

    def __init__(self, *, is_async: bool) -> None:
        self.is_async = is_async
        self.calls: list[Any] = []

    def handler(self, does: Callable[[str, int], Any]) -> Any:
        def charge(to: str, amount: int = 5) -> Any:
            self.calls.append((to, amount))
            return does(to, amount)

        async def acharge(to: str, amount: int = 5) -> Any:
            await asyncio.sleep(0)
            return charge(to, amount)

        return acharge if self.is_async else charge

    def call(self, function: Any, *args: Any, **more: Any) -> Any:
        assert inspect.iscoroutinefunction(function) == self.is_async
        return asyncio.run(function(*args, **more)) if self.is_async else function(*args, **more)


@pytest.fixture(params=["plain", "async"])
def bank(request: pytest.FixtureRequest) -> Bank:
    return Bank(is_async=request.param == "async")


def by_name(to: str, amount: int = 5) -> str:
    return to


def test_a_handler_runs_once_and_duplicates_get_the_first_result(bank: Bank, keys: IdempotencyKeys) -> None:
    charge = idempotent(bank.handler(lambda to, amount: {"id": len(bank.calls)}), key=by_name, store=keys)
    assert [bank.call(charge, "ada") for _ in range(3)] == [{"id": 1}] * 3
    assert bank.call(charge, "bob") == {"id": 2}


def test_positional_and_keyword_arguments_are_compared_alike(bank: Bank) -> None:
    charge = idempotent(bank.handler(lambda to, amount: amount), key=by_name, store=MemoryKeys())
    assert [
        bank.call(charge, "ada"),
        bank.call(charge, "ada", 5),
        bank.call(charge, to="ada", amount=5),
    ] == [5, 5, 5]
    with pytest.raises(KeyConflict):
        bank.call(charge, "ada", 6)
    assert bank.calls == [("ada", 5)]


def test_the_payload_option_selects_the_compared_arguments(bank: Bank) -> None:
    def not_the_amount(to: str, amount: int) -> str:
        return to

    for payload in (None, not_the_amount):
        charge = idempotent(bank.handler(lambda to, amount: amount), key=by_name, store=MemoryKeys(), payload=payload)
        assert [bank.call(charge, "ada", 1), bank.call(charge, "ada", 2)] == [1, 1]


def test_arguments_without_a_canonical_form_are_refused_before_the_call(bank: Bank) -> None:
    charge = idempotent(bank.handler(lambda to, amount: 1), key=by_name, store=MemoryKeys())
    with pytest.raises(InputError, match="no canonical form"):
        bank.call(charge, "ada", object())
    assert bank.calls == []


def test_a_handler_that_raised_runs_again(bank: Bank, keys: IdempotencyKeys) -> None:
    def fails_at_first(to: str, amount: int) -> str:
        if len(bank.calls) == 1:
            raise OSError("the line is down")
        return "done"

    charge = idempotent(bank.handler(fails_at_first), key=by_name, store=keys)
    with pytest.raises(OSError, match="the line is down"):
        bank.call(charge, "ada")
    assert bank.call(charge, "ada") == "done"
    assert len(bank.calls) == 2


def test_an_exception_in_hold_on_keeps_the_key_locked(bank: Bank) -> None:
    def times_out(to: str, amount: int) -> None:
        raise TimeoutError

    now = 0
    keys = MemoryKeys(clock=lambda: now)
    charge = idempotent(bank.handler(times_out), key=by_name, store=keys, timeout_s=30, hold_on=(TimeoutError,))
    with pytest.raises(TimeoutError):
        bank.call(charge, "ada")
    with pytest.raises(KeyInProgress, match="key 'ada' is in progress; retry in at most 30 s") as caught:
        bank.call(charge, "ada")
    assert caught.value.retry_after_s == 30
    now = 30_000
    with pytest.raises(TimeoutError):
        bank.call(charge, "ada")


def test_a_concurrent_duplicate_raises_in_progress_instead_of_the_default(keys: IdempotencyKeys) -> None:
    """The first may yet fail: nobody may be told that it is done."""
    is_running, may_end = threading.Event(), threading.Event()

    @idempotent(key=str, store=keys, default_result="done before")
    def charge(to: str) -> str:
        is_running.set()
        assert may_end.wait(60)
        raise OSError

    first = Running(charge, "ada")
    assert is_running.wait(60)
    with pytest.raises(KeyInProgress):
        charge("ada")
    may_end.set()
    with pytest.raises(OSError):  # noqa: PT011 - it is its own
        first.end()
    assert keys.try_lock("ada")


def test_only_one_of_concurrent_tasks_runs_the_handler() -> None:
    calls = 0

    @idempotent(key=str, store=MemoryKeys())
    async def charge(to: str) -> int:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0)
        return calls

    async def race() -> list[Any]:
        return await asyncio.gather(*(charge("ada") for _ in range(20)), return_exceptions=True)

    results = asyncio.run(race())
    assert results.count(1) == 1
    assert sum(isinstance(result, KeyInProgress) for result in results) == 19


def test_a_cancelled_task_releases_its_key(keys: IdempotencyKeys) -> None:
    async def main() -> None:
        is_running = asyncio.Event()

        @idempotent(key=str, store=keys)
        async def charge(to: str) -> None:
            is_running.set()
            await asyncio.sleep(60)

        first = asyncio.create_task(charge("ada"))
        await is_running.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first

    asyncio.run(main())
    assert keys.try_lock("ada")


def test_with_default_result_the_first_result_is_not_stored(bank: Bank) -> None:
    thing = object()
    charge = idempotent(bank.handler(lambda to, amount: thing), key=by_name, store=MemoryKeys(), default_result="again")
    assert [bank.call(charge, "ada"), bank.call(charge, "ada")] == [thing, "again"]
    charge = idempotent(bank.handler(lambda to, amount: thing), key=by_name, store=MemoryKeys(), default_result=None)
    assert [bank.call(charge, "ada"), bank.call(charge, "ada")] == [thing, None]


def test_duplicates_get_results_of_the_result_type(bank: Bank) -> None:
    def receipt(to: str, amount: int) -> Any:
        return Receipt(to, amount)

    charge = idempotent(bank.handler(receipt), key=by_name, store=MemoryKeys(), result_type=Receipt)
    assert [bank.call(charge, "ada"), bank.call(charge, "ada")] == [Receipt("ada", 5)] * 2
    charge = idempotent(bank.handler(receipt), key=by_name, store=MemoryKeys())
    assert [bank.call(charge, "ada"), bank.call(charge, "ada")] == [{"id": "ada", "amount": 5}] * 2
    charge = idempotent(bank.handler(lambda to, amount: None), key=by_name, store=MemoryKeys())
    assert [bank.call(charge, "ada"), bank.call(charge, "ada")] == [None, None]
    assert len(bank.calls) == 3


def test_a_result_that_is_not_json_raises_and_the_handler_does_not_run_again(bank: Bank) -> None:
    keys = MemoryKeys()
    charge = idempotent(bank.handler(lambda to, amount: object()), key=by_name, store=keys)
    with pytest.raises(InputError, match="it is not JSON") as caught:
        bank.call(charge, "ada")
    assert caught.value.__notes__ == [
        "the handler has run, and its key is accepted; see default_result= and result_type="
    ]
    assert keys.try_lock("ada") == Completed("ada", "null")
    charge = idempotent(bank.handler(lambda to, amount: 5), key=by_name, store=MemoryKeys(), result_type=Receipt)
    for _ in range(2):
        with pytest.raises(InputError, match="the result 5 is not a valid <class"):
            bank.call(charge, "ada")
    assert len(bank.calls) == 2


def test_a_handler_that_outlives_its_lock_raises_lock_lost(bank: Bank) -> None:
    now = 0
    keys = MemoryKeys(clock=lambda: now)

    def slow(to: str, amount: int) -> int:
        nonlocal now
        now += 30_000
        if amount == 0:
            raise OSError("slow and failed")
        assert keys.try_lock(to, payload=None)
        return 1

    charge = idempotent(bank.handler(slow), key=by_name, store=keys, timeout_s=30)
    with pytest.raises(LockLost, match="another caller holds it now"):
        bank.call(charge, "ada")
    assert isinstance(keys.try_lock("ada"), InProgress)
    with pytest.raises(OSError, match="slow and failed") as caught:
        bank.call(charge, "bob", 0)
    assert "the idempotency key was not released" in caught.value.__notes__[0]


def test_methods_and_callables_can_be_wrapped() -> None:
    class Account:
        def __init__(self) -> None:
            self.calls = 0

        @idempotent(key=lambda self, to: to, store=MemoryKeys(), payload=lambda self, to: to)
        def charge(self, to: str) -> int:
            """Charge somebody."""
            self.calls += 1
            return self.calls

        async def __call__(self, to: str) -> str:
            self.calls += 1
            return to

    account = Account()
    assert [account.charge("ada"), account.charge("ada")] == [1, 1]
    assert Account.charge.__doc__ == "Charge somebody."
    for handler in (account, functools.partial(account.__call__)):
        call = idempotent(handler, key=str, store=MemoryKeys())
        assert asyncio.run(call("bob")) == asyncio.run(call("bob")) == "bob"
    assert account.calls == 3


def test_generators_and_functions_that_return_a_coroutine_are_refused() -> None:
    async def later(to: str) -> str:
        raise AssertionError("it is never run")

    def plain(to: str) -> Any:
        return later(to)

    keys = MemoryKeys()
    charge = idempotent(plain, key=str, store=keys)
    with pytest.raises(InputError, match="define the handler with async def"):
        charge("ada")
    assert keys.try_lock("ada")

    def generator(to: str) -> Any:
        yield to

    async def agenerator(to: str) -> Any:
        yield to

    for handler in (generator, agenerator):
        with pytest.raises(InputError, match="is a generator"):
            idempotent(handler, key=str, store=keys)
