"""What all tests share: how hard hypothesis tries, that the quick tests speak first, and an object store."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pyarrow.fs as pafs
import pytest
from hypothesis import settings

# "ci" gives the same examples on every run, so that a red run is a change of ours; "search" looks for new ones:
# pytest --hypothesis-profile=search
settings.register_profile("ci", derandomize=True, max_examples=100, deadline=None, print_blob=True)
settings.register_profile("search", max_examples=2000, deadline=None, print_blob=True)
settings.load_profile("ci")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what needs Spark after the others, each kind in its own order."""
    items.sort(key=lambda item: item.get_closest_marker("spark") is not None)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """A server of the S3 protocol on this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A bucket on it, and the environment in which clients find it."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    files, _ = pafs.FileSystem.from_uri("s3://inturn?allow_bucket_creation=true")
    files.create_dir("inturn")
    return "s3://inturn"
