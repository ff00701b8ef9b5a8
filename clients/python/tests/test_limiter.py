"""Limiters in transactions of their own."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import psycopg_pool
import pymysql
import pytest
import sqlalchemy

import tallygate
from tallygate import Limiter
from tallygate.error import translate

from .conftest import Db


def test_what_it_answers_is_committed(db: Db, key: str) -> None:
    limiter = db.limiter()
    for autocommit in (True, False):
        plain = Limiter(lambda autocommit=autocommit: db.connect(autocommit=autocommit))  # type: ignore[misc]
        assert plain.check("card", key, 100).allowed
    assert db.rows(key) == 2
    assert limiter.peek("card", key).remaining == 800


def test_each_call_is_there(db: Db, key: str) -> None:
    limiter = db.limiter()
    assert limiter.check("login", key, 3).remaining == 0
    assert limiter.check("login", key).blocked
    assert limiter.peek("card", key).remaining == 1000
    spent = limiter.check("card", key, 99)
    assert [(each.zone, each.spent) for each in limiter.charges(spent.txn_id)] == [("card", 99)]
    assert limiter.refund("card", key, spent.txn_id).remaining == 1000
    assert limiter.refund("card", key, spent.txn_id).replayed
    assert limiter.check("card", key, 0, record=True).seq == 3


def test_sixteen_threads_get_exactly_the_limit(db: Db, key: str) -> None:
    limiter = db.limiter(deadline=timedelta(seconds=30))
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda _: limiter.check("twenty", key), range(64)))
    assert sum(answer.allowed for answer in answers) == 20
    assert sorted(answer.seq or 0 for answer in answers) == list(range(1, 65))
    assert db.rows(key) == 64


def test_waiting_as_long_as_was_said_is_enough(db: Db, key: str) -> None:
    limiter = db.limiter()
    assert limiter.check("quick", key).allowed
    blocked = limiter.check("quick", key)
    assert blocked.retry_after is not None
    assert timedelta(0) < blocked.retry_after <= timedelta(milliseconds=200)
    time.sleep(blocked.retry_after.total_seconds())
    assert limiter.check("quick", key).allowed


@pytest.fixture
def made() -> Iterator[list[Any]]:
    """The connections that a test has made, closed at its end."""
    connections: list[Any] = []
    yield connections
    for connection in connections:
        with contextlib.suppress(pymysql.Error):
            connection.close()


class Failing:
    """A connection that fails where the test says, once the server has done or not done what it was asked."""

    def __init__(self, db: Db, failures: list[tuple[str, BaseException]]) -> None:
        self.db = db
        self.failures = failures
        self.calls = 0

    @contextlib.contextmanager
    def __call__(self) -> Iterator[Any]:
        self.calls += 1
        with self.db.connect(autocommit=True) as connection:
            if self.failures and self.failures[0][0] == "before":
                raise self.failures.pop(0)[1]
            yield connection
            if self.failures:
                raise self.failures.pop(0)[1]


def test_an_answer_that_was_lost_is_asked_for_again_and_charged_once(db: Db, key: str) -> None:
    lost = psycopg.OperationalError("the connection is lost")
    connect = Failing(db, [("after", lost), ("before", lost), ("after", lost)])
    decision = Limiter(connect).check("login", key, 2)
    assert connect.calls == 4
    assert (decision.allowed, decision.replayed, decision.remaining) == (True, True, 1)
    assert db.rows(key) == 1


def test_a_refund_whose_answer_was_lost_gives_back_once(db: Db, key: str) -> None:
    lost = psycopg.OperationalError("the connection is lost")
    txn = db.limiter().check("card", key, 10).txn_id
    refunded = Limiter(Failing(db, [("after", lost)])).refund("card", key, txn)
    assert (refunded.replayed, refunded.remaining) == (True, 1000)
    assert db.rows(key) == 2


def test_what_is_not_transient_is_not_tried_again(db: Db, key: str) -> None:
    connect = Failing(db, [])
    with pytest.raises(tallygate.UnknownZone):
        Limiter(connect).check("nowhere", key)
    assert connect.calls == 1


class Watched(Limiter):
    """A limiter that tells with which codes its attempts ended."""

    def __init__(self, connect: Any) -> None:
        super().__init__(connect, deadline=timedelta(seconds=30))
        self.codes: list[str] = []

    def attempt(self, work: Any, txn: Any = None) -> Any:
        def watched(driver: Any, left: timedelta) -> Any:
            try:
                return work(driver, left)
            except Exception as error:
                ours = translate(error)
                self.codes.append(ours.code or "" if ours else "")
                raise

        return super().attempt(watched, txn)


def test_a_deadlock_is_transient_and_decided_once_when_it_is_run_again(db: Db, key: str) -> None:
    """Each of two transactions has one bucket and wants the other's; the server ends one of them."""
    buckets = [f"{key}:1", f"{key}:2"]
    both_have_one = threading.Barrier(2, timeout=30)

    def pay(buckets: list[str]) -> list[str]:
        """Checks both under the same ids until it is committed. Answers with the codes of its errors."""
        codes: list[str] = []
        txns = [uuid4(), uuid4()]
        with db.connect() as connection:
            while True:
                try:
                    tallygate.check(connection, "card", buckets[0], 5, txns[0])
                    if not codes:
                        both_have_one.wait()
                    tallygate.check(connection, "card", buckets[1], 5, txns[1])
                    connection.commit()
                    return codes
                except tallygate.Transient as error:
                    codes.append(error.code or "")
                    connection.rollback()

    for bucket in buckets:
        db.limiter().check("card", bucket)
    with ThreadPoolExecutor(2) as threads:
        codes = {code for codes in threads.map(pay, [buckets, buckets[::-1]]) for code in codes}
    assert ("40P01" if db.is_postgres else "1213") in codes
    for bucket in buckets:
        assert db.rows(bucket) == 3
        assert db.limiter().peek("card", bucket).remaining == 1000 - 1 - 5 - 5


def test_a_serialization_failure_is_tried_again_and_decided_once(postgres: Db, key: str) -> None:
    """Sixteen at once, each serializable: whoever read what another changed is refused with 40001."""

    def connect() -> Any:
        connection = postgres.connect()
        connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        return connection

    limiter = Watched(tallygate.kept(connect))
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda _: limiter.check("twenty", key), range(48)))
    assert sum(answer.allowed for answer in answers) == 20
    assert postgres.rows(key) == 48
    assert set(limiter.codes) == {"40001"}


def test_a_held_bucket_is_given_up_at_the_deadline(db: Db, connection: Any, key: str) -> None:
    tallygate.check(connection, "login", key)
    began = time.monotonic()
    txn = uuid4()
    with pytest.raises(tallygate.Transient) as caught:
        db.limiter(deadline=timedelta(seconds=0.5)).check("login", key, txn=txn)
    assert caught.value.txn_id == txn
    assert time.monotonic() - began < 4
    connection.rollback()
    assert db.limiter().check("login", key, txn=txn).remaining == 2


def test_a_connection_with_an_open_transaction_is_refused(db: Db, connection: Any, key: str) -> None:
    tallygate.check(connection, "login", key)
    with pytest.raises(tallygate.Invalid, match="open transaction"):
        Limiter(lambda: contextlib.nullcontext(connection)).check("login", key)
    connection.rollback()
    assert db.rows(key) == 0


def test_a_database_that_is_not_there_is_transient(db: Db, key: str) -> None:
    away = Db(db.engine, db.owner_url.rsplit(":", 1)[0] + ":1/tg")
    with pytest.raises(tallygate.Transient):
        away.limiter(deadline=timedelta(milliseconds=100)).check("login", key)


def test_a_password_that_is_missing_is_refused_at_once(postgres: Db) -> None:
    calls = 0

    def connect() -> Any:
        nonlocal calls
        calls += 1
        return psycopg.connect(**{**postgres.place, "password": None})

    with pytest.raises(tallygate.Refused):
        Limiter(connect).check("login", "ann")
    assert calls == 1


def test_a_kept_connection_is_used_again_until_an_error(db: Db, key: str, made: list[Any]) -> None:
    def connect() -> Any:
        made.append(db.connect(autocommit=True))
        return made[-1]

    limiter = Limiter(tallygate.kept(connect))
    for _ in range(3):
        limiter.check("login", key)
    assert len(made) == 1
    with pytest.raises(tallygate.UnknownZone):
        limiter.check("nowhere", key)
    assert limiter.check("login", key).blocked
    assert len(made) == 2
    with ThreadPoolExecutor(1) as other:
        other.submit(limiter.check, "login", key).result()
    assert len(made) == 3


def test_a_forked_process_leaves_its_parents_connection_alone(db: Db, key: str, made: list[Any]) -> None:
    parent = os.getpid()

    def connect() -> Any:
        made.append((os.getpid(), db.connect(autocommit=True)))
        return made[-1][1]

    limiter = Limiter(tallygate.kept(connect))
    limiter.check("login", key)
    child = os.fork()
    if child == 0:
        try:
            remaining = limiter.check("login", key).remaining
            del limiter
            gc.collect()
            os._exit(remaining)  # of the child's own connection
        finally:
            os._exit(77)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 1
    assert limiter.check("login", key).remaining == 0
    assert [process for process, _ in made] == [parent]
    made[:] = [connection for _, connection in made]


def test_a_connection_that_broke_meanwhile_is_replaced(db: Db, key: str, made: list[Any]) -> None:
    def connect() -> Any:
        made.append(db.connect(autocommit=True))
        return made[-1]

    limiter = Limiter(tallygate.kept(connect))
    limiter.check("login", key)
    if db.is_postgres:
        db.owner("select pg_terminate_backend(%s)", made[0].info.backend_pid)
    else:
        db.owner("kill %s", made[0].thread_id())
    assert limiter.check("login", key).remaining == 1
    assert len(made) == 2


def test_a_pool_of_psycopg_works(postgres: Db, key: str) -> None:
    with psycopg_pool.ConnectionPool(kwargs=postgres.place, min_size=1, max_size=4, open=True) as pool:
        limiter = Limiter(pool.connection)
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda _: limiter.check("login", key), range(16)))
        assert sum(answer.allowed for answer in answers) == 3
        with pytest.raises(tallygate.UnknownZone):
            limiter.check("nowhere", key)
    assert postgres.rows(key) == 16


def test_an_engine_of_sqlalchemy_is_a_pool(db: Db, key: str) -> None:
    engine = sqlalchemy.create_engine(
        db.url("postgresql+psycopg" if db.is_postgres else "mysql+pymysql"), pool_size=4
    )
    limiter = Limiter(engine.connect)
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: limiter.check("login", key), range(16)))
    assert sum(answer.allowed for answer in answers) == 3
    with pytest.raises(tallygate.UnknownZone):
        limiter.check("nowhere", key)
    assert db.rows(key) == 16
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    engine.dispose()


def test_a_routine_that_is_being_replaced_is_tried_again(db: Db, key: str) -> None:
    if db.is_postgres:
        return  # there a routine is put in another's place in one step
    connect = Failing(
        db, [("before", pymysql.OperationalError(n, "gone for a moment")) for n in (1305, 1370)]
    )
    assert Limiter(connect).check("login", key).allowed
    assert connect.calls == 3
    failures: list[tuple[str, BaseException]] = [
        ("before", pymysql.OperationalError(1305, "there is no such routine")) for _ in range(20)
    ]
    connect = Failing(db, failures)
    with pytest.raises(tallygate.Schema):
        Limiter(connect).check("login", key)
    assert connect.calls == 8
