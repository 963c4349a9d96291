"""Addresses to listen on: their form, several addresses of one name, and errors that say what to change."""

import socket
from pathlib import Path

import pytest

from inturn.core.errors import InputError
from inturn.serving.listening import (
    check_tls_pair,
    close,
    health_address,
    is_loopback,
    listening_sockets,
    server_url,
    tls_context,
)


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("8080", ("127.0.0.1", 8080)),
        (":0", ("127.0.0.1", 0)),
        ("[::1]:65535", ("::1", 65_535)),
        ("host.example:1", ("host.example", 1)),
    ],
)
def test_a_listen_address_is_a_host_and_a_port(address: str, found: tuple[str, int]) -> None:
    assert health_address(address) == found


@pytest.mark.parametrize("address", ["", "nowhere", "host:", "host:65536", "host:-1", "host:1a"])
def test_an_address_without_a_port_is_refused(address: str) -> None:
    with pytest.raises(InputError, match="expected HOST:PORT") as refused:
        health_address(address)
    assert repr(address) in str(refused.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "localhost", "LocalHost", "::1", "[::1]"])
def test_loopback_addresses_are_recognized(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", "localhost.example.org", ""])  # noqa: S104 - none is loopback
def test_non_loopback_addresses_are_recognized(host: str) -> None:
    assert not is_loopback(host)


def test_the_url_of_a_wildcard_address_names_localhost() -> None:
    assert server_url("0.0.0.0", 80, is_tls=False) == "http://localhost:80"  # noqa: S104 - nothing listens
    assert server_url("[::1]", 443, is_tls=True) == "https://[::1]:443"


def connects(family: socket.AddressFamily, host: str, port: int) -> bool:
    with socket.socket(family) as client:
        client.settimeout(10)
        return client.connect_ex((host, port)) == 0


def test_a_host_with_several_addresses_is_bound_to_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
    sockets = listening_sockets("localhost", 0)
    try:
        (port,) = {listener.getsockname()[1] for listener in sockets}
        assert connects(socket.AF_INET, "127.0.0.1", port)
        assert connects(socket.AF_INET6, "::1", port)
    finally:
        close(sockets)


def test_the_ipv6_wildcard_address_accepts_ipv4() -> None:
    sockets = listening_sockets("::", 0)
    try:
        assert connects(socket.AF_INET, "127.0.0.1", sockets[0].getsockname()[1])
    finally:
        close(sockets)


def test_a_port_in_use_is_named() -> None:
    sockets = listening_sockets("127.0.0.1", 0)
    port = sockets[0].getsockname()[1]
    with pytest.raises(InputError, match=f"^port {port} on 127.0.0.1 is in use; .* set another port$"):
        listening_sockets("127.0.0.1", port)
    close(sockets)


def test_an_unknown_host_is_named() -> None:
    with pytest.raises(InputError, match=r"^cannot listen on 127\.1\.2\.300:1 \(.*\); set another host or port$"):
        listening_sockets("127.1.2.300", 1)


ONE = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))
ABSENT = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0))
"""An address that no machine has."""


def test_an_unavailable_address_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [ABSENT, ONE])
    sockets = listening_sockets("localhost", 0)
    assert [server.getsockname()[0] for server in sockets] == ["127.0.0.1"]
    close(sockets)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [ABSENT])
    with pytest.raises(InputError, match="cannot listen on absent:0"):
        listening_sockets("absent", 0)


def test_a_port_in_use_on_one_of_several_addresses_leaves_no_open_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[socket.socket] = []
    bare = socket.socket

    def opening(family: int) -> socket.socket:
        opened.append(bare(family))
        return opened[-1]

    same_address = (*ONE[:2], 0, *ONE[3:])  # the same address: its port is in use
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [ONE, same_address])
    monkeypatch.setattr(socket, "socket", opening)
    with pytest.raises(InputError, match="in use"):
        listening_sockets("twice", 0)
    assert [server.fileno() for server in opened] == [-1, -1]


@pytest.mark.parametrize("host", ["x" * 70, "no.such.host.invalid"])
def test_an_unresolvable_host_is_named(host: str) -> None:
    with pytest.raises(InputError, match=f"^cannot listen on {host}:80"):
        listening_sockets(host, 80)


def test_tls_certificate_and_key_must_be_set_together() -> None:
    check_tls_pair(None, None)
    check_tls_pair("cert.pem", "key.pem")
    with pytest.raises(InputError, match=r"^tls_cert is set and tls_key is not; set both"):
        check_tls_pair("cert.pem", None)
    with pytest.raises(InputError, match=r"^tls_key is set and tls_cert is not; set both"):
        check_tls_pair(None, "key.pem")


def test_an_invalid_certificate_is_named(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("nothing")
    with pytest.raises(InputError, match=r"cannot use certificate .*cert\.pem with key .*cert\.pem: .*two PEM files"):
        tls_context(tmp_path / "cert.pem", tmp_path / "cert.pem")
    with pytest.raises(InputError, match="No such file"):
        tls_context(tmp_path / "none.pem", None)
