"""Addresses that a command listens on: their form, their sockets, TLS, and who can reach them."""

import errno
import os
import socket
import ssl
from ipaddress import ip_address
from pathlib import Path

from inturn.core.errors import InputError


def health_address(address: str) -> tuple[str, int]:
    """Return the host and the port of the setting ``health``, ``HOST:PORT``; of ``PORT`` alone, the host is 127.0.0.1.

    Raises:
        InputError: if it has another form.
    """
    host, _, port = address.rpartition(":")
    if not (port.isdecimal() and len(port) <= 5 and int(port) <= 65_535):
        raise InputError(f"health is {address!r}; expected HOST:PORT with a port up to 65535, such as 127.0.0.1:8080")
    return bare_host(host) or "127.0.0.1", int(port)


def bare_host(host: str) -> str:
    """Return a host without the brackets of an IPv6 address."""
    return host.strip("[]")


def is_loopback(host: str) -> bool:
    """Return whether a host is localhost or a loopback address, so that no other machine can reach it."""
    try:
        return host.lower() == "localhost" or ip_address(bare_host(host)).is_loopback
    except ValueError:
        return False


def server_url(host: str, port: int, *, is_tls: bool) -> str:
    """Return the URL of a server, as this machine reaches it."""
    name = bare_host(host)
    if name in {"0.0.0.0", "::"}:  # noqa: S104 - every address, of which this one is sure to be the server's
        name = "localhost"
    return f"{'https' if is_tls else 'http'}://{f'[{name}]' if ':' in name else name}:{port}"


def listening_sockets(host: str, port: int) -> list[socket.socket]:
    """Listen on all addresses of a host; clients can connect from now on.

    Args:
        host: the name or address; ``::`` includes the addresses of IPv4.
        port: the port; 0: any free one, the same for all addresses.

    Raises:
        InputError: if an address cannot be listened on.
    """
    name = bare_host(host)
    sockets: list[socket.socket] = []
    try:
        addresses = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        refused: OSError | None = None
        for family, *_, address in dict.fromkeys(addresses):
            same = sockets[0].getsockname()[1] if sockets else port
            try:
                sockets.append(_listening(family, (address[0], same, *address[2:]), dual=name == "::"))
            except OSError as error:  # a name may have an address of a protocol that this machine does not use
                if error.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
                    raise
                refused = error
        if not sockets and refused is not None:
            raise refused
    except (OSError, UnicodeError) as error:
        close(sockets)
        raise InputError(_refusal(name, port, error)) from error
    return sockets


def _listening(family: int, address: tuple[str | int, ...], *, dual: bool) -> socket.socket:
    server = socket.socket(family)
    try:
        if os.name == "posix":
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not dual)
        server.bind(address)
        server.listen(socket.SOMAXCONN)
    except OSError:
        server.close()
        raise
    return server


def close(sockets: list[socket.socket]) -> None:
    """Stop listening."""
    for listener in sockets:
        listener.close()


def _refusal(host: str, port: int, error: OSError | UnicodeError) -> str:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use; stop the process that listens on it, or set another port"
    return f"cannot listen on {host}:{port} ({getattr(error, 'strerror', None) or error}); set another host or port"


def tls_context(cert: str | Path | None, key: str | Path | None) -> ssl.SSLContext | None:
    """Return the context for HTTPS; None for plain HTTP.

    Args:
        cert: the file with the certificate and its chain, PEM; None: plain HTTP.
        key: the file with the certificate's key, PEM; None: it is in the file of the certificate.

    Raises:
        InputError: if the files cannot be used.
    """
    if cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    for file in (cert,) if key is None else (cert, key):
        try:
            Path(file).read_bytes()
        except OSError as error:
            raise InputError(f"cannot read {file}: {error.strerror}; expected a PEM file") from error
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "reason", None) or error.strerror or error
        raise InputError(
            f"cannot use certificate {cert} with key {key}: {reason}; expected two PEM files that belong together"
        ) from error
    return context


def check_tls_pair(cert: object, key: object) -> None:
    """Check that a certificate and its key are set together.

    Raises:
        InputError: if only one of them is set.
    """
    if (cert is None) != (key is None):
        present, absent = ("tls_key", "tls_cert") if cert is None else ("tls_cert", "tls_key")
        raise InputError(f"{present} is set and {absent} is not; set both, the certificate and its key, or neither")
