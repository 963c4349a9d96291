"""A database that was put back from an older copy refuses what was remembered of the other history."""

import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inturn
from copied_databases import Files, Tables
from inturn.core import limits
from inturn.core.errors import StoreMismatch
from inturn.core.queue.incarnation import IncarnationStart, QueuePosition, incarnation_of, trim
from inturn.database import Database


@pytest.fixture(params=["sqlite", "postgres"])
def copies(request: pytest.FixtureRequest, tmp_path: Path) -> Files | Tables:
    if request.param == "sqlite":
        return Files(tmp_path)
    schemas = request.getfixturevalue("postgres_schemas")
    return Tables(schemas.new(), schemas._connection)


@pytest.fixture
def opened(copies: Files | Tables) -> Iterator[Callable[[], Database]]:
    with ExitStack() as stack:
        yield lambda: stack.enter_context(inturn.open(copies.place))


def send(db: Database, count: int, queue: str = "q") -> int:
    return [db.queue(queue).send(f"m{number}") for number in range(count)][-1].sequence_number


def test_a_position_newer_than_the_restored_copy_is_refused(
    copies: Files | Tables, opened: Callable[[], Database]
) -> None:
    with opened() as db:
        send(db, 3)
        reader = db.queue("q").reader("r")
        early = reader.place(reader.read(2)[-1].sequence_number)
    copies.copy("old")
    with opened() as db:
        late = db.queue("q").reader("r").place(send(db, 3))
    copies.put_back("old")
    with opened() as db:
        reader = db.queue("q").reader("r")
        for _ in range(3):
            for act in (reader.commit, reader.seek, lambda place: reader.read(after=place)):
                with pytest.raises(StoreMismatch, match="restored from an older copy"):
                    act(late)
            assert [message.body for message in reader.read(1, after=early)] == ["m2"]
            reader.commit(early)
            send(db, 4)
        last = reader.place(send(db, 1))
        reader.commit(last)
        assert reader.place() == last


def test_reopening_keeps_positions_valid(copies: Files | Tables, opened: Callable[[], Database]) -> None:
    places = []
    for count in (1, 2, 1):
        with opened() as db, opened() as another:
            places += [database.queue("q").reader("r").place(send(database, count)) for database in (db, another, db)]
        with opened() as db:
            db.queue("q").receive()  # who sends nothing is none
    with opened() as db:
        reader = db.queue("q").reader("r")
        for place in places:
            reader.seek(place)
            assert reader.place() == place
        assert len({place.incarnation for place in places}) == 6


def test_a_rolled_back_transaction_starts_no_incarnation(
    copies: Files | Tables, opened: Callable[[], Database]
) -> None:
    with opened() as db:
        reader = db.queue("q").reader("r")
        with suppress(ZeroDivisionError), db.transaction() as tx:
            db.queue("q", tx=tx).send(1 // 0 if db.queue("q", tx=tx).send("x", tx=tx) else "", tx=tx)
        first = reader.place(send(db, 2))
        assert first.incarnation
        second = reader.place(send(db, 2))
        assert second.incarnation == first.incarnation


def test_moved_messages_start_an_incarnation(copies: Files | Tables, opened: Callable[[], Database]) -> None:
    with opened() as db:
        db.queue("dead")
        send(db, 1)
    copies.copy("old")
    for name in ("a", "b"):
        copies.put_back("old")
        with opened() as db:
            (message,) = db.queue("q").receive()
            message.reject(name, to="dead")
            (moved,) = db.queue("dead").peek()
            place = db.queue("dead").reader("r").place(moved.sequence_number)
            if name == "a":
                first = place
    assert first.sequence_number == place.sequence_number
    with opened() as db, pytest.raises(StoreMismatch):
        db.queue("dead").reader("r").commit(first)


def test_deleting_a_queue_removes_its_incarnations(copies: Files | Tables, opened: Callable[[], Database]) -> None:
    with opened() as db:
        send(db, 1)
        db.queue("q").delete()
        with db.transaction() as tx:
            assert tx.execute("select count(*) from inturn_incarnation").fetchone() == (0,)


def test_old_incarnations_are_deleted_unless_a_reader_needs_them(
    copies: Files | Tables, opened: Callable[[], Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "INCARNATIONS", 3)
    numbers = []
    history: list[IncarnationStart] = []
    for index in range(8):
        with opened() as db:
            numbers.append(send(db, 2))
            if index == 2:
                db.queue("q").reader("r").commit(numbers[1])
            with db.transaction() as tx:
                rows = tx.execute("select after, id from inturn_incarnation order by 1").fetchall()
            starts = [IncarnationStart(*row) for row in rows]
            history = [*history, starts[-1]]
            assert starts == trim(history, numbers[1] if index > 2 else 2**62, 3)
    assert len(starts) == 7
    with opened() as db:
        reader = db.queue("q").reader("r")
        reader.seek(reader.place(numbers[1]))
        reader.commit(numbers[-1])
        send(db, 1)
        with db.transaction() as tx:
            assert tx.execute("select count(*) from inturn_incarnation").fetchone() == (3,)


def test_a_copy_restored_into_an_open_file_is_noticed(tmp_path: Path) -> None:
    """As SQLite's own backup does it: in a transaction of another process, while this one goes on."""
    path = tmp_path / "shop.db"
    with inturn.open(path) as db:
        reader = db.queue("q").reader("r")
        send(db, 2)
        with sqlite3.connect(path) as source, sqlite3.connect(tmp_path / "old.db") as target:
            source.backup(target)
        late = reader.place(send(db, 2))
        with sqlite3.connect(tmp_path / "old.db") as source, sqlite3.connect(path) as target:
            source.backup(target)
        send(db, 5)
        with pytest.raises(StoreMismatch):
            reader.commit(late)
    source.close()
    target.close()


def test_sends_through_an_adopted_connection_start_an_incarnation(postgres_url: str, postgres_schemas: Any) -> None:
    tables = Tables(postgres_url, postgres_schemas._connection)
    places = []
    with inturn.open(postgres_url) as db:
        queue = db.queue("q")
        tables.copy("old")
        for _ in range(2):
            with psycopg.connect(postgres_url) as connection:
                for _ in range(3):
                    number = queue.send("x", tx=connection).sequence_number
                places.append(queue.reader("r").place(number, tx=connection))
            tables.put_back("old")
            db.store.catalog.forget()  # type: ignore[attr-defined]
    assert places[0].sequence_number == places[1].sequence_number
    assert places[0].incarnation != places[1].incarnation


STEPS = st.lists(
    st.tuples(st.sampled_from(["open", "send", "copy", "put back", "remember"]), st.integers(0, 2), st.integers(1, 3)),
    max_size=25,
)


class Model:
    """One file, what is in it, and what somebody remembers of it."""

    def __init__(self, folder: str) -> None:
        self.files = Files(Path(folder))
        self.db = inturn.open(self.files.place, durable=False)
        self.first = self.db.queue("q").send("first").sequence_number
        self.bodies = ["first"]
        self.saved: list[list[str]] = []
        self.places: list[tuple[QueuePosition, list[str]]] = []

    def again(self, act: Callable[[str], object] = str, name: str = "") -> None:
        self.db.close()
        act(name)
        self.db = inturn.open(self.files.place, durable=False)

    def take(self, act: str, number: int, new: list[str]) -> None:
        match act:
            case "open":
                self.again()
            case "send":
                self.db.queue("q").send_many([inturn.queue.draft(body) for body in new])
                self.bodies += new
            case "copy":
                self.again(self.files.copy, str(len(self.saved)))
                self.saved.append([*self.bodies])
            case "put back" if number < len(self.saved):
                self.again(self.files.put_back, str(number))
                self.bodies = [*self.saved[number]]
            case "remember":
                length = max(1, len(self.bodies) - number)
                self.places.append(
                    (self.db.queue("q").reader("r").place(self.first + length - 1), self.bodies[:length])
                )

    def takes(self, place: QueuePosition) -> bool:
        try:
            self.db.queue("q").reader("r").seek(place)
        except StoreMismatch:
            return False
        return True


@settings(max_examples=max(10, settings().max_examples // 3))
@given(STEPS)
def test_positions_stay_valid_only_for_the_same_history_across_random_restores(
    steps: list[tuple[str, int, int]],
) -> None:
    """The same as for the rule, in core, over files: a place is valid where everything before it is what it was."""
    with tempfile.TemporaryDirectory() as folder:
        model = Model(folder)
        with ExitStack() as stack:
            stack.callback(lambda: model.db.close())  # noqa: PLW0108 - that which is open then
            for step, (act, number, count) in enumerate(steps):
                model.take(act, number, [f"{step}.{index}" for index in range(count)])
            for place, before in model.places:
                assert model.takes(place) == (model.bodies[: place.sequence_number - model.first + 1] == before)


def test_the_memory_store_computes_incarnations_alike() -> None:
    from inturn.core.queue.messages import Content, Draft, QueueInfo, QueueSettings
    from memory_store.store import MemoryStore

    store = MemoryStore()
    with store.transaction():
        store.save("q", QueueInfo(0, "q", QueueSettings(), 1))
        info = store.queues["q"]
        begin = info.last
        store.send(info, [Draft("x", Content.TEXT, None)], 1)
        assert store.incarnation(info, begin) == ""
        assert store.incarnation(info, begin + 1) == incarnation_of(
            [IncarnationStart(begin, store._incarnation)], begin + 1
        )
