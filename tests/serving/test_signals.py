"""A stop is asked for once, however many signals say so; a person can still end the process at once."""

import signal
import threading
from collections.abc import Iterator

import pytest

from inturn.core import limits
from inturn.serving.signals import StopSignals, stop_on_signals
from waiting import DEADLINE_S


@pytest.fixture
def usual() -> Iterator[list[int]]:
    """The signals that had their usual effect, which here is to be listed."""
    seen: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        signal.signal(number, lambda received, _frame: seen.append(received))
    yield seen
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_repeated_signal_stops_the_process_once(usual: list[int], number: signal.Signals) -> None:
    stops: list[int] = []
    stopped = threading.Event()

    def stop() -> None:
        stops.append(1)
        stopped.set()

    with stop_on_signals(stop):
        for _ in range(3):  # as timeout(1) does: to the process, and to its group
            signal.raise_signal(number)
        assert stopped.wait(DEADLINE_S)
    assert (stops, usual) == ([1], [])
    signal.raise_signal(number)
    assert usual == [number], "the handler from before is there again"


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_a_later_ctrl_c_calls_the_previous_sigint_handler(
    usual: list[int], monkeypatch: pytest.MonkeyPatch, first: signal.Signals
) -> None:
    monkeypatch.setattr(limits, "SIGNAL_REPEAT_S", 0.0)
    with stop_on_signals(lambda: None):
        signal.raise_signal(first)
        signal.raise_signal(signal.SIGTERM)
        assert usual == []
        signal.raise_signal(signal.SIGINT)
        assert usual == [signal.SIGINT]


def test_a_later_ctrl_c_calls_the_force_function(usual: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SIGNAL_REPEAT_S", 0.0)
    usual_at: list[list[int]] = []
    with stop_on_signals(lambda: None, force=lambda: usual_at.append([*usual])):
        signal.raise_signal(signal.SIGTERM)
        assert usual_at == []
        signal.raise_signal(signal.SIGINT)
    assert usual_at == [[]]


def test_a_sigint_within_a_second_of_the_first_signal_counts_as_a_repeat() -> None:
    now_s = [100.0]
    known = StopSignals(lambda: now_s[0])
    assert known.request_of(signal.SIGINT) == "stop"
    assert known.request_of(signal.SIGINT) == "repeat"
    now_s[0] += limits.SIGNAL_REPEAT_S
    assert known.request_of(signal.SIGTERM) == "repeat"
    assert known.request_of(signal.SIGINT) == "force"
