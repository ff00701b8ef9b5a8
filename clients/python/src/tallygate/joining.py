"""Calls that join the transaction which the caller has open.

What they record and spend is committed or taken back together with everything else in that transaction, and
the bucket's row stays locked until it ends. `connection` is a connection or cursor of psycopg 3 or PyMySQL, a
connection or cursor of Django, or a `Session` or `Connection` of SQLAlchemy.

Where no transaction is open, and the connection begins none by itself, a call is refused (`Invalid`, code
31006), but for `charges`, which only reads. After any error roll back, since part of the call may have
happened on MySQL and MariaDB. Nothing is tried again here: after `Transient` run the whole transaction
again, under the same transaction ids.

`lock_wait` is the longest wait for a lock: milliseconds on PostgreSQL, where it holds until the transaction
ends; whole seconds, rounded up, on MySQL and MariaDB. None leaves the session's setting.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar
from uuid import UUID

from .call import Call, Charges, CheckAll, CheckMany, CheckOne, How, Undo
from .checks import Check, new_txn
from .decision import Charge, Decision, Recorded

T = TypeVar("T")


@dataclass(frozen=True)
class Joined(Generic[T]):
    """A call, and the connection whose transaction it joins. Each function below makes one."""

    connection: Any
    call: Call[T]
    lock_wait: timedelta | None = None

    @property
    def how(self) -> How:
        """How the call is to run."""
        return How(lock_wait=self.lock_wait)


def check(
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
) -> Joined[Decision]:
    """Decides whether a transaction may pass, spends its cost if it may, and records the decision.

    The arguments are those of `Check`. The same `txn` again is told what was recorded (`replayed`) and spends
    nothing. Locks the bucket. Raises UnknownZone, Conflict (the txn was decided with another cost or member),
    Invalid, Transient, Schema, Refused.
    """
    return Joined(connection, CheckOne(Check(zone, key, cost, txn, critical, member, record)), lock_wait)


def check_all(
    connection: Any,
    checks: Iterable[Check],
    txn: UUID | None = None,
    *,
    lock_wait: timedelta | None = None,
) -> Joined[list[Decision]]:
    """Decides several limits of one transaction: all pass, or none is spent from.

    There is one decision for each, in their order. When one blocks, those that would have passed say
    `held_back`. The id is `txn`; those of the checks are not looked at. Locks all buckets. Raises as `check`,
    and Invalid where a bucket is named twice.
    """
    return Joined(connection, CheckAll(tuple(checks), txn or new_txn()), lock_wait)


def check_many(
    connection: Any, checks: Iterable[Check], *, lock_wait: timedelta | None = None
) -> Joined[list[Decision]]:
    """Decides checks that have nothing to do with each other in one call, as if one by one.

    Locks all buckets. Raises as `check`; then none of them is to be kept.
    """
    return Joined(connection, CheckMany.of(tuple(checks)), lock_wait)


def peek(
    connection: Any,
    zone: str | int,
    key: str,
    *,
    member: str | None = None,
    lock_wait: timedelta | None = None,
) -> Joined[Decision]:
    """What is left of a bucket. Spends nothing, leaves no row, locks nothing. Raises as `check`."""
    return Joined(connection, CheckOne(Check(zone, key, cost=0, member=member)), lock_wait)


def reserve(
    connection: Any,
    zone: str | int,
    key: str,
    cost: int,
    ttl: timedelta,
    txn: UUID | None = None,
    *,
    critical: bool = False,
    lock_wait: timedelta | None = None,
) -> Joined[Decision]:
    """Charges now what is given back by itself after `ttl`, unless it is settled or cancelled.

    `ttl` is 1 microsecond to 10 years. Locks the bucket. Raises as `check`.
    """
    return Joined(connection, CheckOne(Check(zone, key, cost, txn, critical, ttl=ttl)), lock_wait)


def settle(
    connection: Any, zone: str | int, key: str, txn: UUID, cost: int, *, lock_wait: timedelta | None = None
) -> Joined[Recorded]:
    """Turns a reservation into a charge of `cost`, once.

    What it comes to beyond the reservation is charged too, and never refused. Locks the bucket. Raises as
    `check`; Conflict where there is no such reservation, or it ended otherwise.
    """
    return Joined(connection, Undo(zone, key, txn, "settle", cost), lock_wait)


def cancel(
    connection: Any, zone: str | int, key: str, txn: UUID, *, lock_wait: timedelta | None = None
) -> Joined[Recorded]:
    """Gives a reservation back, once. Locks and raises as `settle`."""
    return Joined(connection, Undo(zone, key, txn, "cancel"), lock_wait)


def refund(
    connection: Any, zone: str | int, key: str, txn: UUID, *, lock_wait: timedelta | None = None
) -> Joined[Recorded]:
    """Gives back what an ordinary check spent, once. Locks and raises as `settle`."""
    return Joined(connection, Undo(zone, key, txn, "refund"), lock_wait)


def release(
    connection: Any, zone: str | int, key: str, txn: UUID, *, lock_wait: timedelta | None = None
) -> Joined[Recorded]:
    """Gives a slot of a `concurrency` zone back, once. Locks and raises as `settle`."""
    return Joined(connection, Undo(zone, key, txn, "release"), lock_wait)


def charges(connection: Any, txn: UUID) -> Joined[list[Charge]]:
    """What a transaction was charged, in every bucket, the newest first. Locks nothing."""
    return Joined(connection, Charges(txn))
