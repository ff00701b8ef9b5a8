"""Whatever a key is, it is its own bucket or is refused, and nothing else happens."""

from __future__ import annotations

import contextlib
from typing import Any
from uuid import uuid4

import pytest

import tallygate

from .conftest import Db

KEPT = [
    "a'b",
    "''",
    "'; drop table zone_txn; --",
    '"quoted"',
    "back\\slash",
    "\\'",
    "\\",
    "%s %(key)s %d %%",
    "{} {0} $1 ? :key",
    "-- comment",
    "/* comment */",
    "`backtick`",
    " leading and trailing ",
    "ünïcødé",
    "u\u0308",  # not the same as ü
    "日本語",
    "🦀",
    "👩‍👩‍👧",
    "\u202eright to left",
    "﷽",
    "A",
    "a",
    "a ",
    "x" * 255,
    "é" * 127,
    "🦀" * 63,
    '{"zone_id": "card"}',
    "[1, 2]",
    "null",
    "0",
    "erased",
]

REFUSED = [
    "",
    "x" * 256,
    "é" * 128,
    "🦀" * 64,
    "x" * 5000,
    "nul \x00",
    "tab \t",
    "line \n",
    "delete \x7f",
    "c1 \x85",
    "lone \ud800",
    "erased:x",
]


@pytest.mark.parametrize("isolated", KEPT, ids=lambda text: ascii(text)[:20])
def test_a_key_is_its_own_bucket(db: Db, connection: Any, isolated: str) -> None:
    """Nothing is committed, so each run finds the bucket as it is: not there."""
    first = tallygate.check(connection, "card", isolated, 10)
    assert (first.key, first.remaining) == (isolated, 990)
    second = tallygate.check(connection, "card", isolated, 20)
    assert (second.key, second.remaining, second.seq) == (isolated, 970, 2)
    assert [each.key for each in tallygate.charges(connection, first.txn_id)] == [isolated]
    refunded = tallygate.refund(connection, "card", isolated, first.txn_id)
    assert (refunded.key, refunded.remaining) == (isolated, 980)
    assert tallygate.peek(connection, "card", isolated).remaining == 980


@pytest.mark.parametrize("refused", REFUSED, ids=lambda text: ascii(text)[:20])
def test_a_key_that_cannot_be_stored_is_invalid(db: Db, connection: Any, refused: str) -> None:
    with pytest.raises(tallygate.Invalid):
        tallygate.check(connection, "card", refused)
    connection.rollback()
    # Of a bucket that cannot be, MySQL and MariaDB say that nothing was spent.
    with contextlib.suppress(tallygate.Invalid):
        assert tallygate.peek(connection, "card", refused).remaining == 1000


@pytest.mark.parametrize(
    "zone", ["", "log'in", "login ", "LOGIN", "🦀", "x" * 2000, "nul \x00", "lone \ud800", "-1"]
)
def test_a_zone_that_is_not_there_is_unknown(db: Db, connection: Any, zone: str) -> None:
    with pytest.raises((tallygate.UnknownZone, tallygate.Invalid)):
        tallygate.check(connection, zone, "k")
    connection.rollback()
    with pytest.raises((tallygate.UnknownZone, tallygate.Invalid)):
        tallygate.refund(connection, zone, "k", uuid4())
