"""Notifications of new messages from other processes, on a separate connection, so that receivers need not poll.

A notification takes a lock, shared by all databases of the server, until its transaction ends. So it is not part of
the transaction that it announces, but a separate statement after the commit, which writes nothing to the disk. Only on
a caller's connection it is part of the caller's transaction. A lost notification costs a delay of
``store_limits.LISTEN_POLL_S``, but no message.
"""

import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg

from inturn.core.errors import StoreError
from inturn.store import limits as store_limits
from inturn.store.postgres.connection import plainly
from inturn.threads import started


class Listener:
    """A thread that listens for notifications.

    Args:
        url: address of the database.
        channel: name of the notification channel.
        is_own: returns whether a notification comes from this process, by the pid of the server's backend.
        heard: called in the thread after a notification of another process, and after each connect.
    """

    def __init__(self, url: str, channel: str, is_own: Callable[[int], bool], heard: Callable[[], None]) -> None:
        self._url = url
        self._channel = channel
        self._is_own = is_own
        self._heard = heard
        self.is_listening = False
        self._waker, self._woken = socket.socketpair()
        self._thread = started(self._run, "inturn-listener")

    def stop(self) -> None:
        """Stop the thread."""
        self._waker.close()  # wakes the thread
        self._thread.join()

    def _run(self) -> None:
        pause_s = 0.02
        while True:
            with suppress(psycopg.Error, StoreError), plainly(self._url) as connection:
                connection.execute(f'listen "{self._channel}"'.encode())
                self.is_listening, pause_s = True, 0.02
                self._heard()  # earlier notifications are not repeated
                if self._listen(connection):
                    self._woken.close()
                    return
            self.is_listening = False
            if select.select([self._woken], [], [], pause_s)[0]:
                self._woken.close()
                return
            pause_s = min(2 * pause_s, store_limits.RECONNECT_S)

    def _listen(self, connection: "psycopg.Connection[Any]") -> bool:
        """Handle notifications until the thread is stopped; raise if the connection is lost."""
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
                time.sleep(store_limits.LISTEN_PAUSE_S)
