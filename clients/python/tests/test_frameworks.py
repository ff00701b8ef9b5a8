"""Transactions of Django and SQLAlchemy are joined."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import django
import pymysql
import pytest
import sqlalchemy
from django.conf import settings
from django.db import connections, transaction
from django.db.utils import load_backend
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import tallygate

from .conftest import Db

pymysql.install_as_MySQLdb()
settings.configure(DATABASES={}, USE_TZ=False, TIME_ZONE="Asia/Kathmandu")
django.setup()


@pytest.fixture
def alias(db: Db) -> Iterator[str]:
    """A database of Django's, by its name."""
    place = db.place
    settings = {
        "ENGINE": "django.db.backends." + ("postgresql" if db.is_postgres else "mysql"),
        "NAME": place["dbname" if db.is_postgres else "database"],
        **{name.upper(): place[name] for name in ("host", "port", "user", "password")},
    }
    connections.settings[db.engine] = connections.configure_settings({"default": {}, db.engine: settings})[
        db.engine
    ]
    yield db.engine
    connections[db.engine].close()
    del connections[db.engine]


def test_django_commits_and_takes_back(db: Db, alias: str, key: str) -> None:
    assert load_backend(connections[alias].settings_dict["ENGINE"])

    class Broken(Exception):
        pass

    def pay(cost: int) -> None:
        with transaction.atomic(using=alias):
            assert tallygate.check(connections[alias], "card", key, cost).allowed
            if cost > 500:
                raise Broken

    with pytest.raises(Broken):
        pay(600)
    assert db.rows(key) == 0
    pay(300)
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        assert tallygate.check(cursor, "card", key, 100).remaining == 600
    assert db.rows(key) == 2


def test_django_savepoints_take_back(db: Db, alias: str, key: str) -> None:
    with transaction.atomic(using=alias):
        tallygate.check(connections[alias], "card", key, 100)
        with pytest.raises(tallygate.UnknownZone), transaction.atomic(using=alias):
            tallygate.check(connections[alias], "card", key, 200)
            tallygate.check(connections[alias], "nowhere", key)
        assert tallygate.peek(connections[alias], "card", key).remaining == 900
    assert db.rows(key) == 1


def test_times_are_utc_whatever_django_says(db: Db, alias: str, key: str) -> None:
    with transaction.atomic(using=alias):
        spent = tallygate.check(connections[alias], "card", key)
        refunded = tallygate.refund(connections[alias], "card", key, spent.txn_id)
    for told in (spent.decided_at, refunded.recorded_at):
        assert abs(datetime.now(timezone.utc) - told) < timedelta(seconds=10)


def test_a_transaction_that_django_gave_up_is_refused(alias: str, key: str) -> None:
    with (
        pytest.raises(transaction.TransactionManagementError),
        transaction.atomic(using=alias),
    ):
        transaction.set_rollback(True, using=alias)
        tallygate.check(connections[alias], "card", key)


@pytest.fixture
def engine(db: Db) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(db.url("postgresql+psycopg" if db.is_postgres else "mysql+pymysql"))
    yield engine
    engine.dispose()


def test_a_session_of_sqlalchemy_commits_and_takes_back(db: Db, engine: sqlalchemy.Engine, key: str) -> None:
    with Session(engine) as session:
        assert tallygate.check(session, "card", key, 600).remaining == 400
        session.rollback()
        assert db.rows(key) == 0
        assert tallygate.check(session, "card", key, 300).remaining == 700
        session.commit()
        tallygate.check(session, "card", key, 300)
    with Session(engine) as session, session.begin():
        assert tallygate.check(session, "card", key, 100).remaining == 600
    scoped = scoped_session(sessionmaker(engine))
    assert tallygate.peek(scoped, "card", key).remaining == 600
    scoped.remove()
    assert db.rows(key) == 2


def test_a_connection_of_sqlalchemy_commits_and_takes_back(
    db: Db, engine: sqlalchemy.Engine, key: str
) -> None:
    with engine.connect() as connection:
        tallygate.check(connection, "card", key, 600)
        connection.rollback()
        tallygate.check(connection, "card", key, 300)
        connection.commit()
        tallygate.check(connection, "card", key, 300)
    with engine.begin() as connection:
        assert tallygate.check(connection, "card", key, 100).remaining == 600
    assert db.rows(key) == 2


def test_what_fails_in_a_session_leaves_it_to_be_rolled_back(
    db: Db, engine: sqlalchemy.Engine, key: str
) -> None:
    with Session(engine) as session:
        tallygate.check(session, "card", key, 600)
        with pytest.raises(tallygate.UnknownZone):
            tallygate.check(session, "nowhere", key)
        session.rollback()
        assert tallygate.check(session, "card", key, 1).remaining == 999
        session.commit()
    assert db.rows(key) == 1


def test_another_driver_is_said_to_be_unknown(key: str) -> None:
    with sqlalchemy.create_engine("sqlite://").connect() as connection:
        other: Any = connection
        with pytest.raises(TypeError, match="sqlite3"):
            tallygate.check(other, "card", key)
