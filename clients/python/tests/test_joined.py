"""Calls that join the caller's transaction."""

from __future__ import annotations

from datetime import timedelta, timezone
from typing import Any
from uuid import uuid4

import pytest

import tallygate

from .conftest import Db


def test_a_check_says_what_the_database_said(connection: Any, key: str) -> None:
    decision = tallygate.check(connection, "login", key, 2)
    assert decision.allowed
    assert (decision.zone, decision.key, decision.reason) == ("login", key, "within_limit")
    assert (decision.cost, decision.limit, decision.remaining, decision.seq) == (2, 3, 1, 1)
    assert decision.retry_after is None
    assert decision.delay == timedelta(0)
    assert decision.decided_at.tzinfo is timezone.utc
    assert not decision.replayed
    assert decision.id is not None


def test_what_is_rolled_back_leaves_no_row_and_spends_nothing(db: Db, connection: Any, key: str) -> None:
    assert tallygate.check(connection, "login", key, 3).allowed
    assert tallygate.check(connection, "login", key).blocked
    connection.rollback()
    assert db.rows(key) == 0
    assert tallygate.peek(connection, "login", key).remaining == 3
    connection.rollback()

    assert tallygate.check(connection, "login", key, 3).allowed
    connection.commit()
    assert db.rows(key) == 1
    assert tallygate.peek(connection, "login", key).remaining == 0


def test_the_same_transaction_spends_once(db: Db, connection: Any, key: str) -> None:
    txn = uuid4()
    first = tallygate.check(connection, "login", key, 2, txn)
    connection.commit()
    again = tallygate.check(connection, "login", key, 2, txn)
    connection.commit()
    assert (first.replayed, again.replayed) == (False, True)
    assert (first.txn_id, first.id, first.remaining) == (again.txn_id, again.id, again.remaining)
    assert first.txn_id == txn
    assert db.rows(key) == 1


def test_a_blocked_check_says_when_it_would_pass(connection: Any, key: str) -> None:
    first = tallygate.check(connection, "login", key, 3)
    blocked = tallygate.check(connection, "login", key)
    assert (blocked.allowed, blocked.reason) == (False, "over_limit")
    assert blocked.retry_after is not None
    assert blocked.decided_at + blocked.retry_after == first.decided_at + timedelta(minutes=15)
    never = tallygate.check(connection, "login", key, 4)
    assert (never.blocked, never.reason, never.retry_after) == (True, "exceeds_limit", None)


def test_a_zone_may_be_named_by_its_number(connection: Any, key: str) -> None:
    by_name = tallygate.check(connection, "login", key)
    assert by_name.zone_id is not None
    by_number = tallygate.check(connection, by_name.zone_id, key)
    assert (by_number.zone, by_number.remaining) == (str(by_name.zone_id), 1)


def test_what_was_spent_is_given_back_once(connection: Any, key: str) -> None:
    spent = tallygate.check(connection, "card", key, 250)
    refunded = tallygate.refund(connection, "card", key, spent.txn_id)
    assert (refunded.kind, refunded.cost, refunded.spent, refunded.remaining) == ("refund", 250, 0, 1000)
    assert (refunded.zone, refunded.key, refunded.txn_id) == ("card", key, spent.txn_id)
    assert (refunded.seq, refunded.replayed) == (2, False)
    assert refunded.recorded_at >= spent.decided_at
    again = tallygate.refund(connection, "card", key, spent.txn_id)
    assert (again.replayed, again.id, again.remaining) == (True, refunded.id, 1000)


def test_a_transaction_is_given_back_in_every_bucket(connection: Any, key: str) -> None:
    txn = uuid4()
    tallygate.check(connection, "card", key, 250, txn)
    tallygate.check(connection, "login", key, 2, txn)
    charges = tallygate.charges(connection, txn)
    assert {(each.zone, each.key, each.kind, each.spent, each.holds) for each in charges} == {
        ("card", key, "check", 250, False),
        ("login", key, "check", 2, False),
    }
    for charge in charges:
        assert tallygate.refund(connection, charge.zone, charge.key, txn).cost == charge.spent
    assert tallygate.peek(connection, "card", key).remaining == 1000
    assert tallygate.peek(connection, "login", key).remaining == 3


def test_a_peek_leaves_a_row_only_if_asked(db: Db, connection: Any, key: str) -> None:
    assert tallygate.peek(connection, "login", key).id is None
    recorded = tallygate.check(connection, "login", key, 0, record=True)
    connection.commit()
    assert (recorded.seq, recorded.remaining) == (1, 3)
    assert db.rows(key) == 1


def test_a_lock_is_waited_for_as_long_as_was_said(db: Db, connection: Any, key: str) -> None:
    tallygate.check(connection, "login", key)
    other = db.connect()
    with pytest.raises(tallygate.Transient) as caught:
        tallygate.check(other, "login", key, lock_wait=timedelta(milliseconds=50))
    assert caught.value.code == ("55P03" if db.is_postgres else "1205")
    other.close()


def test_a_snapshot_that_hides_rows_is_transient(db: Db, connection: Any, key: str) -> None:
    if db.is_postgres:
        return  # there each statement has a snapshot of its own
    tallygate.peek(connection, "login", key)
    db.limiter().check("login", key)
    with pytest.raises(tallygate.Transient) as caught:
        tallygate.check(connection, "login", key)
    assert caught.value.code in ("31007", "1020")  # MariaDB may see it first
    connection.rollback()
    assert tallygate.check(connection, "login", key).remaining == 1


def test_a_cursor_stands_for_its_connection(connection: Any, key: str) -> None:
    with connection.cursor() as cursor:
        assert tallygate.check(cursor, "login", key).remaining == 2
    connection.rollback()
    assert tallygate.peek(connection, "login", key).remaining == 3
