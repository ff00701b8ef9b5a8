"""Calls that join the caller's transaction."""

from __future__ import annotations

from datetime import timedelta, timezone
from typing import Any
from uuid import uuid4

import pytest

import tallygate
from tallygate import Check

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


def test_several_limits_pass_together_or_not_at_all(db: Db, connection: Any, key: str) -> None:
    txn = uuid4()
    checks = [Check("card", key, 400), Check("login", key, 2)]
    both = tallygate.check_all(connection, checks, txn)
    assert [(each.zone, each.allowed, each.remaining) for each in both] == [
        ("card", True, 600),
        ("login", True, 1),
    ]
    assert {each.txn_id for each in both} == {txn}
    again = tallygate.check_all(connection, checks, txn)
    assert [each.replayed for each in again] == [True, True]

    neither = tallygate.check_all(connection, checks)
    assert [each.reason for each in neither] == ["held_back", "over_limit"]
    connection.commit()
    assert db.rows(key) == 4


def test_checks_of_many_transactions_are_decided_in_their_order(connection: Any, key: str) -> None:
    txn = uuid4()
    checks = [Check("login", key, 2, txn), Check("login", key, 2), Check("card", key, 1), Check("login", key)]
    answers = tallygate.check_many(connection, checks)
    assert [(each.zone, each.blocked) for each in answers] == [
        ("login", False),
        ("login", True),
        ("card", False),
        ("login", False),
    ]
    assert answers[0].txn_id == txn
    assert tallygate.check_many(connection, []) == []


def test_a_zone_may_be_named_by_its_number(connection: Any, key: str) -> None:
    by_name = tallygate.check(connection, "login", key)
    assert by_name.zone_id is not None
    by_number = tallygate.check(connection, by_name.zone_id, key)
    assert (by_number.zone, by_number.remaining) == (str(by_name.zone_id), 1)


def test_a_reservation_is_settled_once(connection: Any, key: str) -> None:
    txn = uuid4()
    held = tallygate.reserve(connection, "card", key, 600, timedelta(minutes=10), txn)
    assert (held.remaining, held.ends_at) == (400, held.decided_at + timedelta(minutes=10))
    [charge] = tallygate.charges(connection, txn)
    assert (charge.zone, charge.key, charge.kind, charge.spent, charge.holds) == (
        "card",
        key,
        "reserve",
        600,
        True,
    )
    settled = tallygate.settle(connection, "card", key, txn, 540)
    assert (settled.kind, settled.cost, settled.spent, settled.remaining) == ("settle", 540, 0, 460)
    assert (settled.zone, settled.key, settled.txn_id, settled.seq) == ("card", key, txn, 2)
    again = tallygate.settle(connection, "card", key, txn, 540)
    assert (again.replayed, again.id) == (True, settled.id)
    with pytest.raises(tallygate.Conflict):
        tallygate.settle(connection, "card", key, txn, 541)


def test_what_was_taken_is_given_back(connection: Any, key: str) -> None:
    held = tallygate.reserve(connection, "card", key, 600, timedelta(minutes=10))
    assert tallygate.cancel(connection, "card", key, held.txn_id).remaining == 1000
    spent = tallygate.check(connection, "card", key, 250)
    refunded = tallygate.refund(connection, "card", key, spent.txn_id)
    assert (refunded.kind, refunded.cost, refunded.remaining) == ("refund", 250, 1000)
    slot = tallygate.check(connection, "upload", key)
    assert tallygate.release(connection, "upload", key, slot.txn_id).remaining == 2


def test_members_are_counted_once(connection: Any, key: str) -> None:
    for member, blocked in [("a", False), ("b", False), ("a", False), ("c", True)]:
        assert tallygate.check(connection, "tried-cards", key, member=member).blocked is blocked
    assert tallygate.peek(connection, "tried-cards", key, member="a").allowed


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


def test_a_cursor_stands_for_its_connection(connection: Any, key: str) -> None:
    with connection.cursor() as cursor:
        assert tallygate.check(cursor, "login", key).remaining == 2
    connection.rollback()
    assert tallygate.peek(connection, "login", key).remaining == 3
