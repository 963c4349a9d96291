"""RabbitMQ on this machine: a separate node on loopback, in its own directory, without root rights.

Run as a program, this module ends the server if the process that started it is killed.
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

from inturn.demo.free_ports import free_port

SERVER: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # Debian's wrapper script changes the user
EPMD: Final = shutil.which("epmd")
WAIT_S: Final = 120


def missing() -> str | None:
    """Return the missing requirement for starting the server; None: nothing is missing."""
    return None if SERVER.exists() and EPMD else "rabbitmq-server is not installed; install it with: make services"


class RabbitServer:
    """One node of RabbitMQ, which can be killed and started again over its data.

    Args:
        folder: folder of its data and its logs.

    Attributes:
        port: the port that it listens on.
        url: the URL of its guest user.
    """

    def __init__(self, folder: Path) -> None:
        self.port, dist_port, epmd_port = (free_port() for _ in range(3))
        self.url = f"amqp://guest:guest@127.0.0.1:{self.port}/"
        self._folder = folder
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),  # of Erlang's cookie
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(epmd_port),
            "RABBITMQ_NODENAME": f"inturn{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(dist_port),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
            "RABBITMQ_CONFIG_FILE": str(folder / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }
        (folder / "plugins").write_text("[].\n")
        self.start()

    def start(self) -> None:
        """Start the node, and wait until it answers.

        Raises:
            TimeoutError: if it does not within two minutes.
        """
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
        # Both in one process group, which is killed as a whole.
        epmd = subprocess.Popen([EPMD], env=self._environment, process_group=0, **quiet)  # type: ignore[call-overload]
        server = subprocess.Popen(  # type: ignore[call-overload]
            [SERVER], env=self._environment, cwd=self._folder, process_group=epmd.pid, **quiet
        )
        watch = subprocess.Popen([sys.executable, __file__, str(epmd.pid)], start_new_session=True)
        self._epmd, self._processes = epmd, (watch, server, epmd)
        ends = time.monotonic() + WAIT_S
        while not _greets(self.port):
            if server.poll() is not None or time.monotonic() > ends:
                self.kill()
                raise TimeoutError(f"RabbitMQ did not start; see {self._folder / 'log'}")
            time.sleep(0.2)

    def kill(self) -> None:
        """End the node at once, like a power failure."""
        watch, *_ = self._processes
        watch.terminate()
        os.killpg(self._epmd.pid, signal.SIGKILL)
        for process in self._processes:
            process.wait()


@contextmanager
def rabbitmq(folder: Path) -> Iterator[str]:
    """Run a server; yield the URL of its guest user."""
    server = RabbitServer(folder)
    try:
        yield server.url
    finally:
        server.kill()


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
