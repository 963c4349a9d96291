"""A proxy between a client and a server, which cuts all connections when asked."""

import socket
import threading
from contextlib import suppress


class CuttingProxy:
    """What stands between clients and a server on 127.0.0.1.

    Args:
        to: the port of the server.
        at: the port that it listens on; 0: a free one.
    """

    def __init__(self, to: int, at: int = 0) -> None:
        self._to = ("127.0.0.1", to)
        self._listener = socket.create_server(("127.0.0.1", at))
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
                ours, _ = self._listener.accept()
                try:
                    theirs = socket.create_connection(self._to)
                except OSError:
                    ours.close()
                    continue
                self._open += [ours, theirs]
                for one, other in ((ours, theirs), (theirs, ours)):
                    threading.Thread(target=_carry, args=(one, other), daemon=True).start()


def _carry(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
    for each in (one, other):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
