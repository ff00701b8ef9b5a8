"""The limiter for asynchronous programs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from .call import Call, Charges, CheckAll, CheckMany, CheckOne, How, Undo
from .checks import Check, new_txn
from .decision import Charge, Decision, Recorded
from .driver import translated, unwrap_async
from .error import TallygateError, Transient
from .tries import Tries

T = TypeVar("T")


class AsyncLimiter:
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
        self._deadline = deadline
        self._attempts = attempts

    async def check(
        self,
        zone: str | int,
        key: str,
        cost: int = 1,
        txn: UUID | None = None,
        *,
        critical: bool = False,
        member: str | None = None,
        record: bool = False,
    ) -> Decision:
        """As `Limiter.check`."""
        return await self.call(CheckOne(Check(zone, key, cost, txn or new_txn(), critical, member, record)))

    async def check_all(self, checks: Iterable[Check], txn: UUID | None = None) -> list[Decision]:
        """As `Limiter.check_all`."""
        return await self.call(CheckAll(tuple(checks), txn or new_txn()))

    async def check_many(self, checks: Iterable[Check]) -> list[Decision]:
        """As `Limiter.check_many`."""
        return await self.call(CheckMany.of(tuple(checks)))

    async def peek(self, zone: str | int, key: str, *, member: str | None = None) -> Decision:
        """As `Limiter.peek`."""
        return await self.call(CheckOne(Check(zone, key, cost=0, member=member)))

    async def reserve(
        self,
        zone: str | int,
        key: str,
        cost: int,
        ttl: timedelta,
        txn: UUID | None = None,
        *,
        critical: bool = False,
    ) -> Decision:
        """As `Limiter.reserve`."""
        return await self.call(CheckOne(Check(zone, key, cost, txn or new_txn(), critical, ttl=ttl)))

    async def settle(self, zone: str | int, key: str, txn: UUID, cost: int) -> Recorded:
        """As `Limiter.settle`."""
        return await self.call(Undo(zone, key, txn, "settle", cost))

    async def cancel(self, zone: str | int, key: str, txn: UUID) -> Recorded:
        """As `Limiter.cancel`."""
        return await self.call(Undo(zone, key, txn, "cancel"))

    async def refund(self, zone: str | int, key: str, txn: UUID) -> Recorded:
        """As `Limiter.refund`."""
        return await self.call(Undo(zone, key, txn, "refund"))

    async def release(self, zone: str | int, key: str, txn: UUID) -> Recorded:
        """As `Limiter.release`."""
        return await self.call(Undo(zone, key, txn, "release"))

    async def charges(self, txn: UUID) -> list[Charge]:
        """As `Limiter.charges`."""
        return await self.call(Charges(txn))

    async def call(self, call: Call[T]) -> T:
        """As `Limiter.call`."""
        tries = Tries(self._attempts, self._deadline)
        while True:
            try:
                return await asyncio.wait_for(self._once(call, tries), tries.left.total_seconds())
            except asyncio.TimeoutError as late:
                error = Transient(f"no answer within {self._deadline.total_seconds()} s")
                error.txn_id = call.txn_id
                raise error from late
            except TallygateError as error:
                wait_s = tries.next(error)
                if wait_s is None:
                    error.txn_id = call.txn_id
                    raise
            await asyncio.sleep(wait_s)

    async def _once(self, call: Call[T], tries: Tries) -> T:
        with translated():
            async with self._connection() as connection:
                driver = await unwrap_async(connection)
                return await driver.run_alone(call, How(own=True, lock_wait=tries.left))

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        given = self._connect()
        # A connection of SQLAlchemy is a context manager and can be awaited; both would start it.
        if not hasattr(given, "__aenter__"):
            given = await given
        async with given as connection:
            yield connection
