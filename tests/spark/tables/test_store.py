"""The store: what is refused, and that a refusal changes nothing.

Steps run in this process on real files (see ``kernel_harness``). Whatever is wrong with a store is told by an error
of ours that names the file, and what was committed stays as it was.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, make_dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from inturn import Gapless, Monotone, Pipeline
from inturn.core.errors import InputError, PipelineError, StateError, StoreConflict, StoreError, StoreMismatch
from inturn.spark import sweep
from inturn.spark.tables.manifest import FORMAT, SparkStore, new_identity
from kernel_harness import Bench, Bounds, Seen
from waiting import DEADLINE_S, PROGRAM_S

SCHEMA = pa.schema({"account": pa.string(), "revision": pa.int64(), "amount": pa.int64()})


@dataclass
class Account:
    balance: int = 0
    tags: list[str] = field(default_factory=list)


def post(state: Account, message: dict[str, Any]) -> tuple[Account, list[Any]]:
    state.balance += message["amount"]
    return state, [{"balance": state.balance}]


ledger = Pipeline(name="ledger", group="account", order=Gapless("revision"), handler=post, state=Account)


def rows(*revisions: int, account: str = "a", amount: int = 1) -> list[dict[str, Any]]:
    return [{"account": account, "revision": revision, "amount": amount} for revision in revisions]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(ledger, SCHEMA, root=tmp_path / "store")


def files(bench: Bench) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in bench.root.rglob("*") if path.is_file()}


# -- the state type changes ------------------------------------------------------------------------------------


@dataclass
class Richer:
    currency: str = "EUR"
    balance: int = 0
    limits: dict[str, int] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)


class Slim(msgspec.Struct):
    balance: int = 0
    tags: list[str] = []


class Wide(msgspec.Struct, kw_only=True):
    currency: str = "EUR"
    balance: int = 0
    tags: list[str] = []
    seen: list[int] = []


@pytest.mark.parametrize(
    ("old", "new", "more"),
    [
        (Account, Richer, {"currency": "EUR", "limits": {}}),
        (Slim, Wide, {"currency": "EUR", "seen": []}),
    ],
)
def test_a_state_type_may_gain_fields_with_defaults(bench: Bench, old: type, new: type, more: dict[str, Any]) -> None:
    bench.pipeline = replace(ledger, state=old)
    bench.step([*rows(1, 2, amount=5), *rows(1, account="b")])
    bench.pipeline = replace(ledger, state=new)
    # Group b is not touched: it stays as it was stored, and is read as the new type.
    bench.step(rows(3, amount=5))
    states = bench.seen().states
    assert states == {"a": new(balance=15, tags=[], **more), "b": new(balance=1, tags=[], **more)}


@dataclass
class Fraction:
    balance: float = 0.0
    tags: list[str] = field(default_factory=list)


@dataclass
class Other:
    balance: int = 0
    tags: list[int] = field(default_factory=list)


@dataclass
class Poorer:
    balance: int = 0


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (Poorer, r"state\.tags was removed; undo the change"),
        (Fraction, r"state\.balance has changed from int to float"),
        (Other, r"state\.tags\[\] has changed from str to int"),
        (dict, "state has changed from a record of balance, tags to dict"),
    ],
)
def test_a_state_type_that_drops_a_stored_field_is_refused(bench: Bench, state: Any, text: str) -> None:
    bench.step(rows(1))
    before = files(bench)
    bench.pipeline = replace(ledger, state=state)
    with pytest.raises(StateError, match=text):
        bench.step(rows(2))
    assert files(bench) == before


class _Owes(type):
    def __call__(cls, *args: Any, **named: Any) -> Any:
        return super().__call__(*args, **({"owed": 1} | named))


@dataclass
class Late(metaclass=_Owes):
    """Can be made without arguments although a field has no default."""

    owed: int
    balance: int = 0
    tags: list[str] = field(default_factory=list)


def test_a_new_state_field_without_a_default_is_refused(bench: Bench) -> None:
    bench.step(rows(1))
    before = files(bench)
    bench.pipeline = replace(ledger, state=Late)
    with pytest.raises(StateError, match=r"state\.owed is new and has no default.*Pipeline\(version=2, upgrade=fn\)"):
        bench.step(rows(2))
    assert files(bench) == before


@dataclass
class Item:
    sku: str


@dataclass
class Basket:
    items: list[Item] = field(default_factory=list)


def test_a_nested_state_record_that_drops_a_stored_field_is_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put(state: Basket, message: dict[str, Any]) -> tuple[Basket, list[Any]]:
        return Basket([*state.items, Item("x")]), []

    bench.pipeline = replace(ledger, state=Basket, handler=put)
    bench.step(rows(1))
    before = files(bench)
    newer = make_dataclass("Item", [("sku", str), ("count", int)])
    newer.__module__ = __name__
    monkeypatch.setitem(Basket.__annotations__, "items", list[newer])
    with pytest.raises(StateError, match="items"):
        bench.step(rows(2))
    assert files(bench) == before


@pytest.mark.parametrize("more", [[], [("count", int, 1)]], ids=["a text", "a field with a default"])
def test_a_nested_state_record_may_gain_fields_with_defaults(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, more: list[Any]
) -> None:
    def put(state: Basket, message: dict[str, Any]) -> tuple[Basket, list[Any]]:
        return Basket([*state.items, Item("x")]), []

    bench.pipeline = replace(ledger, state=Basket, handler=put)
    bench.step(rows(1))
    newer = make_dataclass("Item", [("sku", str), *more], namespace={"__doc__": "What is sold."})
    newer.__module__ = __name__
    monkeypatch.setitem(Basket.__annotations__, "items", list[newer])
    bench.pipeline = replace(bench.pipeline, handler=lambda state, message: (state, []))
    bench.step(rows(2))
    assert bench.seen().states == {"a": Basket([newer("x")])}


def test_held_messages_that_lack_a_new_required_field_are_reported(bench: Bench) -> None:
    old = make_dataclass("Message", [("account", str), ("revision", int)])
    new = make_dataclass("Message", [("account", str), ("revision", int), ("amount", int)])
    keep = lambda state, message: (state, [])  # noqa: E731
    bench.pipeline = replace(ledger, message=old, handler=keep)
    bench.step(rows(2))
    before = bench.seen()
    bench.pipeline = replace(ledger, message=new, handler=keep)
    with pytest.raises(InputError, match="amount"):
        bench.step(rows(1))
    assert bench.seen() == before


# -- another store ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "text"),
    [
        ({"name": "orders"}, "a pipeline with pipeline 'ledger', not 'orders'"),
        ({"group": "amount"}, "a pipeline with group 'account', not 'amount'"),
        ({"order": Gapless("revision", start=0)}, "a pipeline with order .*start=1.*, not .*start=0"),
        ({"order": Monotone("revision")}, "a pipeline with order .Gapless.*, not .Monotone"),
        ({"id": "amount"}, "a pipeline with id None, not 'amount'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_the_store_of_another_pipeline_is_refused(bench: Bench, other: dict[str, Any], text: str) -> None:
    bench.step(rows(1))
    before = files(bench)
    bench.pipeline = replace(ledger, **other)
    with pytest.raises(StoreMismatch, match=f"(?s){text}.*another store"):
        bench.step(rows(2))
    assert files(bench) == before


def test_another_number_of_buckets_is_refused(bench: Bench) -> None:
    bench.step(rows(1))
    before = files(bench)
    bench.buckets = 3
    with pytest.raises(StoreMismatch, match="created with 2 buckets, not 3; omit buckets="):
        bench.step(rows(2))
    assert files(bench) == before
    assert bench.store.open(new_identity(ledger, None), buckets=None).buckets == 2


@pytest.mark.parametrize("buckets", [0, -1, 65_537, True, 1.5, "2"])
def test_an_invalid_number_of_buckets_is_refused(buckets: Any) -> None:
    with pytest.raises(PipelineError, match="expected a whole number from 1 to 65536"):
        new_identity(ledger, buckets)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (FORMAT + 1, f"has format {FORMAT + 1}; .* knows format {FORMAT}; update inturn"),
        (FORMAT - 1, f"has format {FORMAT - 1}, of a development version .* expected format {FORMAT};.* a new store"),
    ],
    ids=["newer", "unreleased"],
)
def test_a_store_of_another_format_is_refused(bench: Bench, number: int, text: str) -> None:
    bench.step(rows(1))
    change(bench.root / "inturn.json", format=number)
    before = files(bench)
    for attempt in (lambda: bench.step(rows(2)), lambda: sweep(bench.root), bench.store.require_identity):
        with pytest.raises(StoreMismatch, match=text):
            attempt()
    assert files(bench) == before


def change(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


# -- damage -----------------------------------------------------------------------------------------------------


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def another_kind(path: Path) -> None:
    path.write_bytes(b"[1]")


@pytest.mark.parametrize("damage", [cut_short, empty, another_kind])
@pytest.mark.parametrize("name", ["inturn.json", "steps/000000000001.json"])
def test_a_damaged_manifest_is_reported_and_nothing_is_written(
    bench: Bench, name: str, damage: Callable[[Path], None]
) -> None:
    bench.step(rows(1))
    damage(bench.root / name)
    before = files(bench)
    with pytest.raises(StoreError, match=f"{name} is damaged.*restore it"):
        bench.step(rows(2))
    assert files(bench) == before


def body(path: Path) -> None:
    data = bytearray(path.read_bytes())
    length = int.from_bytes(data[-10:-6], "little")  # of the footer, before the closing ARROW1
    data[8 : -10 - length] = bytes(len(data) - 18 - length)
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [cut_short, empty, body, Path.unlink])
@pytest.mark.parametrize("table", ["groups", "held"])
def test_a_damaged_data_file_is_reported_and_no_step_is_committed(
    bench: Bench, table: str, damage: Callable[[Path], None]
) -> None:
    bench.step(rows(1, 3))
    [path] = (bench.root / "data" / table).iterdir()
    damage(path)
    with pytest.raises(StoreError, match=f"cannot read .*{path.name}"):
        bench.step(rows(2))
    assert bench.store.steps() == [1]


def test_a_missing_step_is_reported_with_the_existing_steps(bench: Bench) -> None:
    bench.step(rows(1))
    with pytest.raises(StoreError, match="no step 7; it has steps 1 to 1"):
        bench.store.manifest(7)


# -- places where no store can be ------------------------------------------------------------------------------


def test_a_directory_with_other_files_is_refused_as_a_store(bench: Bench) -> None:
    bench.root.mkdir()
    (bench.root / "notes.txt").write_text("mine")
    before = files(bench)
    with pytest.raises(StoreError, match="is neither a store nor empty"):
        bench.step(rows(1))
    assert files(bench) == before


def test_a_store_with_the_draft_of_another_writer_can_be_created(bench: Bench) -> None:
    bench.root.mkdir()
    # As a writer leaves it that is at work, or was killed, between the draft and the link.
    (bench.root / ".inturn.json.0123456789abcdef").write_bytes(b"{")
    bench.step(rows(1))
    assert bench.store.steps() == [1]


@pytest.mark.parametrize("where", [".", "..", "steps", "data", "data/groups"])
def test_an_unwritable_store_path_is_reported(tmp_path: Path, where: str) -> None:
    """A file where a directory is wanted: permissions alone do not stop root."""
    bench = Bench(ledger, SCHEMA, root=tmp_path / "place" / "store")
    if where not in (".", ".."):
        bench.store.open(new_identity(ledger, 2), buckets=2)
    path = (bench.root / where).resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("in the way")
    with pytest.raises(StoreError, match=r"cannot (read|write|list) ") as error:
        bench.step(rows(1))
    assert str(path) in str(error.value)
    assert type(error.value) is StoreError
    assert path.read_text() == "in the way"


def test_an_unsupported_filesystem_is_refused() -> None:
    with pytest.raises(StoreError, match="hdfs: is not supported"):
        SparkStore("hdfs://host/ledger")


def test_a_file_uri_opens_the_store_of_its_path(bench: Bench) -> None:
    bench.step(rows(1))
    assert SparkStore(bench.root.as_uri()).steps() == [1]


# -- two writers ------------------------------------------------------------------------------------------------


def test_the_second_writer_of_a_step_gets_a_conflict(bench: Bench) -> None:
    bench.step(rows(1))
    prepared, _ = bench.prepare(rows(2, amount=10))
    bench.step(rows(2, 3, amount=5))
    theirs, manifests = bench.seen(), files(bench)
    with pytest.raises(StoreConflict, match="another writer committed step 2 first"):
        bench.store.commit(prepared)
    assert (bench.seen(), files(bench)) == (theirs, manifests)
    # Run again, it goes on from what the first one made.
    counts = bench.step(rows(2, 4, amount=5))
    assert (counts.applied, counts.duplicate) == (1, 1)
    assert bench.seen().states == {"a": Account(16)}


def test_two_writers_create_one_store(bench: Bench) -> None:
    first, second = SparkStore(bench.root), SparkStore(bench.root)
    assert first.identity() is second.identity() is None
    identity = first.open(new_identity(ledger, 2), buckets=2)
    assert second.open(new_identity(ledger, None), buckets=None) == identity


def test_a_slow_writer_opens_the_store_that_another_writer_created(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one makes it after the first look, and has written more before the second."""
    first, second = SparkStore(bench.root), SparkStore(bench.root)
    list_names = first.files.names

    def slowly(folder: str) -> list[str]:
        second.open(new_identity(ledger, 2), buckets=2)
        second.files.create("steps/draft", b"")
        return list_names(folder)

    monkeypatch.setattr(first.files, "names", slowly)
    assert first.open(new_identity(ledger, 2), buckets=2) == second.require_identity()


@pytest.mark.parametrize("round_", range(20))
def test_racing_writers_create_one_store(tmp_path: Path, round_: int) -> None:
    start = threading.Barrier(4, timeout=DEADLINE_S)

    def make(_: int) -> Any:
        start.wait()
        return SparkStore(tmp_path / "store").open(new_identity(ledger, 2), buckets=2)

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(make, range(4)))) == 1


# -- what was never committed ----------------------------------------------------------------------------------


def test_an_uncommitted_step_is_invisible(bench: Bench) -> None:
    bench.prepare(rows(1, 3, amount=7))
    assert (bench.store.steps(), bench.seen()) == ([], Seen())
    bench.step(rows(1))
    before = bench.seen()
    bench.prepare(rows(2, 4, amount=7))
    assert bench.seen() == before
    bench.step(rows(2))
    assert bench.seen().states == {"a": Account(2)}


def test_sweep_deletes_only_files_that_no_step_names(bench: Bench) -> None:
    bad = {"account": None, "revision": 1, "amount": 1}
    bench.step([*rows(1, 3), *rows(1, account="b"), bad])
    bench.step([*rows(2, 5), *rows(2, account="b"), bad])
    before, named = bench.seen(), set(files(bench))
    bench.prepare([*rows(4, 9), *rows(3, account="c"), bad])
    unnamed = set(files(bench)) - named
    assert len(unnamed) >= 4
    assert sweep(bench.root) == []  # a step that is running has such files
    assert {str(bench.root / name) for name in sweep(bench.root, older_than_s=-1)} == unnamed
    assert set(files(bench)) == named
    assert bench.seen() == before
    bench.step(rows(4))
    assert bench.seen().states["a"] == Account(5)


def test_sweep_refuses_a_directory_that_is_not_a_store(tmp_path: Path) -> None:
    path = tmp_path / "data" / "precious.parquet"
    path.parent.mkdir()
    path.write_text("mine")
    with pytest.raises(StoreError, match="is not a store"):
        sweep(tmp_path, older_than_s=-1)
    assert path.exists()


# -- what a step reads -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row_group_rows", [1, 2, 1_000])
def test_a_group_has_the_state_of_its_newest_step(tmp_path: Path, row_group_rows: int) -> None:
    bench = Bench(ledger, SCHEMA, root=tmp_path / "store", bounds=Bounds(chunk_rows=2, row_group_rows=row_group_rows))
    accounts = "abcdefgh"
    for step in range(1, 5):
        for account in accounts[step:]:
            bench.step(rows(step, account=account)) if account == "h" else None
        bench.step([row for account in accounts[: 2 * step] for row in rows(*range(1, step + 1), account=account)])
    balances = {name: state.balance for name, state in bench.seen().states.items()}
    assert balances == dict.fromkeys(accounts, 4)


# -- a disk that is full ----------------------------------------------------------------------------------------

FULL = """
import resource, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
sys.path.append(str(Path(sys.argv[1]).parents[1]))
from test_store import Bench, SCHEMA, ledger, rows
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
bench = Bench(ledger, SCHEMA, root=Path(sys.argv[2]))
bench.step([row for account in map(str, range(400)) for row in rows(2, 4, account=account)])
"""


@pytest.mark.parametrize("limit", [100, 3_000, 20_000])
@pytest.mark.thorough
def test_a_failed_write_commits_nothing_of_the_step(bench: Bench, tmp_path: Path, limit: int) -> None:
    """No file may be larger than the limit: the kernel refuses the write as it does on a full disk."""
    bench.step(rows(1, 3))
    before = bench.seen()
    folder = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", FULL, folder, str(bench.root), str(limit)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PROGRAM_S,
    )
    assert done.returncode == 1
    assert "StoreError: cannot write" in done.stderr, done.stderr
    assert bench.seen() == before
    bench.step(rows(2))
    assert bench.seen().states["a"].balance == 3
    assert sweep(bench.root, older_than_s=0) != []
