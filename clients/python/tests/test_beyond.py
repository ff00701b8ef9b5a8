"""What SQL does not decide is refused by one error that says who does."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pymysql
import pytest

import tallygate
from tallygate import AsyncLimiter, Check, Limiter, aio
from tallygate.error import translate
from tallygate.http import AsyncHttpLimiter, HttpLimiter
from tallygate.refusal import of_error

from .conftest import Db

TXN = UUID(int=7)
TTL = timedelta(minutes=1)
CALLS: dict[str, Callable[[Any], Any]] = {
    "check_all": lambda face: face("check_all")([Check("login", "k")], TXN),
    "check_many": lambda face: face("check_many")([Check("login", "k")]),
    "reserve": lambda face: face("reserve")("card", "k", 1, TTL, critical=True),
    "settle": lambda face: face("settle")("card", "k", TXN, 1),
    "cancel": lambda face: face("cancel")("card", "k", TXN),
    "release": lambda face: face("release")("upload", "k", txn=TXN),
    "check with critical": lambda face: face("check")("login", "k", critical=True),
    "check with member": lambda face: face("check")("tried-cards", "k", member=""),
    "peek with member": lambda face: face("peek")("tried-cards", "k", member="a"),
}


def no_connection() -> Any:
    pytest.fail("it connected")


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "face",
    [
        lambda name: partial(getattr(tallygate, name), object()),
        lambda name: partial(getattr(aio, name), object()),
        partial(getattr, Limiter(no_connection)),
        partial(getattr, AsyncLimiter(no_connection)),
    ],
    ids=["joined", "asynchronous joined", "own", "asynchronous own"],
)
def test_it_is_refused_before_anything_is_sent(face: Any, call: str) -> None:
    with pytest.raises(
        tallygate.Invalid, match=f"^{call} needs the server: connect with an http:// "
    ) as told:
        answer = CALLS[call](face)
        if inspect.iscoroutine(answer):
            asyncio.run(answer)
    assert told.value.code is None


def test_a_server_has_what_sql_has_not() -> None:
    for kind in (HttpLimiter, AsyncHttpLimiter):
        for name in "check_all reserve settle cancel release".split():
            assert getattr(kind, name) is not getattr(Limiter, name)
        for name in ("check", "peek"):
            assert "member" in inspect.signature(getattr(kind, name)).parameters


@pytest.mark.parametrize("zone", ["tried-cards", "upload"])
def test_a_zone_that_is_not_plain_is_refused_by_the_database(
    db: Db, connection: Any, key: str, zone: str
) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: tallygate.check(connection, zone, key),
        lambda: tallygate.peek(connection, zone, key),
        lambda: db.limiter().check(zone, key),
    ]
    for call in calls:
        with pytest.raises(tallygate.Invalid, match="is not plain") as told:
            call()
        assert told.value.code == ("TG012" if db.is_postgres else "31012")
        connection.rollback()
    assert db.rows(key) == 0


def test_such_a_zone_is_the_operators_fault_and_not_the_clients() -> None:
    for error in (
        type("E", (psycopg.Error,), {"sqlstate": "TG012"})("the zone upload is not plain"),
        pymysql.err.OperationalError(31012, "the zone upload is not plain"),
    ):
        told = translate(error)
        assert type(told) is tallygate.Invalid
        refusal = of_error(told)
        assert refusal.status == 500
        assert b"upload" not in refusal.body
    assert of_error(tallygate.Invalid("the key is too long", "TG003")).status == 400
