"""An object store that carries out a write and answers that it did not, or answers nothing."""

import uuid
from collections.abc import Iterator

import pytest
from faulty_proxy import Fault, Proxy, once, proxied

from inturn.core.errors import StoreConflict, StoreError
from inturn.core.pipeline.decision import Decision, DecisionAction
from inturn.spark.tables.manifest import SparkStore
from inturn.spark.tables.storage import Storage, storage

FAULTS: tuple[Fault, ...] = (500, 503, 429, 408, "cut")


@pytest.fixture(scope="module")
def proxy(endpoint: str) -> Iterator[Proxy]:
    with proxied(endpoint) as proxy:
        yield proxy


@pytest.fixture
def files(bucket: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    """A place of its own behind the proxy."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    yield storage(f"{bucket}/{uuid.uuid4()}")
    proxy.faults = lambda method, path: None
    proxy.refuses = False


@pytest.mark.parametrize("fault", FAULTS)
def test_a_create_with_an_ambiguous_answer_succeeds_if_its_content_was_written(
    files: Storage, proxy: Proxy, fault: Fault
) -> None:
    proxy.faults = once(fault, put="steps/1")
    files.create("steps/1.json", b"mine")
    assert files.read("steps/1.json") == b"mine"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_create_with_an_ambiguous_answer_conflicts_with_foreign_content(
    files: Storage, proxy: Proxy, fault: Fault
) -> None:
    files.create("steps/1.json", b"another's")
    proxy.faults = once(fault, put="steps/1")
    with pytest.raises(StoreConflict, match=r"steps/1.json already exists"):
        files.create("steps/1.json", b"mine")
    assert files.read("steps/1.json") == b"another's"


def test_a_create_that_cannot_be_verified_reports_an_unknown_outcome(files: Storage, proxy: Proxy) -> None:
    def last_answer(method: str, path: str) -> Fault:
        proxy.refuses = method == "PUT"
        return 400 if proxy.refuses else None

    proxy.faults = last_answer
    with pytest.raises(StoreError, match="it may have been written nevertheless"):
        files.create("steps/1.json", b"mine")
    proxy.refuses = False
    assert files.read("steps/1.json") == b"mine"


def test_a_decision_file_left_after_its_application_is_applied_once(files: Storage) -> None:
    store = SparkStore(files.location.replace("s3a://", "s3://"))
    decision = Decision(id="d1", action=DecisionAction.RESUME, group="a", by="ada", at_us=1)
    name = store.decisions.append(decision)
    pending = f"decisions/new/{name}.json"
    data = files.read(pending)
    assert data is not None
    files.create(f"decisions/taken/{name}.json", data)  # a step took it, and was slow to file it away
    assert store.pending_decisions(None) == {}
    assert files.read(pending) is None
