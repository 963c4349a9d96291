"""What a handler may do wrong, and what comes of it: its group stops, nothing else does, and nothing is lost."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from reference import BAD, Message, arrive, check_books, cut, keep, pipeline, revisions, steps, story

from hostile import RAISED
from inturn import Arrival, Gapless, Monotone, Retry, Retryable, Timestamp
from inturn.core import limits
from inturn.core.errors import HandlerError, PipelineError
from inturn.core.pipeline.fold import Fold
from inturn.core.pipeline.journal import Counts
from inturn.core.pipeline.order import Order


def history(*values: Any, group: str = "a") -> list[Message]:
    """Revisions 1, 2, … with these contents."""
    return arrive([{"g": group, "r": number, "v": value} for number, value in enumerate(values, start=1)])


def nested(state: dict[str, Any], message: Message) -> tuple[dict[str, Any], list[Any]]:
    """Changes the state deep inside, in place, before it may fail."""
    state.setdefault("log", []).append(message["v"])
    state["count"] = state.get("count", 0) + 1
    if message["v"] == BAD:
        del state["log"][0]
        raise ValueError(BAD)
    return state, []


def replace_state(state: tuple[Any, ...], message: Message) -> tuple[tuple[Any, ...], list[Any]]:
    """Never changes a state, always makes a new one."""
    if message["v"] == BAD:
        raise ValueError(BAD)
    return (*state, message["v"]), []


@pytest.mark.parametrize("ends", [[], [1], [2], [3], [1, 2, 3]])
def test_a_failing_handler_leaves_the_state_unchanged(ends: list[int]) -> None:
    messages = history("x", "y", BAD, "z")
    in_place = steps(pipeline(state=dict, handler=nested), cut(messages, ends))[-1]
    assert in_place.states == {"a": {"log": ["x", "y"], "count": 2}}
    made_new = steps(pipeline(state=tuple, handler=replace_state), cut(messages, ends))[-1]
    assert made_new.states == {"a": ("x", "y")}


@pytest.mark.parametrize("order", [Gapless("r"), Monotone("r"), Arrival(), Timestamp("r")], ids=str)
def test_a_failing_handler_parks_only_its_group(order: Order) -> None:
    messages = [
        {"g": group, "r": number, "i": str(number), "v": BAD if (group, number) == ("b", 2) else f"{group}{number}"}
        for number in range(1, 5)
        for group in "abc"
    ]
    result = pipeline(order).replay(arrive(messages))
    check_books([result])
    assert result.states == {group: [f"{group}{number}" for number in range(1, 5)] for group in "ac"} | {"b": ["b1"]}
    assert [(held.group, held.status, held.message["r"]) for held in result.held] == [
        ("b", "failed", number) for number in (2, 3, 4)
    ]
    assert list(result.errors) == ["b"]


def test_messages_behind_a_failed_one_are_held_in_revision_order() -> None:
    messages = arrive([*history("x", BAD), *revisions(5, 3, 7, 4)])
    for ends in ([], [2], [3, 4], [1, 2, 3, 4, 5]):
        last = steps(pipeline(), cut(messages, ends))[-1]
        assert [held.message["r"] for held in last.held] == [2, 3, 4, 5, 7]
        assert {held.status for held in last.held} == {"failed"}
        assert last.states == {"a": ["x"]}


def test_a_held_message_that_fails_on_release_parks_the_group() -> None:
    messages = [*history("x", "y", BAD, "z")]
    for order in ([3, 2, 1, 0], [2, 3, 0, 1], [3, 0, 1, 2]):
        result = pipeline().replay(arrive([messages[index] for index in order]))
        assert result.states == {"a": ["x", "y"]}
        assert [held.message["r"] for held in result.held] == [3, 4]
        assert (result.counts.applied, result.counts.held) == (2, 2)


@pytest.mark.parametrize("ends", [[], [4], [2, 3]])
def test_a_failed_group_detects_duplicates_and_conflicts(ends: list[int]) -> None:
    messages = history("x", BAD, "z")
    other = [{**message, "v": "other"} for message in messages]
    last = steps(pipeline(), cut(arrive([*messages, *messages, *other]), ends))
    assert sum(result.counts.duplicate for result in last) == 3
    assert [(rejection.reason, rejection.message["r"]) for rejection in last[-1].rejected] == [
        ("conflict", number) for number in (1, 2, 3)
    ]
    assert [held.message["v"] for held in last[-1].held] == [BAD, "z"]


def test_the_stored_error_contains_the_traceback_and_its_causes() -> None:
    def divide(numbers: list[int]) -> float:
        return 1 / len(numbers)

    def handler(state: Any, message: Message) -> Any:
        try:
            divide([])
        except ZeroDivisionError as error:
            msg = "no numbers"
            raise RuntimeError(msg) from error

    error = pipeline(handler=handler).replay(history("x")).errors["a"]
    assert error.startswith("Traceback (most recent call last):")
    assert error.index("ZeroDivisionError: division by zero") < error.index("RuntimeError: no numbers")
    assert "in divide" in error
    assert "return 1 / len(numbers)" in error


def test_a_long_error_keeps_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ERROR_LENGTH", 10)
    assert pipeline().replay(history(BAD)).errors == {"a": "d message\n"}


# -- Retryable -----------------------------------------------------------------------------------------------


class Flaky:
    """A handler that raises what it was given, one after the other, and then works; it changes the state each time."""

    def __init__(self, *errors: Exception) -> None:
        self.errors: Iterator[Exception] = iter(errors)
        self.calls = 0

    def __call__(self, state: list[Any], message: Message) -> tuple[list[Any], list[Any]]:
        self.calls += message["v"] == "flaky"
        state.append(message["v"])
        error = next(self.errors, None) if message["v"] == "flaky" else None
        if error is not None:
            raise error
        return state, [message["v"]]


@pytest.mark.parametrize(
    ("times", "failures", "applied"), [(0, 1, False), (1, 1, True), (3, 3, True), (3, 4, False), (2, 9, False)]
)
def test_a_retryable_error_is_retried_as_often_as_the_policy_allows(times: int, failures: int, applied: bool) -> None:
    flaky = Flaky(*[Retryable("busy")] * failures)
    result = pipeline(handler=flaky, retry=Retry(times)).replay(history("x", "flaky", "y"))
    check_books([result])
    assert flaky.calls == min(times, failures) + 1
    assert result.states == {"a": ["x", "flaky", "y"] if applied else ["x"]}
    assert [output.output for output in result.outputs] == result.states["a"]
    assert (result.errors == {}) == applied


def test_an_error_that_is_not_retryable_is_not_retried() -> None:
    flaky = Flaky(Retryable("busy"), ValueError("broken"), Retryable("busy"))
    result = pipeline(handler=flaky, retry=Retry(5)).replay(history("flaky"))
    assert flaky.calls == 2
    assert result.errors["a"].endswith("ValueError: broken\n")
    final = Flaky(ValueError("broken"))
    assert "broken" in pipeline(handler=final, retry=Retry(5)).replay(history("flaky")).errors["a"]
    assert final.calls == 1


def test_a_subclass_of_retryable_is_retried() -> None:
    class Busy(Retryable):
        pass

    assert pipeline(handler=Flaky(Busy()), retry=Retry(1)).replay(history("flaky")).states == {"a": ["flaky"]}


def test_retry_pauses_double_up_to_one_minute() -> None:
    pauses: list[float] = []
    pipe = pipeline(handler=Flaky(*[Retryable()] * 4), retry=Retry(9, backoff="20 seconds"))
    fold = Fold(pipe, list, pauses.append)
    assert fold.run(history("x", "flaky")) == ([(0, ["x"]), (1, ["flaky"])], 2)
    assert pauses == [20, 40, 60, 60]
    assert Retry(4, backoff="100 milliseconds").pauses_s() == [0.1, 0.2, 0.4, 0.8]
    assert Retry().pauses_s() == []


def test_a_failed_group_is_not_retried_without_a_decision() -> None:
    flaky = Flaky(ValueError("once"))
    results = steps(pipeline(handler=flaky), [history("flaky"), [], revisions(2), history("flaky")])
    assert flaky.calls == 1
    assert [held.message["r"] for held in results[-1].held] == [1, 2]


# -- the fold, many messages at a time -----------------------------------------------------------------------


def flaky_at(*positions: int) -> Callable[[list[int], int], tuple[list[int], list[int]]]:
    """A handler that changes the state in place, and at these messages fails the first time, as if it were busy."""
    pending = set(positions)

    def handler(state: list[int], message: int) -> tuple[list[int], list[int]]:
        state.append(message)
        if message in pending:
            pending.discard(message)
            raise Retryable
        return state, [message * 10]

    return handler


SNAPSHOTS = [1, 2, 3, 4, 1000]


@pytest.mark.parametrize("every", SNAPSHOTS)
def test_a_failed_attempt_restores_the_state_before_the_failing_message(
    every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SNAPSHOT_EVERY", every)
    for first in range(6):
        for second in range(6):
            fold = Fold(pipeline(handler=flaky_at(first, second), state=list, retry=Retry(1)), list)
            assert fold.run(range(6)) == ([(number, [number * 10]) for number in range(6)], 6)
            assert fold.state == list(range(6))


@pytest.mark.parametrize("every", SNAPSHOTS)
def test_a_failed_run_has_the_state_of_the_applied_messages(every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SNAPSHOT_EVERY", every)
    for bad in range(5):
        fold = Fold(pipeline(state=list), list)
        messages = [{"v": BAD if number == bad else number} for number in range(5)]
        assert fold.run(messages) == ([(number, [number]) for number in range(bad)], bad)
        assert fold.state == list(range(bad))
        assert "a bad message" in fold.error


@pytest.mark.parametrize("every", [1, 2, 3, 1000])
def test_a_retried_message_restores_the_state_at_every_snapshot_interval(
    every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SNAPSHOT_EVERY", every)
    busy = flaky_at(2, 3, 7)
    pipe = pipeline(handler=lambda state, message: busy(state, message["v"]), retry=Retry(1))
    assert pipe.replay(history(*range(9))).states == {"a": list(range(9))}


def test_a_retryable_error_while_restoring_the_state_is_retried() -> None:
    calls: list[str] = []

    def handler(state: list[str], message: Message) -> Any:
        calls.append(message["v"])
        if calls in (["x", "y"], ["x", "y", "x"]):  # busy for y, and still when the state before it is made again
            raise Retryable
        return [*state, message["v"]], []

    assert pipeline(handler=handler, retry=Retry(3)).replay(history("x", "y")).states == {"a": ["x", "y"]}


# -- nonsense ------------------------------------------------------------------------------------------------


def ready(state: Any, message: Message) -> Any:
    return state, (item for item in [message])


NONSENSE: dict[str, Callable[..., Any]] = {
    "nothing": lambda state, message: None,
    "the state only": lambda state, message: state,
    "a state of two fields only": lambda state, message: {"one": 1, "other": 2},
    "outputs are a dict": lambda state, message: (state, {"a": 1}),
    "outputs are an empty dict": lambda state, message: (state, {}),
    "outputs are text": lambda state, message: (state, "text"),
    "outputs are empty text": lambda state, message: (state, ""),
    "outputs are nothing": lambda state, message: (state, None),
    "outputs are a generator": ready,
    "outputs are a number": lambda state, message: (state, 0),
    "outputs are a set": lambda state, message: (state, {1}),
    "three parts": lambda state, message: (state, [], []),
    "text": lambda state, message: "text",
    "a number": lambda state, message: 5,
}
nonsense = pytest.mark.parametrize("handler", NONSENSE.values(), ids=NONSENSE)


@nonsense
@pytest.mark.parametrize("order", [Gapless("r"), Arrival()], ids=str)
def test_a_handler_that_does_not_return_state_and_outputs_stops_the_run(
    handler: Callable[..., Any], order: Order
) -> None:
    """That is a mistake in the code, not in a message: no group is parked for it, nothing is committed."""
    pipe = pipeline(order, handler=handler, state=dict)
    with pytest.raises(HandlerError, match=r"the handler of pipeline 'p' .*\(state, \[output, …\]\)"):
        pipe.replay([{**message, "i": "x"} for message in history("x")])


@dataclass
class Owner:
    name: str = "secret"
    country: str = "GB"


class Balance(msgspec.Struct):
    amount: int = 0


SAID: dict[str, tuple[Any, str]] = {
    "a dict of four": (dict.fromkeys("abcd", "secret"), "expected (state, outputs), got dict with 4 keys"),
    "a dict of two": ({"one": "secret", "other": 1}, "expected (state, outputs), got dict with 2 keys"),
    "a dataclass": (Owner(), "expected (state, outputs), got Owner"),
    "a struct": (Balance(), "expected (state, outputs), got Balance"),
    "nothing": (None, "expected (state, outputs), got None"),
    "no parts": ((), "expected (state, outputs), got tuple of 0 items"),
    "one part": (("secret",), "expected (state, outputs), got tuple of 1 item"),
    "three parts": (("secret", [], []), "expected (state, outputs), got tuple of 3 items"),
    "a text": ("secret", "expected (state, outputs), got str of 6 characters"),
    "a short text": ("ab", "expected (state, outputs), got str of 2 characters"),
    "outputs are a dict": (({}, {"secret": 1}), "the outputs are dict with 1 key; expected a list or a tuple"),
}


@pytest.mark.parametrize(("returned", "says"), SAID.values(), ids=SAID)
def test_handler_error_describes_the_returned_type_but_not_its_content(returned: Any, says: str) -> None:
    with pytest.raises(HandlerError) as raised:
        pipeline(handler=lambda state, message: returned, state=lambda: None).replay(history("x"))
    assert str(raised.value).endswith(says)
    assert "secret" not in str(raised.value)


def test_handler_error_for_a_returned_state_alone_names_the_correct_return() -> None:
    with pytest.raises(HandlerError, match=r"got dict with 1 key; write `return state, \[\]` if there are no outputs"):
        pipeline(handler=lambda state, message: {"n": 1}, state=dict).replay(history("x"))


def test_handler_error_for_a_builtin_function_quotes_the_error_of_the_call() -> None:
    with pytest.raises(HandlerError, match=r"\(state, \[output, …\]\): .+"):
        pipeline(handler=dict.pop, state=list).replay(history("x"))


# -- what is known when the pipeline is defined --------------------------------------------------------------


async def awaits(state: Any, message: Message) -> Any:
    return state, []


async def awaits_and_yields(state: Any, message: Message) -> Any:
    yield message


def yields(state: Any, message: Message) -> Any:
    yield message


class Awaiting:
    async def __call__(self, state: Any, message: Message) -> Any:
        return state, []

    async def method(self, state: Any, message: Message) -> Any:
        return state, []

    def plain(self, state: Any, message: Message) -> Any:
        return state, []


IS_ASYNC = r"is async; handlers are pure and synchronous: move effects that await to deliver="
NOT_HANDLERS: dict[str, tuple[Any, str]] = {
    "a coroutine function": (awaits, f"the handler awaits {IS_ASYNC}"),
    "an object with async __call__": (Awaiting(), f"the handler Awaiting {IS_ASYNC}"),
    "an async method": (Awaiting().method, f"the handler Awaiting.method {IS_ASYNC}"),
    "a partial of a coroutine function": (functools.partial(awaits), f"the handler awaits {IS_ASYNC}"),
    "a partial of a partial of an object": (
        functools.partial(functools.partial(Awaiting())),
        f"the handler Awaiting {IS_ASYNC}",
    ),
    "an async generator": (awaits_and_yields, "the handler awaits_and_yields is an async generator; handlers are pure"),
    "a generator": (
        yields,
        "the handler yields is a generator; handlers must not yield: collect the outputs in a list",
    ),
    "one argument": (
        lambda state: (state, []),
        r"<lambda>\(state\) cannot take two arguments; expected a plain function",
    ),
    "three arguments": (lambda state, message, more: None, r"\(state, message, more\) cannot take two arguments"),
    "a method without its object": (Awaiting.plain, r"Awaiting.plain\(self, .*\) -> Any cannot take two arguments"),
    "a partial that leaves one": (functools.partial(replace_state, ()), "cannot take two arguments"),
}


@pytest.mark.parametrize(("handler", "says"), NOT_HANDLERS.values(), ids=NOT_HANDLERS)
def test_an_unusable_handler_is_refused_when_the_pipeline_is_defined(handler: Any, says: str) -> None:
    with pytest.raises(PipelineError, match=says):
        pipeline(handler=handler)


def test_a_wrapped_handler_is_checked_by_its_own_signature() -> None:
    def with_log(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*arguments: Any) -> Any:
            return function([], *arguments)

        return wrapper

    @with_log
    def handler(log: list[Any], state: Any, message: Message) -> Any:
        return state, [message["v"]]

    assert [output.output for output in pipeline(handler=handler).replay(history("x")).outputs] == ["x"]


@dataclass
class Account:
    balance: int


NOT_STATES: dict[str, tuple[Any, str]] = {
    "an instance": (
        Owner(),
        r"Pipeline\(state=.*\); expected a type or function .*, not an instance: write state=Owner",
    ),
    "a type that needs arguments": (
        Account,
        r"Pipeline\(state=Account\) requires arguments, \(balance: .*int.*\).*defaults",
    ),
    "a coroutine function": (awaits, r"Pipeline\(state=awaits\) is async or a generator"),
}


@pytest.mark.parametrize(("state", "says"), NOT_STATES.values(), ids=NOT_STATES)
def test_an_invalid_first_state_is_refused_when_the_pipeline_is_defined(state: Any, says: str) -> None:
    with pytest.raises(PipelineError, match=says):
        pipeline(state=state)


def test_outputs_may_be_a_list_or_a_tuple() -> None:
    for outputs in ([], (), [1, 2], (1, 2)):
        result = pipeline(handler=lambda state, message, emitted=outputs: (state, emitted)).replay(history("x"))
        assert [output.output for output in result.outputs] == list(outputs)


@pytest.mark.parametrize("returned", [None, [], "text", 5, {"a": 1}.items()], ids=repr)
def test_a_state_of_another_type_stops_the_run(returned: Any) -> None:
    with pytest.raises(HandlerError, match=r"returned the state .*; expected dict, the type of the first state"):
        pipeline(state=dict, handler=lambda state, message: (returned, [])).replay(history("x"))


def test_a_state_factory_without_a_type_allows_any_state_type() -> None:
    pipe = pipeline(state=lambda: None, handler=lambda state, message: (message["v"], []))
    assert pipe.replay(history(1, "x")).states == {"a": "x"}


def test_a_state_of_a_subclass_is_refused() -> None:
    @dataclass
    class Account:
        balance: int = 0

    class Gold(Account):
        pass

    pipe = pipeline(state=Account, handler=lambda state, message: (Gold(state.balance + message["v"]), []))
    result = pipe.replay(history(1, 2))
    assert result.states == {"a": Account(0)}
    assert "ValueRefused: state is " in result.errors["a"]
    assert "of type Gold: expected Account" in result.errors["a"]


def test_a_type_or_value_error_inside_the_handler_parks_only_its_group() -> None:
    """A TypeError or ValueError of the handler's own, also through a partial or a method, parks its group only."""

    class Handlers:
        def method(self, state: Any, message: Message) -> Any:
            return state, [message["v"] + 1]

    def wrong(state: Any, message: Message) -> Any:
        one, two = message["v"]
        return state, [one, two]

    for handler in (wrong, Handlers().method, functools.partial(Handlers.method, Handlers())):
        result = pipeline(handler=handler).replay(history("x"))
        assert list(result.errors) == ["a"]
        assert [held.status for held in result.held] == ["failed"]


@pytest.mark.parametrize("raised", [*RAISED, "an exit"])
def test_any_exception_of_a_handler_parks_only_its_group(raised: str) -> None:
    def handler(state: list[Any], message: Message) -> Any:
        if message["v"] == BAD:
            raise SystemExit(3) if raised == "an exit" else RAISED[raised]()
        return keep(state, message)

    messages = [message for group in "ab" for message in history("x", BAD if group == "b" else "y", "z", group=group)]
    result = pipeline(handler=handler).replay(arrive(messages))
    check_books([result])
    assert result.states == {"a": ["x", "y", "z"], "b": ["x"]}
    assert [(held.group, held.status, held.message["v"]) for held in result.held] == [
        ("b", "failed", BAD),
        ("b", "failed", "z"),
    ]
    assert "test_handler.py" in result.errors["b"], "with the traceback"


def sometimes_wrong(state: list[Any], message: Message) -> Any:
    """A handler with a branch that returns nothing."""
    return None if message["v"] == BAD else keep(state, message)


def test_a_wrong_result_after_a_correct_one_parks_only_its_group() -> None:
    pipe = pipeline(handler=sometimes_wrong)
    result = pipe.replay(arrive([*history(BAD, "y", group="b"), *history("x", group="a")]))
    assert result.states == {"a": ["x"], "b": []}
    assert result.errors["b"].strip().endswith("(state, [output, …]): expected (state, outputs), got None")
    assert "Traceback" not in result.errors["b"], "no line of the user's is in it"
    assert [held.status for held in result.held] == ["failed", "failed"]


def test_a_handler_correct_in_an_earlier_step_is_not_stopped_by_a_wrong_result() -> None:
    pipe = pipeline(handler=sometimes_wrong)
    before = pipe.replay(history("x"))
    result = pipe.replay(history(BAD, group="b"), after=before)
    assert [held.group for held in result.held] == ["b"]
    another = dataclasses.replace(pipe, handler=lambda state, message: None)
    with pytest.raises(HandlerError, match="got None"):
        another.replay(history("x", group="c"), after=before)


def test_keyboard_interrupt_in_a_handler_stops_the_run() -> None:
    """Somebody presses Ctrl-C: that is not the message's fault."""

    def interrupted(state: Any, message: Message) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pipeline(handler=interrupted).replay(history("x"))


@pytest.mark.parametrize("name", ["nothing", "three parts", "the state only"])
def test_a_wrong_result_in_a_retry_stops_the_run(name: str) -> None:
    calls: list[None] = []

    def handler(state: Any, message: Message) -> Any:
        calls.append(None)
        if len(calls) == 1:
            raise Retryable
        return NONSENSE[name](state, message)

    with pytest.raises(HandlerError):
        pipeline(handler=handler, state=dict, retry=Retry(1)).replay(history("x"))


def test_an_output_keeps_its_value_when_the_state_changes_later() -> None:
    def handler(state: dict[str, int], message: Message) -> Any:
        state["n"] = state.get("n", 0) + 1
        return state, [state]

    for ends in ([], [1, 2]):
        last = steps(pipeline(state=dict, handler=handler), cut(history(1, 2, 3), ends))[-1]
        assert [output.output["n"] for output in last.outputs] == [1, 2, 3]


def test_a_handler_that_changes_its_message_is_reported_on_restoring_the_state() -> None:
    def eat(state: dict[str, int], message: Message) -> Any:
        return {"sum": state.get("sum", 0) + message.pop("v")}, []

    with pytest.raises(HandlerError, match="it is not pure, or it changed the message"):
        pipeline(state=dict, handler=eat).replay(arrive(history(1, "x")))


def test_changing_the_state_in_place_equals_returning_a_new_one() -> None:
    def anew(state: list[Any], message: Message) -> Any:
        copy = [*state]
        return keep(copy, message)

    messages = arrive([*history("x", "y", BAD, "z"), *history("x", BAD), *revisions(3, 5, 9)])
    assert story([pipeline(handler=anew).replay(messages)]) == story([pipeline().replay(messages)])


def test_counts_add_sums_each_field() -> None:
    names = [field.name for field in dataclasses.fields(Counts) if field.name != "rejected"]
    sums = Counts(**{name: 10**index for index, name in enumerate(names)}, rejected={"late": 1, "invalid": 2})
    sums.add(Counts(**{name: 3 * 10**index for index, name in enumerate(names)}, rejected={"late": 5, "conflict": 7}))
    assert [getattr(sums, name) for name in names] == [4 * 10**index for index in range(len(names))]
    assert sums.rejected == {"late": 6, "invalid": 2, "conflict": 7}
