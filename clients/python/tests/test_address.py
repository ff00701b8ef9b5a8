"""Nobody chooses an address."""

from __future__ import annotations

import random

import pytest

from tallygate import ClientAddress

DIRECT = ClientAddress()
OURS = ClientAddress(["10.0.0.0/8", "2001:db8:ff::/48", "192.0.2.250"])


@pytest.mark.parametrize(
    ("by", "peer", "lines", "expected"),
    [
        # A header of whoever is no proxy of ours is nothing.
        (DIRECT, "203.0.113.9", ["198.51.100.1"], "ip:203.0.113.9"),
        (OURS, "203.0.113.9", ["198.51.100.1"], "ip:203.0.113.9"),
        (OURS, "203.0.113.9", [], "ip:203.0.113.9"),
        (OURS, "10.0.0.1", [], "ip:10.0.0.1"),
        # The leftmost is what the client wrote; the rightmost what our proxy did.
        (OURS, "10.0.0.1", ["198.51.100.1, 203.0.113.9"], "ip:203.0.113.9"),
        (OURS, "10.0.0.1", ["198.51.100.1,203.0.113.9,10.0.0.2"], "ip:203.0.113.9"),
        # Lines of one header are one list.
        (OURS, "10.0.0.1", ["198.51.100.1", "203.0.113.9", "10.0.0.2, 10.0.0.3"], "ip:203.0.113.9"),
        # An entry that does not parse is not passed over to what the client wrote behind it.
        (OURS, "10.0.0.1", ["198.51.100.1, unknown, 10.0.0.2"], "ip:10.0.0.2"),
        (OURS, "10.0.0.1", ["198.51.100.1, , 10.0.0.2"], "ip:10.0.0.2"),
        (OURS, "10.0.0.1", ["198.51.100.1, 203.0.113.9 x"], "ip:10.0.0.1"),
        (OURS, "10.0.0.1", [""], "ip:10.0.0.1"),
        (OURS, "10.0.0.1", ["198.51.100.1", ""], "ip:10.0.0.1"),
        (OURS, "10.0.0.1", ["198.51.100.1,\xe9"], "ip:10.0.0.1"),
        (OURS, "10.0.0.1", ["198.51.100.1, _hidden"], "ip:10.0.0.1"),
        (OURS, "10.0.0.1", ["198.51.100.1, 3405803785"], "ip:10.0.0.1"),
        (OURS, "10.0.0.1", ["\u0661.2.3.4"], "ip:10.0.0.1"),
        # Nobody but proxies of ours: the first of them.
        (OURS, "10.0.0.1", ["10.0.0.7, 10.0.0.8"], "ip:10.0.0.7"),
        (OURS, "192.0.2.250", ["203.0.113.9"], "ip:203.0.113.9"),
        (OURS, "2001:db8:ff::1", ["203.0.113.9"], "ip:203.0.113.9"),
        # One address has one key, however it is written.
        (OURS, "::ffff:10.0.0.1", ["::ffff:203.0.113.9"], "ip:203.0.113.9"),
        (OURS, "10.0.0.1", ["::ffff:cb00:7109"], "ip:203.0.113.9"),
        (OURS, "10.0.0.1", ["[::ffff:203.0.113.9]:80"], "ip:203.0.113.9"),
        (OURS, "10.0.0.1", ["203.0.113.9:4711"], "ip:203.0.113.9"),
        (OURS, "10.0.0.1", ["[2001:db8:1:2ff::1]:443"], "ip:2001:db8:1:200::/56"),
        (OURS, "10.0.0.1", ["[2001:db8:1:2ff::1]"], "ip:2001:db8:1:200::/56"),
        (OURS, "10.0.0.1", ["2001:DB8:1:200:0:0:0:1"], "ip:2001:db8:1:200::/56"),
        (OURS, "10.0.0.1", ["fe80::1%eth0"], "ip:fe80::/56"),
        # These are no addresses, in one spelling or another.
        (OURS, "10.0.0.1", ["0x7f.1"], "ip:10.0.0.1"),
        (OURS, "10.0.0.1", ["203.0.113.009"], "ip:10.0.0.1"),
        (OURS, "10.0.0.1", ["[203.0.113.9]"], "ip:10.0.0.1"),
        (OURS, "10.0.0.1", ["[2001:db8::1]x"], "ip:10.0.0.1"),
        (OURS, "10.0.0.1", ["[2001:db8::1]:65536"], "ip:10.0.0.1"),
        (OURS, "10.0.0.1", ["[2001:db8::1]:"], "ip:10.0.0.1"),
        (OURS, "10.0.0.1", ["[2001:db8::1"], "ip:10.0.0.1"),
        (OURS, "10.0.0.1", ["203.0.113.9:"], "ip:10.0.0.1"),
        (OURS, "10.0.0.1", ["203.0.113.9:8o"], "ip:10.0.0.1"),
        (OURS, "10.0.0.1", ["203.0.113.9:99999999999999999999"], "ip:10.0.0.1"),
        (OURS, "10.0.0.1", ["203.0.113.9:0000099999"], "ip:10.0.0.1"),
        (OURS, "10.0.0.1", ["fe80::1%"], "ip:10.0.0.1"),
        (OURS, "10.0.0.1", ["203.0.113.9/32"], "ip:10.0.0.1"),
        # A Unix socket has no address.
        (OURS, "", ["203.0.113.9"], None),
    ],
)
def test_nobody_chooses_an_address(
    by: ClientAddress, peer: str, lines: list[str], expected: str | None
) -> None:
    assert by.key(peer, lines) == expected


def test_whatever_a_client_sends_changes_nothing() -> None:
    chance = random.Random(7)
    letters = "0123456789abcdef.:[]%, \txé\u0661"
    for _ in range(5000):
        sent = ["".join(chance.choices(letters, k=chance.randrange(30))) for _ in range(chance.randrange(4))]
        assert OURS.key("10.0.0.1", [*sent, "203.0.113.9, 10.0.0.2"]) == "ip:203.0.113.9", sent


@pytest.mark.parametrize(
    ("bits", "expected"),
    [(128, "2001:db8:1:2ff::1"), (64, "2001:db8:1:2ff::"), (48, "2001:db8:1::"), (1, "::")],
)
def test_prefixes_are_those_that_were_asked_for(bits: int, expected: str) -> None:
    assert ClientAddress(v6_prefix=bits).key("2001:db8:1:2ff::1") == f"ip:{expected}/{bits}"


def test_what_is_no_network_is_refused() -> None:
    for trusted in ([""], ["10.0.0.0/33"], ["proxy"], ["10.0.0"], ["10.0.0.1/8"], "10.0.0.0/8"):
        with pytest.raises(ValueError, match=r".+"):
            ClientAddress(trusted)
    for bits in (0, 129):
        with pytest.raises(ValueError, match="out of range"):
            ClientAddress(v6_prefix=bits)


def test_what_servers_tell_is_read() -> None:
    scope = {
        "client": ("10.0.0.1", 4711),
        "headers": [(b"x-forwarded-for", b"198.51.100.1"), (b"x-forwarded-for", b"203.0.113.9, 10.0.0.2")],
    }
    assert OURS.of_scope(scope) == "ip:203.0.113.9"
    assert OURS.of_scope({"client": None, "headers": []}) is None
    assert OURS.of_scope({"headers": []}) is None
    environ = {"REMOTE_ADDR": "10.0.0.1", "HTTP_X_FORWARDED_FOR": "198.51.100.1,203.0.113.9, 10.0.0.2"}
    assert OURS.of_environ(environ) == "ip:203.0.113.9"
    assert OURS.of_environ({}) is None
