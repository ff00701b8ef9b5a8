"""Whatever a key is, it is its own bucket or is refused, and nothing else happens."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

import tallygate
from tallygate import Check

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
    [second] = tallygate.check_all(connection, [Check("card", isolated, 20)])
    assert (second.key, second.remaining) == (isolated, 970)
    [third] = tallygate.check_many(connection, [Check("card", isolated, 30)])
    assert (third.key, third.remaining, third.seq) == (isolated, 940, 3)
    undone = tallygate.refund(connection, "card", isolated, first.txn_id)
    assert (undone.key, undone.remaining) == (isolated, 950)
    assert [each.key for each in tallygate.charges(connection, first.txn_id)] == [isolated]
    member = tallygate.check(connection, "tried-cards", isolated, member=isolated)
    again = tallygate.check(connection, "tried-cards", isolated, member=isolated)
    assert (member.remaining, again.remaining) == (1, 1)


@pytest.mark.parametrize("refused", REFUSED, ids=lambda text: ascii(text)[:20])
def test_a_key_that_cannot_be_stored_is_invalid(db: Db, connection: Any, refused: str) -> None:
    calls: list[Any] = [
        lambda: tallygate.check(connection, "card", refused),
        lambda: tallygate.check_all(connection, [Check("card", refused)]),
        lambda: tallygate.check_many(connection, [Check("card", refused)]),
    ]
    if not refused.startswith("erased:"):  # a member may be called so
        calls.append(lambda: tallygate.check(connection, "tried-cards", "k", member=refused))
    for call in calls:
        with pytest.raises(tallygate.Invalid):
            call()
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
        tallygate.check_all(connection, [Check(zone, "k")])
