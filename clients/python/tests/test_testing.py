"""The clock of a database of tests."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
import sqlalchemy

import tallygate
from tallygate.testing import Clock

from .conftest import Db

AT = datetime(2040, 2, 29, 12, tzinfo=timezone(timedelta(hours=1)))


@pytest.fixture
def owner(clocked: Db) -> Iterator[Any]:
    connection = clocked.connect_owner()
    yield connection
    connection.close()


def test_a_window_passes_without_waiting(clocked: Db, owner: Any, key: str) -> None:
    clock, limiter = Clock(owner), clocked.limiter()
    clock.set(AT)
    first = limiter.check("login", key, 3)
    assert (first.allowed, first.decided_at) == (True, AT)
    wait = timedelta(minutes=15)
    assert limiter.check("login", key).retry_after == wait
    clock.advance(wait - timedelta(microseconds=1))
    assert limiter.check("login", key).blocked
    clock.advance(timedelta(microseconds=1))
    assert limiter.check("login", key).decided_at == AT + wait
    with clocked.connect() as connection:
        assert tallygate.peek(connection, "login", key).decided_at == AT + wait


def test_what_is_moved_is_committed_on_any_connection(clocked: Db, owner: Any, key: str) -> None:
    scheme = "postgresql+psycopg" if clocked.is_postgres else "mysql+pymysql"
    engine = sqlalchemy.create_engine(f"{scheme}://", creator=clocked.connect_owner)
    with engine.connect() as connection, owner.cursor() as cursor:
        for clock in (Clock(connection), Clock(cursor)):
            clock.set(AT)
            clock.advance(timedelta(days=400))
            assert clocked.limiter().peek("login", key).decided_at == AT + timedelta(days=400)
    engine.dispose()


def test_nobody_but_the_owner_moves_it(clocked: Db) -> None:
    with clocked.connect() as connection, pytest.raises(tallygate.Refused):
        Clock(connection).advance(timedelta(seconds=1))


def test_no_other_database_has_such_a_clock(db: Db) -> None:
    with db.connect_owner() as owner, pytest.raises(tallygate.Invalid, match="--test-clock"):
        Clock(owner).set(AT)


def test_a_time_has_a_zone(owner: Any) -> None:
    with pytest.raises(ValueError, match="without a zone"):
        Clock(owner).set(AT.replace(tzinfo=None))
