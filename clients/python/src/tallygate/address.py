"""Who is at the other end of a connection: the rightmost address that no proxy of ours has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

Address = IPv4Address | IPv6Address


class ClientAddress:
    """The address of the client, as a bucket's key: `ip:192.0.2.1`, `ip:2001:db8:1:200::/56`.

    It begins at the peer of the socket. Where that is in a `trusted` network, `X-Forwarded-For` is read from
    its end, all lines of it together: addresses of trusted networks are passed over, the first other one is
    the client. What does not parse ends the reading, and the last good address counts. The header of any
    other peer is not looked at, since anybody can send one.

    An IPv4 address counts by itself, also where it is written as an IPv6 one; of an IPv6 address the first
    `v6_prefix` bits, since a subscriber has at least 56 to choose from. ValueError where a network or the
    prefix is none.
    """

    def __init__(self, trusted: Iterable[str] = (), *, v6_prefix: int = 56) -> None:
        if isinstance(trusted, str):
            raise ValueError("trusted networks are a list, as ['10.0.0.0/8']")
        if not 1 <= v6_prefix <= 128:
            raise ValueError(f"an IPv6 prefix of {v6_prefix} bits is out of range; use 1 to 128")
        self._trusted = [ip_network(network) for network in trusted]
        self._v6_prefix = v6_prefix

    def key(self, peer: str, forwarded: Iterable[str] = ()) -> str | None:
        """The key for a peer and the lines of its header; None where the peer is no address."""
        client = _parse(peer)
        if client is None:
            return None
        entries = _entries(forwarded)
        while any(client in network for network in self._trusted):
            before = next(entries, None)
            if before is None:
                break
            client = before
        if isinstance(client, IPv4Address):
            return f"ip:{client}"
        return f"ip:{IPv6Network((int(client), self._v6_prefix), strict=False)}"

    def of_scope(self, scope: Mapping[str, Any]) -> str | None:
        """The key of an ASGI connection; None where the server does not tell its peer."""
        peer = scope.get("client")
        if not peer:
            return None
        lines = (value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for")
        return self.key(peer[0], lines)

    def of_environ(self, environ: Mapping[str, Any]) -> str | None:
        """The key of a WSGI request; None where the server does not tell its peer.

        WSGI has one name for `X-Forwarded-For` and `X_Forwarded_For`. A server or a proxy in front must drop
        names with underscores, as gunicorn, waitress, mod_wsgi and nginx do unless told otherwise: else a
        client writes after the proxy.
        """
        line = environ.get("HTTP_X_FORWARDED_FOR")
        return self.key(environ.get("REMOTE_ADDR", ""), () if line is None else (line,))


def _entries(lines: Iterable[str]) -> Iterator[Address | None]:
    """What proxies wrote, from the last to the first; None where it is no address."""
    for line in reversed(list(lines)):
        for entry in reversed(line.split(",")):
            yield _parse(entry.strip(" \t"))


def _parse(text: str) -> Address | None:
    """An address, with or without a port or a zone: `192.0.2.1:80`, `[2001:db8::1]:80`, `fe80::1%eth0`."""
    if text.startswith("["):
        text, closed, rest = text[1:].partition("]")
        if not closed or ":" not in text or (rest and not _is_port(rest)):
            return None
    elif text.count(":") == 1:
        text, _, port = text.partition(":")
        if not _is_port(f":{port}"):
            return None
    if not text.isascii():
        return None
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        return address.ipv4_mapped or IPv6Address(int(address))
    return address


def _is_port(text: str) -> bool:
    digits = text.removeprefix(":")
    is_number = digits.isascii() and digits.isdecimal() and len(digits) < 6
    return digits != text and is_number and int(digits) < 65536
