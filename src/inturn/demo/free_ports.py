"""Free ports of this machine for servers that are killed and started again."""

import random
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_given: set[int] = set()


def free_port() -> int:
    """Return a port of 127.0.0.1 that no process uses, and that no outgoing connection can get.

    While a server is down, a client that connects to a port in the range of outgoing connections may get that port as
    its own: it connects to itself, and the server cannot start again.

    Raises:
        OSError: if there is none.
    """
    low = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32768
    # At random, since other processes look for ports at the same time.
    for port in random.SystemRandom().sample(range(low // 2, low), low // 2):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _given:
                _given.add(port)
                return port
    raise OSError("no free port")
