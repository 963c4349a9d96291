"""Hears what others have put into the queues, on a connection of its own, so that who waits need not ask again.

A notification takes a lock that all databases of the server share until its transaction has ended. So it is not part
of the transaction that it tells of, but a statement of its own behind the commit, which writes nothing to the disk;
only in a connection of the caller's it is part of theirs. One that is lost costs ``limits.LISTEN_POLL_S``, no message.
"""

import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg

from inturn.core import limits
from inturn.core.errors import StoreError
from inturn.store.postgres.connection import plainly


class Listener:
    """A thread that listens.

    Args:
        url: of the database.
        channel: to what.
        is_own: whether a notification is this process's own, by the number of the server's process.
        heard: called in the thread when somebody has put something somewhere.
    """

    def __init__(self, url: str, channel: str, is_own: Callable[[int], bool], heard: Callable[[], None]) -> None:
        self._url = url
        self._channel = channel
        self._is_own = is_own
        self._heard = heard
        self.is_listening = False
        self._waker, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="inturn-listener", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Listen no more."""
        self._waker.close()  # which the other end sees
        self._thread.join()

    def _run(self) -> None:
        pause_s = 0.02
        while True:
            with suppress(psycopg.Error, StoreError), plainly(self._url) as connection:
                connection.execute(f'listen "{self._channel}"'.encode())
                self.is_listening, pause_s = True, 0.02
                self._heard()  # what has come before is not told again
                if self._listen(connection):
                    self._woken.close()
                    return
            self.is_listening = False
            if select.select([self._woken], [], [], pause_s)[0]:
                self._woken.close()
                return
            pause_s = min(2 * pause_s, limits.RECONNECT_S)

    def _listen(self, connection: "psycopg.Connection[Any]") -> bool:
        """Until it is stopped; or until the connection is lost, which raises."""
        while True:
            ready, _, _ = select.select([connection.fileno(), self._woken.fileno()], [], [])
            if self._woken.fileno() in ready:
                return True
            connection.pgconn.consume_input()
            is_news = False
            while notification := connection.pgconn.notifies():
                is_news |= not self._is_own(notification.be_pid)
            if is_news:
                self._heard()
                time.sleep(limits.LISTEN_PAUSE_S)
