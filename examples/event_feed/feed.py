"""A source of your own: the events of an HTTP service become messages, each once and in order.

The service numbers the events of each partition: ``GET /partitions`` lists the partitions and their last numbers,
``GET /events?partition=red&after=17&limit=100`` returns the events after a number, or 410 if some of these are gone.
Many services have such an interface, under other names.

``EventFeed`` is all the code you write. The host handles positions, leases, transactions, retries and the mapping.
``inturn.testing.source`` checks that the source obeys the rules; the tests run it.

Run it with ``python examples/event_feed/feed.py``. It prints:

    3 events became messages, 0 were rejected
    blue: [('b-1', 1)]
    red: [('a-1', 1), ('a-1', 2)]
    later: 1 more
"""

import json
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import urlopen

import inturn
from inturn.core.errors import PositionGone
from inturn.ingest import Ingest, MessageMapping, Source, SourceRecord


class EventFeed(Source):
    """The events of a service; a position is the number of the last event."""

    def __init__(self, url: str, pause_s: float = 0.2) -> None:
        self._url, self._pause_s = url, pause_s
        self._ends: dict[str, int] = {}
        self._at: dict[str, int] = {}  # the open partitions

    def partitions(self) -> Sequence[str]:
        """Return the partitions that the service has now."""
        self._ends = self._get("partitions")["ends"]
        return [*self._ends]

    def incarnation(self, partition: str) -> str:  # noqa: ARG002 - all have one history
        """Return the id of the service's history: another one means that its numbers began anew."""
        return str(self._get("partitions")["history"])

    def open(self, partition: str, position: Any) -> None:
        """Continue after a position; raise PositionGone if the service no longer has the next event."""
        after = position or 0
        self._events(partition, after, 1)
        self._at[partition] = after

    def poll(self, limit: int, timeout_s: float) -> list[SourceRecord]:
        """Return the next events; repeat the request until there are some or the time has passed."""
        until = time.monotonic() + timeout_s
        while True:
            records: list[SourceRecord] = []
            for partition, after in self._at.items():
                for event in self._events(partition, after, limit - len(records)):
                    body = json.dumps(event["body"]).encode()
                    records.append(SourceRecord(partition, event["number"], body, time_ms=event["time_ms"]))
                    self._at[partition] = event["number"]
            if records or time.monotonic() > until:
                return records
            time.sleep(self._pause_s)

    def close(self, partition: str) -> None:
        """Forget the partition; the next open has the position."""
        del self._at[partition]

    def lag(self, partition: str) -> int:
        """Return the number of events after the last one that was read."""
        return max(0, self._ends[partition] - self._at[partition])

    def _events(self, partition: str, after: int, limit: int) -> list[Any]:
        if limit == 0:
            return []
        try:
            return list(self._get("events", partition=partition, after=after, limit=limit))
        except HTTPError as error:
            if error.code == 410:
                raise PositionGone(f"the events after {after} are gone; set a position with seek") from error
            raise  # after all other errors the host tries again

    def _get(self, path: str, **query: str | int) -> Any:
        with urlopen(f"{self._url}/{path}?{urlencode(query)}", timeout=10) as answer:  # noqa: S310 - the service's
            return json.load(answer)


class Service(ThreadingHTTPServer):
    """A stand-in for the service.

    Attributes:
        events: those of each partition.
        first: the number of the first event that is still stored.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.events: dict[str, list[dict[str, Any]]] = {}
        self.history, self.first = "1", 1
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def add(self, partition: str, **body: Any) -> None:
        """Add an event to a partition."""
        events = self.events.setdefault(partition, [])
        events.append({"number": len(events) + 1, "time_ms": 1_772_366_400_000, "body": body})


class Answer(BaseHTTPRequestHandler):
    """The answer to a request."""

    server: Service

    def do_GET(self) -> None:
        """Answer with JSON."""
        url, service, status = urlsplit(self.path), self.server, 200
        answer: Any
        if url.path == "/partitions":
            ends = {partition: len(events) for partition, events in service.events.items()}
            answer = {"history": service.history, "ends": ends}
        else:
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            after = int(query["after"])
            status = 410 if after + 1 < service.first else 200
            answer = service.events[query["partition"]][after : after + int(query["limit"])]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: object) -> None:
        """Be quiet."""


def main() -> None:
    """Ingest the events of two partitions."""
    with Service() as service, inturn.open(":memory:") as db:
        service.add("red", account="a-1", n=1)
        service.add("red", account="a-1", n=2)
        service.add("blue", account="b-1", n=1)
        feed = EventFeed(f"http://127.0.0.1:{service.server_port}")
        mapping = MessageMapping(group="body.account", revision="body.n")
        ingest = Ingest(feed, db.queue("payments"), mapping, name="feed")
        counts = ingest.run(until="caught up")
        print(f"{counts.received} events became messages, {counts.rejected} were rejected")
        messages = [(message.group, message.revision) for message in db.queue("payments").peek()]
        print(f"blue: {[message for message in messages if message[0] == 'b-1']}")
        print(f"red: {[message for message in messages if message[0] == 'a-1']}")
        service.add("red", account="a-1", n=3)
        print(f"later: {ingest.run(until='caught up').received} more")
        service.shutdown()


if __name__ == "__main__":
    main()
