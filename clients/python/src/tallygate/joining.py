"""Calls that join the transaction which the caller has open.

What they record and spend is committed or taken back together with everything else in that transaction, and
the bucket's row stays locked until it ends. `connection` is a connection or cursor of psycopg 3 or PyMySQL, a
connection or cursor of Django, or a `Session` or `Connection` of SQLAlchemy.

Where no transaction is open, and the connection begins none by itself, a call is refused (`Invalid`, code
31006), but for `charges`, which only reads. After any error roll back, since part of the call may have
happened on MySQL and MariaDB. Nothing is tried again here: after `Transient` run the whole transaction
again, under the same transaction ids. On MySQL and MariaDB a call is `Transient` (code 31007) where the
snapshot of a REPEATABLE READ transaction hides rows of the bucket.

`lock_wait` is the longest wait for a lock: milliseconds on PostgreSQL, where it holds until the transaction
ends; whole seconds, rounded up, on MySQL and MariaDB. None leaves the session's setting.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar
from uuid import UUID

from .beyond import require_sql
from .call import Call, Charges, CheckOne, How, Refund
from .checks import Check
from .decision import Charge, Decision, Recorded

T = TypeVar("T")


@dataclass(frozen=True)
class Joined(Generic[T]):
    """A call, and the connection whose transaction it joins. Each function below makes one."""

    connection: Any
    call: Call[T]
    lock_wait: timedelta | None = None

    def __post_init__(self) -> None:
        require_sql(self.call)

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
    nothing. Locks the bucket. Raises UnknownZone, Conflict (the txn was decided with another cost), Invalid
    (also where the zone is not plain), Transient, Schema, Refused.
    """
    return Joined(connection, CheckOne(Check(zone, key, cost, txn, critical, member, record)), lock_wait)


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


def refund(
    connection: Any, zone: str | int, key: str, txn: UUID, *, lock_wait: timedelta | None = None
) -> Joined[Recorded]:
    """Gives back what a check spent, once. Locks the bucket.

    Raises as `check`; Invalid where the bucket has no such transaction, Conflict where there is nothing to
    give back, or it was ended otherwise.
    """
    return Joined(connection, Refund(zone, key, txn), lock_wait)


def charges(connection: Any, txn: UUID) -> Joined[list[Charge]]:
    """What a transaction was charged, in every bucket, the newest first. Locks nothing."""
    return Joined(connection, Charges(txn))
