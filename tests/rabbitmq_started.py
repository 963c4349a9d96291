"""A RabbitMQ server for tests: a node of its own on loopback, in a directory of its own, without rights of root.

As a program it is what ends the server if the tests are killed.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

SERVER: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # what Debian puts around it changes the user
EPMD: Final = shutil.which("epmd")
WAIT_S: Final = 120


def missing() -> str | None:
    """Return what is missing on this machine to start it; None: nothing."""
    return None if SERVER.exists() and EPMD else "rabbitmq-server is not installed: make services"


@contextmanager
def rabbitmq(folder: Path) -> Iterator[str]:
    """Run a server; yield the URL of its guest user."""
    node_port, dist_port, epmd_port = (_free_port() for _ in range(3))
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),  # of Erlang's cookie
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(epmd_port),
        "RABBITMQ_NODENAME": f"inturn{node_port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(node_port),
        "RABBITMQ_DIST_PORT": str(dist_port),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
        "RABBITMQ_CONFIG_FILE": str(folder / "none"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }
    (folder / "plugins").write_text("[].\n")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
    # Both in one process group, which is killed as a whole: nothing of its data is kept.
    epmd = subprocess.Popen([EPMD], env=environment, process_group=0, **quiet)  # type: ignore[call-overload]
    server = subprocess.Popen([SERVER], env=environment, cwd=folder, process_group=epmd.pid, **quiet)  # type: ignore[call-overload]
    watch = subprocess.Popen([sys.executable, __file__, str(epmd.pid)], start_new_session=True)
    try:
        ends = time.monotonic() + WAIT_S
        while not _greets(node_port):
            assert server.poll() is None, f"RabbitMQ did not start; see {folder / 'log'}"
            assert time.monotonic() < ends, f"RabbitMQ is not up after {WAIT_S} s; see {folder / 'log'}"
            time.sleep(0.2)
        yield f"amqp://guest:guest@127.0.0.1:{node_port}/"
    finally:
        watch.terminate()
        os.killpg(epmd.pid, signal.SIGKILL)
        for each in (watch, server, epmd):
            each.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _greets(port: int) -> bool:
    """Return whether the server answers a wrong greeting with the protocol that it speaks."""
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as connection:
            connection.sendall(b"AMQP\0\0\0\0")
            return connection.recv(8).startswith(b"AMQP")
    except OSError:
        return False


def _main(group: int) -> None:
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.5)
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    _main(int(sys.argv[1]))
