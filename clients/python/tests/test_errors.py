"""Each error has its class, the database's own words, its code, and the driver's error as its cause."""

from __future__ import annotations

import subprocess
import sys
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pymysql
import pytest

import tallygate
from tallygate.error import translate

from .conftest import Db


@pytest.mark.parametrize(
    ("kind", "codes", "words", "arguments"),
    [
        (tallygate.UnknownZone, ("TG001", "31001"), "there is no zone nowhere", ("nowhere", "k")),
        (tallygate.UnknownZone, ("TG001", "31001"), "77777", (77777, "k")),
        (tallygate.Invalid, ("TG003", "31003"), "cost -1 is out of range", ("login", "k", -1)),
        (
            tallygate.Invalid,
            ("TG003", "31003"),
            "cost 1099511627777 is out of range",
            ("login", "k", 2**40 + 1),
        ),
        (tallygate.Invalid, ("TG003", "31003"), "nil UUID", ("login", "k", 1, UUID(int=0))),
    ],
)
def test_what_is_wrong_says_so(
    connection: Any, db: Db, kind: type[Exception], codes: tuple[str, str], words: str, arguments: Any
) -> None:
    with pytest.raises(kind, match=words) as caught:
        tallygate.check(connection, *arguments)
    assert isinstance(caught.value, tallygate.TallygateError)
    assert caught.value.code == codes[0 if db.is_postgres else 1]
    assert isinstance(caught.value.__cause__, (psycopg.Error, pymysql.Error))


def test_another_cost_is_a_conflict(connection: Any, key: str) -> None:
    txn = uuid4()
    tallygate.check(connection, "login", key, 2, txn)
    with pytest.raises(tallygate.Conflict, match="2") as caught:
        tallygate.check(connection, "login", key, 1, txn)
    assert caught.value.code in ("TG002", "31002")
    connection.rollback()
    with pytest.raises(tallygate.TallygateError):
        tallygate.refund(connection, "login", key, txn)


def test_numbers_beyond_all_bounds_are_invalid(connection: Any, key: str) -> None:
    for cost in (2**63, 2**64, 10**30, -(2**63) - 1):
        with pytest.raises(tallygate.Invalid):
            tallygate.check(connection, "login", key, cost)
        connection.rollback()


def test_what_is_of_another_type_never_reaches_the_database(connection: Any, key: str) -> None:
    wrong: list[dict[str, Any]] = [
        {"cost": 1.5},
        {"cost": "1"},
        {"key": b"bytes"},
        {"key": 7},
        {"zone": None},
        {"txn": str(uuid4())},
        {"member": 7},
    ]
    for arguments in wrong:
        with pytest.raises(TypeError):
            tallygate.check(connection, **{"zone": "login", "key": key, **arguments})
    with pytest.raises(TypeError):
        tallygate.refund(connection, "login", key, str(uuid4()))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        tallygate.check(object(), "login", key)


def test_what_joins_is_refused_without_a_transaction(db: Db, key: str) -> None:
    with db.connect(autocommit=True) as connection:
        with pytest.raises(tallygate.Invalid, match="joins a transaction") as caught:
            tallygate.check(connection, "login", key)
        assert caught.value.code == "31006"
        assert tallygate.charges(connection, uuid4()) == []


def test_who_lacks_the_right_is_refused(db: Db) -> None:
    with db.connect() as connection, connection.cursor() as cursor:
        with pytest.raises(Exception, match="denied") as caught:
            cursor.execute("select * from zone_txn")
        assert isinstance(translate(caught.value), tallygate.Refused)


def test_a_database_that_is_not_migrated_says_so(db: Db, key: str) -> None:
    """Another schema, where no routine is."""
    with db.connect() as connection:
        with connection.cursor() as cursor:
            cursor.execute("set search_path to nowhere" if db.is_postgres else "use information_schema")
        with pytest.raises((tallygate.Schema, tallygate.Refused)) as caught:
            tallygate.check(connection, "login", key)
        # who has no right in a schema is not told on MySQL whether the routine is there
        assert caught.value.code in ("42883", "1305", "1044", "1370")


def test_a_closed_connection_is_transient(db: Db, key: str) -> None:
    connection = db.connect()
    connection.close()
    with pytest.raises(tallygate.Transient):
        tallygate.check(connection, "login", key)


@pytest.mark.parametrize("code", "40001 40P01 55P03 57014 57P01 08006 08P01 53300 25006".split())
def test_what_is_worth_trying_again_is_transient_on_postgres(code: str) -> None:
    kind = psycopg.errors.lookup(code) if code != "08P01" else type("E", (psycopg.Error,), {"sqlstate": code})
    assert isinstance(translate(kind("x")), tallygate.Transient)


@pytest.mark.parametrize("number", [1205, 1213, 1020, 31007, 1317, 1568, 2006, 2013, 3024, 1969])
def test_what_is_worth_trying_again_is_transient_on_mysql(number: int) -> None:
    translated = translate(pymysql.err.OperationalError(number, "the words of the server"))
    assert isinstance(translated, tallygate.Transient)
    assert (str(translated), translated.code) == ("the words of the server", str(number))


def test_what_no_database_said_stays_what_it_is() -> None:
    assert translate(ValueError("x")) is None
    assert type(translate(psycopg.errors.DivisionByZero("x"))) is tallygate.TallygateError
    assert type(translate(pymysql.err.ProgrammingError(1064, "x"))) is tallygate.TallygateError


def test_a_deadline_of_another_type_is_refused_by_its_remedy() -> None:
    with pytest.raises(TypeError, match=r"timedelta\(seconds=2\)"):
        tallygate.Limiter(lambda: pytest.fail("it connected"), deadline=2)  # type: ignore[arg-type]


def test_an_extra_that_is_not_installed_is_named() -> None:
    without = "import sys; sys.modules['httpx'] = None; import tallygate.http"
    ended = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "tallygate.http needs httpx: pip install 'tallygate[http]'" in ended.stderr
