"""The limiter for asynchronous programs."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any, TypeVar

from .asking import Asking, called_async
from .beyond import BeyondSql, require_sql
from .call import Call, How
from .driver import translated, unwrap_async
from .tries import Patience

T = TypeVar("T")


class AsyncLimiter(BeyondSql):
    """As `Limiter`, over asynchronous connections of psycopg 3.

    `connect` gives an asynchronous context manager (`pool.connection` of an `AsyncConnectionPool`,
    `engine.connect` of SQLAlchemy), or what gives one when it is awaited (`psycopg.AsyncConnection.connect`).
    A call that has no answer at its deadline is cancelled and raises Transient, which carries the
    transaction's id.
    """

    def __init__(
        self,
        connect: Callable[[], Any],
        *,
        deadline: timedelta = timedelta(seconds=5),
        attempts: int = 64,
    ) -> None:
        self._connect = connect
        self._patience = Patience(deadline, attempts)

    check = called_async(Asking.check)
    peek = called_async(Asking.peek)
    refund = called_async(Asking.refund)
    charges = called_async(Asking.charges)

    async def call(self, call: Call[T]) -> T:
        """As `Limiter.call`."""
        require_sql(call)

        async def once(left: timedelta) -> T:
            with translated():
                async with self._connection() as connection:
                    driver = await unwrap_async(connection)
                    return await driver.run_alone(call, How(own=True, lock_wait=left))

        return await self._patience.run_async(once, call.txn_id)

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        given = self._connect()
        # A connection of SQLAlchemy is a context manager and can be awaited; both would start it.
        if not hasattr(given, "__aenter__"):
            given = await given
        async with given as connection:
            yield connection
