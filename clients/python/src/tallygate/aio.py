"""The calls of `tallygate.joined` for asynchronous connections, with the same names, arguments and errors.

`connection` is an `AsyncConnection` or `AsyncCursor` of psycopg 3, or an `AsyncSession` or `AsyncConnection`
of SQLAlchemy over it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from .call import Call, Charges, CheckAll, CheckMany, CheckOne, How, Undo
from .checks import Check, new_txn
from .decision import Charge, Decision, Recorded
from .driver import translated, unwrap_async

T = TypeVar("T")


async def check(
    connection: Any,
    zone: str | int,
    key: str,
    cost: int = 1,
    txn: UUID | None = None,
    *,
    critical: bool = False,
    member: str | None = None,
    record: bool = False,
    lock_wait: timedelta | None = None,
) -> Decision:
    """As `tallygate.check`."""
    return await _run(connection, CheckOne(Check(zone, key, cost, txn, critical, member, record)), lock_wait)


async def check_all(
    connection: Any,
    checks: Iterable[Check],
    txn: UUID | None = None,
    *,
    lock_wait: timedelta | None = None,
) -> list[Decision]:
    """As `tallygate.check_all`."""
    return await _run(connection, CheckAll(tuple(checks), txn or new_txn()), lock_wait)


async def check_many(
    connection: Any, checks: Iterable[Check], *, lock_wait: timedelta | None = None
) -> list[Decision]:
    """As `tallygate.check_many`."""
    return await _run(connection, CheckMany.of(tuple(checks)), lock_wait)


async def peek(
    connection: Any,
    zone: str | int,
    key: str,
    *,
    member: str | None = None,
    lock_wait: timedelta | None = None,
) -> Decision:
    """As `tallygate.peek`."""
    return await _run(connection, CheckOne(Check(zone, key, cost=0, member=member)), lock_wait)


async def reserve(
    connection: Any,
    zone: str | int,
    key: str,
    cost: int,
    ttl: timedelta,
    txn: UUID | None = None,
    *,
    critical: bool = False,
    lock_wait: timedelta | None = None,
) -> Decision:
    """As `tallygate.reserve`."""
    return await _run(connection, CheckOne(Check(zone, key, cost, txn, critical, ttl=ttl)), lock_wait)


async def settle(
    connection: Any, zone: str | int, key: str, txn: UUID, cost: int, *, lock_wait: timedelta | None = None
) -> Recorded:
    """As `tallygate.settle`."""
    return await _run(connection, Undo(zone, key, txn, "settle", cost), lock_wait)


async def cancel(
    connection: Any, zone: str | int, key: str, txn: UUID, *, lock_wait: timedelta | None = None
) -> Recorded:
    """As `tallygate.cancel`."""
    return await _run(connection, Undo(zone, key, txn, "cancel"), lock_wait)


async def refund(
    connection: Any, zone: str | int, key: str, txn: UUID, *, lock_wait: timedelta | None = None
) -> Recorded:
    """As `tallygate.refund`."""
    return await _run(connection, Undo(zone, key, txn, "refund"), lock_wait)


async def release(
    connection: Any, zone: str | int, key: str, txn: UUID, *, lock_wait: timedelta | None = None
) -> Recorded:
    """As `tallygate.release`."""
    return await _run(connection, Undo(zone, key, txn, "release"), lock_wait)


async def charges(connection: Any, txn: UUID) -> list[Charge]:
    """As `tallygate.charges`."""
    return await _run(connection, Charges(txn), None)


async def _run(connection: Any, call: Call[T], lock_wait: timedelta | None) -> T:
    with translated():
        driver = await unwrap_async(connection)
        return await driver.run(call, How(lock_wait=lock_wait))
