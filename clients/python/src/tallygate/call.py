"""The calls: one class for each, with its statement on both kinds of database, its request of a server, or
both.

A statement is a constant; what callers say goes beside it as parameters. Times are read in UTC without a
zone, so that no setting of a session or a framework changes them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from operator import index
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import UUID

from . import told
from .checks import Check, require_names
from .decision import Charge, Decision, Recorded, Zone

T_co = TypeVar("T_co", covariant=True)
Row = Mapping[str, Any]


class Statement(NamedTuple):
    """An SQL text and its parameters."""

    sql: str
    values: tuple[Any, ...]


class How(NamedTuple):
    """How a call is to run: in its own transaction or the caller's, and how long it waits for a lock."""

    own: bool = False
    lock_wait: timedelta | None = None

    @property
    def milliseconds(self) -> int | None:
        """The wait for PostgreSQL, where 0 would be for ever."""
        return None if self.lock_wait is None else _within(self.lock_wait / timedelta(milliseconds=1))

    @property
    def seconds(self) -> int | None:
        """The wait for MySQL and MariaDB, which know whole seconds."""
        return None if self.lock_wait is None else _within(self.lock_wait / timedelta(seconds=1))


class Request(NamedTuple):
    """What is asked of a server: a path after `/v1/`, and an object to post; without one it is only read."""

    path: str
    body: dict[str, Any] | None = None


class Route(Protocol[T_co]):
    """One call of a server."""

    @property
    def txn_id(self) -> UUID | None:
        """The transaction, under which it is done once however often it is asked."""

    def request(self) -> Request:
        """What is asked."""

    def answer(self, said: object) -> T_co:
        """What the JSON of the answer means. ValueError where it is no answer to this."""


class Call(Protocol[T_co]):
    """One call of a routine."""

    @property
    def txn_id(self) -> UUID | None:
        """The transaction, by which it can be asked again what became of it."""

    def postgres(self, how: How) -> Statement:
        """The statement for PostgreSQL."""

    def mysql(self, how: How) -> Statement:
        """The statement for MySQL and MariaDB."""

    def read(self, rows: Sequence[Row]) -> T_co:
        """What the rows of the answer mean."""


@dataclass(frozen=True)
class CheckOne:
    """`zone_check`: one decision; of a server also a reservation."""

    check: Check

    _POSTGRES = """
        select id, txn_id, zone_id, zone_version, bucket_key, seq, blocked, reason, cost, zone_limit,
            remaining, retry_after_us, created_at at time zone 'UTC' as created_at, replayed
        from zone_check(
            p_zone => %s::text, p_bucket_key => %s::text, p_txn_id => %s::uuid, p_cost => %s::bigint,
            p_record => %s::boolean, p_lock_wait_ms => %s::int, p_own => %s::boolean
        )"""
    _MYSQL = "call zone_check_in(%s, %s, %s, %s, %s, %s)"
    _MYSQL_OWN = "call zone_check(%s, %s, %s, %s, %s, %s)"

    @property
    def txn_id(self) -> UUID | None:
        return self.check.txn

    def postgres(self, how: How) -> Statement:
        c = self.check
        values = (str(c.zone), c.key, _text(c.txn), index(c.cost), c.record, how.milliseconds, how.own)
        return Statement(self._POSTGRES, values)

    def mysql(self, how: How) -> Statement:
        c = self.check
        values = (str(c.zone), c.key, c.txn and c.txn.bytes, index(c.cost), c.record, how.seconds)
        return Statement(self._MYSQL_OWN if how.own else self._MYSQL, values)

    def read(self, rows: Sequence[Row]) -> Decision:
        row = rows[0]
        return Decision(
            zone=str(self.check.zone),
            key=row["bucket_key"],
            txn_id=_uuid(row["txn_id"]),
            blocked=bool(row["blocked"]),
            reason=row["reason"],
            cost=row["cost"],
            limit=row["zone_limit"],
            remaining=row["remaining"],
            retry_after_us=row["retry_after_us"],
            delay_us=None,
            ends_at=None,
            seq=row["seq"],
            zone_version=row["zone_version"],
            decided_at=_utc(row["created_at"]),
            replayed=bool(row["replayed"]),
            id=row["id"],
            zone_id=row["zone_id"],
        )

    def request(self) -> Request:
        return Request("check" if self.check.ttl is None else "reserve", _object(self.check))

    def answer(self, said: object) -> Decision:
        return told.decision(said, self.check, self.txn_id)


@dataclass(frozen=True)
class CheckAll:
    """Several limits of one transaction; all pass, or none is spent from."""

    checks: tuple[Check, ...]
    txn_id: UUID

    def request(self) -> Request:
        checks = [_object(replace(check, txn=None)) for check in self.checks]
        return Request("check-all", {"checks": checks, "txn": str(self.txn_id)})

    def answer(self, said: object) -> list[Decision]:
        decisions = zip(self.checks, told.the_list(said, "decisions"), strict=True)
        return [told.decision(each, check, self.txn_id) for check, each in decisions]


@dataclass(frozen=True)
class Undo:
    """Ends a charge, once."""

    zone: str | int
    key: str
    txn_id: UUID
    kind: str
    cost: int | None = None

    def __post_init__(self) -> None:
        require_names(self.zone, self.key, self.txn_id)

    def request(self) -> Request:
        body = {"zone": str(self.zone), "key": self.key, "txn": str(self.txn_id)}
        return Request(self.kind, body if self.cost is None else {**body, "cost": index(self.cost)})

    def answer(self, said: object) -> Recorded:
        [only] = told.the_list(said, "recorded")
        return told.recorded(only, self.zone, self.key, self.txn_id, self.kind)


@dataclass(frozen=True)
class Refund(Undo):
    """`zone_refund`: gives back what a check spent, once."""

    kind: str = "refund"

    _POSTGRES = """
        select id, zone_id, zone_version, bucket_key, seq, cost, remaining,
            created_at at time zone 'UTC' as created_at, replayed
        from zone_refund(
            p_zone => %s::text, p_bucket_key => %s::text, p_txn_id => %s::uuid, p_lock_wait_ms => %s::int
        )"""
    _MYSQL = "call zone_refund_in(%s, %s, %s, %s)"
    _MYSQL_OWN = "call zone_refund(%s, %s, %s, %s)"

    def postgres(self, how: How) -> Statement:
        return Statement(self._POSTGRES, (str(self.zone), self.key, str(self.txn_id), how.milliseconds))

    def mysql(self, how: How) -> Statement:
        values = (str(self.zone), self.key, self.txn_id.bytes, how.seconds)
        return Statement(self._MYSQL_OWN if how.own else self._MYSQL, values)

    def read(self, rows: Sequence[Row]) -> Recorded:
        row = rows[0]
        return Recorded(
            zone=str(self.zone),
            key=row["bucket_key"],
            txn_id=self.txn_id,
            kind=self.kind,
            cost=row["cost"],
            spent=0,
            remaining=row["remaining"],
            seq=row["seq"],
            zone_version=row["zone_version"],
            recorded_at=_utc(row["created_at"]),
            replayed=bool(row["replayed"]),
            id=row["id"],
            zone_id=row["zone_id"],
        )


@dataclass(frozen=True)
class Charges:
    """`zone_charges`: what a transaction was charged, in every bucket."""

    txn_id: UUID

    _POSTGRES = "select zone, bucket_key, kind, spent, holds from zone_charges(%s::uuid)"
    _MYSQL = "call zone_charges(%s)"

    def postgres(self, how: How) -> Statement:
        return Statement(self._POSTGRES, (str(self.txn_id),))

    def mysql(self, how: How) -> Statement:
        return Statement(self._MYSQL, (self.txn_id.bytes,))

    def read(self, rows: Sequence[Row]) -> list[Charge]:
        return [
            Charge(row["zone"], row["bucket_key"], row["kind"], row["spent"], bool(row["holds"]))
            for row in rows
        ]


@dataclass(frozen=True)
class FindZone:
    """`zone_find`: a zone by its name."""

    name: str
    txn_id = None

    _POSTGRES = "select id, version, algorithm, rate, window_us, mode from zone_find(%s::text)"
    _MYSQL = "call zone_find(%s)"

    def postgres(self, how: How) -> Statement:
        return Statement(self._POSTGRES, (self.name,))

    def mysql(self, how: How) -> Statement:
        return Statement(self._MYSQL, (self.name,))

    def read(self, rows: Sequence[Row]) -> Zone | None:
        if not rows:
            return None
        row = rows[0]
        return Zone(row["id"], row["version"], row["algorithm"], row["rate"], row["window_us"], row["mode"])


def _object(check: Check) -> dict[str, Any]:
    """A check in JSON, without what is not said."""
    values = {
        "zone": str(check.zone),
        "key": check.key,
        "txn": _text(check.txn),
        "cost": index(check.cost),
        "record": check.record,
        "critical": check.critical,
        "member": check.member,
        "ttl_us": None if check.ttl is None else check.ttl // timedelta(microseconds=1),
    }
    return {name: value for name, value in values.items() if value is not None}


def _uuid(value: Any) -> UUID:
    return UUID(bytes=value) if isinstance(value, bytes) else UUID(str(value))


def _text(txn: UUID | None) -> str | None:
    return None if txn is None else str(txn)


def _utc(time: datetime) -> datetime:
    return time.replace(tzinfo=timezone.utc)


def _within(number: float) -> int:
    return max(1, min(math.ceil(number), 2**30))
