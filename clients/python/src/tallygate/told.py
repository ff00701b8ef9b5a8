"""What a server's JSON says. Nothing of it is believed that is not as it should be: ValueError."""

from __future__ import annotations

from datetime import datetime, timedelta
from operator import index
from typing import Any
from uuid import UUID

from .checks import Check
from .decision import Decision, Recorded

_MOST = 2**63 - 1


def the_object(told: object) -> dict[str, Any]:
    """A JSON object."""
    if not isinstance(told, dict):
        raise ValueError("it is no object")
    return told


def the_list(told: object, name: str) -> list[Any]:
    """The array of this name in an object."""
    value = the_object(told).get(name)
    if not isinstance(value, list):
        raise ValueError(f"{name} is no array")
    return value


def decision(told: object, check: Check, txn: UUID | None) -> Decision:
    """The answer to a check, under the transaction that it was asked for."""
    said = _Said(told, zone=str(check.zone), key=check.key, txn_id=txn)
    return Decision(
        zone=str(check.zone),
        key=check.key,
        txn_id=said.uuid("txn_id"),
        blocked=said.flag("blocked"),
        reason=said.text("reason"),
        cost=index(check.cost),
        limit=said.number("limit"),
        remaining=said.number("remaining"),
        retry_after_us=said.number_or_none("retry_after_us"),
        delay_us=said.number_or_none("delay_us"),
        ends_at=said.time_or_none("ends_at"),
        seq=said.number_or_none("seq"),
        zone_version=said.number("zone_version"),
        decided_at=said.time("decided_at"),
        replayed=said.flag("replayed"),
    )


def recorded(told: object, zone: str | int, key: str, txn: UUID, kind: str) -> Recorded:
    """The answer to what ends a charge."""
    said = _Said(told, zone=str(zone), key=key, txn_id=txn, kind=kind)
    return Recorded(
        zone=str(zone),
        key=key,
        txn_id=txn,
        kind=kind,
        cost=said.number("cost"),
        spent=said.number("spent"),
        remaining=said.number("remaining"),
        seq=said.number("seq"),
        zone_version=said.number("zone_version"),
        recorded_at=said.time("recorded_at"),
        replayed=said.flag("replayed"),
    )


class _Said:
    """An object whose values have the types that they should have, and which is about what was asked."""

    def __init__(self, told: object, **asked: str | UUID | None) -> None:
        self._told = the_object(told)
        for name, value in asked.items():
            if value is not None and self.text(name) != str(value):
                raise ValueError(f"{name} is another one")

    def text(self, name: str) -> str:
        value = self._told.get(name)
        if not isinstance(value, str):
            raise ValueError(f"{name} is no text")
        return value

    def flag(self, name: str) -> bool:
        value = self._told.get(name)
        if not isinstance(value, bool):
            raise ValueError(f"{name} is neither true nor false")
        return value

    def number(self, name: str) -> int:
        value = self._told.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST:
            raise ValueError(f"{name} is no whole number of 0 to 2^63 - 1")
        return value

    def number_or_none(self, name: str) -> int | None:
        return None if self._told.get(name) is None else self.number(name)

    def uuid(self, name: str) -> UUID:
        return UUID(self.text(name))

    def time(self, name: str) -> datetime:
        try:
            time = datetime.fromisoformat(self.text(name).replace("Z", "+00:00"))
        except ValueError:
            time = datetime.min
        if time.utcoffset() != timedelta(0):
            raise ValueError(f"{name} is no time in UTC")
        return time

    def time_or_none(self, name: str) -> datetime | None:
        return None if self._told.get(name) is None else self.time(name)
