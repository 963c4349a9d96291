"""A proxy between a client and a server, which cuts all connections when asked."""

import socket
import threading
from contextlib import suppress


class CuttingProxy:
    """What stands between clients and a server on 127.0.0.1.

    Args:
        to: the port of the server.
        port: the port that it listens on; 0: a free one.
    """

    def __init__(self, to: int, port: int = 0) -> None:
        self._to = ("127.0.0.1", to)
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port = int(self._listener.getsockname()[1])
        self._open: list[socket.socket] = []

    def __enter__(self) -> "CuttingProxy":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # close() alone would leave it open while accept() waits
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Cut all connections; new ones go through."""
        while self._open:
            with suppress(OSError):
                self._open.pop().shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                accepted, _ = self._listener.accept()
                try:
                    theirs = socket.create_connection(self._to)
                except OSError:
                    accepted.close()
                    continue
                self._open += [accepted, theirs]
                for source, other in ((accepted, theirs), (theirs, accepted)):
                    threading.Thread(target=_carry, args=(source, other), daemon=True).start()


def _carry(source: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            other.sendall(data)
    for connection in (source, other):
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
