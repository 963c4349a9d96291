"""The recorder of a client's calls, which survives the client."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self, TypeVar

import msgspec

from inturn.testing.history.events import NEVER, OK, UNKNOWN, Event, ReceiveCall, SendCall, SettleCall

E = TypeVar("E", SendCall, ReceiveCall, SettleCall)


class Recorder:
    """A file with the calls of one client, for ``with``; not for several threads.

    Each call is written when it begins and when it is answered, without a buffer: a killed client leaves its unanswered
    call in the file. A call whose block raises is recorded with the name of the error, and may have been carried out.

        with Recorder("histories/client-1.jsonl", client="client-1") as log:
            with log.send("tx-77", group="acct-1", body="5") as call:
                call.number = payments.send("5", group="acct-1", dedup_id="tx-77").sequence_number
            with log.receive() as received:
                messages = payments.receive(10)
                received.deliveries = [ReceivedMessage.of(message) for message in messages]

    Args:
        path: the file; it is continued if it exists.
        client: the client's name, unique among all clients.
        clock: returns the time in nanoseconds; the same clock for all clients.
    """

    def __init__(self, path: str | Path, *, client: str, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._client, self._clock = client, clock
        self._file = Path(path).open("ab", buffering=0)  # noqa: SIM115 - closed by __exit__
        self._encode = msgspec.json.Encoder().encode

    def __enter__(self) -> Self:
        """Return the recorder; the file is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self._file.close()

    @contextmanager
    def send(self, dedup_id: str, *, group: str, body: str) -> Iterator[SendCall]:
        """Record a send; set ``number`` of the event to the answered sequence number."""
        call = SendCall(client=self._client, asked=self._clock(), dedup_id=dedup_id, group=group, body=body)
        with self._call(call):
            yield call

    @contextmanager
    def receive(self) -> Iterator[ReceiveCall]:
        """Record a receive; set ``deliveries`` of the event to the received messages."""
        call = ReceiveCall(client=self._client, asked=self._clock())
        with self._call(call):
            yield call

    @contextmanager
    def settle(self, number: int, handle: str, *, deletes: bool = True) -> Iterator[SettleCall]:
        """Record an acknowledgement or, with ``deletes=False``, a nack."""
        call = SettleCall(client=self._client, asked=self._clock(), number=number, handle=handle, deletes=deletes)
        with self._call(call):
            yield call

    @contextmanager
    def _call(self, call: E) -> Iterator[None]:
        call.outcome, call.answered = UNKNOWN, NEVER
        self.write(call)
        outcome = OK
        try:
            yield
        except BaseException as error:
            outcome = type(error).__name__
            raise
        finally:
            call.answered = self._clock()
            call.outcome = outcome if call.outcome == UNKNOWN else call.outcome  # unless the block says its own
            self.write(call)

    def write(self, event: Event) -> None:
        """Append an event, as for calls that the caller times."""
        self._file.write(self._encode(event) + b"\n")
