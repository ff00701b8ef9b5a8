"""The asynchronous twins, on psycopg."""

from __future__ import annotations

import asyncio
import inspect
import socket
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar
from uuid import uuid4

import psycopg
import psycopg_pool
import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import tallygate
from tallygate import AsyncLimiter, Limiter, aio
from tallygate.http import AsyncHttpLimiter, HttpLimiter

from .conftest import Db

T = TypeVar("T")
Run = Callable[[Callable[[Any], Awaitable[T]]], T]


@pytest.fixture
def run(postgres: Db) -> Run[Any]:
    """Runs a test with a connection that has no transaction open yet."""

    def run(test: Callable[[Any], Awaitable[Any]]) -> Any:
        async def connected() -> Any:
            connection = await psycopg.AsyncConnection.connect(**postgres.place)
            try:
                return await test(connection)
            finally:
                await connection.close()

        return asyncio.run(connected())

    return run


def test_what_joins_is_refused_without_a_transaction(run: Run[Any], key: str) -> None:
    async def test(connection: Any) -> None:
        await connection.set_autocommit(True)
        with pytest.raises(tallygate.Invalid, match="joins a transaction"):
            await aio.check(connection, "login", key)
        async with connection.transaction():
            assert (await aio.check(connection, "login", key)).allowed

    run(test)


def test_the_twins_have_the_same_names_and_arguments() -> None:
    for name in "check peek refund charges".split():
        assert inspect.signature(getattr(aio, name)) == inspect.signature(getattr(tallygate, name))
        assert inspect.iscoroutinefunction(getattr(aio, name))
        method = getattr(AsyncLimiter, name)
        assert inspect.signature(method) == inspect.signature(getattr(Limiter, name))
        assert inspect.iscoroutinefunction(method)
    for name in "check peek refund".split():
        assert inspect.signature(getattr(HttpLimiter, name)) == inspect.signature(getattr(Limiter, name))
    for name in (
        "check check_all peek reserve settle cancel refund release history transaction explain bucket".split()
    ):
        method = getattr(AsyncHttpLimiter, name)
        assert inspect.signature(method) == inspect.signature(getattr(HttpLimiter, name))
        assert inspect.iscoroutinefunction(method)


def test_what_is_rolled_back_leaves_no_row_and_spends_nothing(postgres: Db, run: Run[None], key: str) -> None:
    async def test(connection: Any) -> None:
        assert (await aio.check(connection, "login", key, 3)).allowed
        await connection.rollback()
        assert postgres.rows(key) == 0
        async with connection.cursor() as cursor:
            assert (await aio.check(cursor, "login", key, 2)).remaining == 1
        await connection.commit()
        assert (await aio.peek(connection, "login", key)).remaining == 1

    run(test)
    assert postgres.rows(key) == 1


def test_each_call_is_there(run: Run[None], key: str) -> None:
    async def test(c: Any) -> None:
        txn = uuid4()
        assert (await aio.check(c, "card", key, 100, txn)).allowed
        assert (await aio.check(c, "login", key, 3, txn)).allowed
        assert (await aio.check(c, "login", key)).blocked
        assert (await aio.check(c, "login", key, 0, record=True)).seq == 3
        assert {each.zone for each in await aio.charges(c, txn)} == {"card", "login"}
        assert (await aio.refund(c, "card", key, txn)).remaining == 1000
        assert (await aio.peek(c, "login", key)).remaining == 0
        with pytest.raises(tallygate.UnknownZone):
            await aio.check(c, "nowhere", key)

    run(test)


def test_a_synchronous_connection_is_no_asynchronous_one(postgres: Db, run: Run[None], key: str) -> None:
    async def test(connection: Any) -> None:
        with pytest.raises(TypeError):
            tallygate.check(connection, "login", key)
        with postgres.connect() as other, pytest.raises(TypeError):
            await aio.check(other, "login", key)

    run(test)


def test_many_tasks_get_exactly_the_limit(postgres: Db, key: str) -> None:
    async def test() -> None:
        kwargs = postgres.place
        async with psycopg_pool.AsyncConnectionPool(
            kwargs=kwargs, min_size=1, max_size=8, open=False
        ) as pool:
            limiter = AsyncLimiter(pool.connection, deadline=timedelta(seconds=30))
            answers = await asyncio.gather(*(limiter.check("twenty", key) for _ in range(64)))
            assert sum(answer.allowed for answer in answers) == 20

    asyncio.run(test())
    assert postgres.rows(key) == 64


def test_an_answer_that_was_lost_is_asked_for_again_and_charged_once(postgres: Db, key: str) -> None:
    class Losing:
        """A connection that breaks after the first answer was committed."""

        calls = 0

        async def __aenter__(self) -> Any:
            Losing.calls += 1
            self.connection = await psycopg.AsyncConnection.connect(**postgres.place, autocommit=True)
            return self.connection

        async def __aexit__(self, *_: Any) -> None:
            await self.connection.close()
            if Losing.calls == 1:
                raise psycopg.OperationalError("the connection is lost")

    decision = asyncio.run(AsyncLimiter(Losing).check("login", key, 2))
    assert (Losing.calls, decision.replayed, decision.remaining) == (2, True, 1)
    assert postgres.rows(key) == 1


def test_a_held_bucket_is_given_up_at_the_deadline(postgres: Db, run: Run[None], key: str) -> None:
    async def test(connection: Any) -> None:
        await aio.check(connection, "login", key)
        txn = uuid4()

        def connect() -> Any:
            return psycopg.AsyncConnection.connect(**postgres.place, autocommit=True)

        limiter = AsyncLimiter(connect, deadline=timedelta(milliseconds=300))
        with pytest.raises(tallygate.Transient) as caught:
            await limiter.check("login", key, txn=txn)
        assert caught.value.txn_id == txn
        await connection.rollback()
        assert (await limiter.check("login", key, txn=txn)).remaining == 2

        await aio.check(connection, "login", key)
        with pytest.raises(tallygate.Invalid, match="open transaction"):
            await AsyncLimiter(lambda: Lent(connection)).check("login", key)

    run(test)


class Lent:
    """A connection that its taker does not close."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def __aenter__(self) -> Any:
        return self.connection

    async def __aexit__(self, *_: Any) -> None:
        pass


def test_a_database_that_says_nothing_is_given_up_at_the_deadline(key: str) -> None:
    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]

            def connect() -> Any:
                return psycopg.AsyncConnection.connect(host="127.0.0.1", port=port, user="x")

            with pytest.raises(tallygate.Transient, match=r"no answer within 0\.2 s"):
                await AsyncLimiter(connect, deadline=timedelta(seconds=0.2)).check("login", key)

    asyncio.run(test())


def test_sqlalchemy_joins_and_lends(postgres: Db, key: str) -> None:
    async def test() -> None:
        engine = create_async_engine(postgres.url("postgresql+psycopg"))
        async with AsyncSession(engine) as session:
            assert (await aio.check(session, "login", key)).remaining == 2
            await session.rollback()
        async with AsyncSession(engine) as session, session.begin():
            assert (await aio.check(session, "login", key)).remaining == 2
        async with engine.connect() as connection:
            assert (await aio.check(connection, "login", key)).remaining == 1
            await connection.commit()
            await aio.check(connection, "login", key)
        limiter = AsyncLimiter(engine.connect)
        assert (await limiter.check("login", key)).remaining == 0
        assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
        await engine.dispose()

    asyncio.run(test())
    assert postgres.rows(key) == 3
