"""What is asked of the database or of a server."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID


@dataclass(frozen=True)
class Check:
    """May a transaction pass, and what does it spend?

    `zone` is the zone's name or its number. `key` names the bucket: 1 to 255 bytes of UTF-8 without control
    characters. `cost` is 0 to 2^40 of the zone's units; 0 only looks, and leaves no row unless `record` is
    set. `txn` is the caller's own id of the transaction, by which it is charged once however often it is
    asked; None makes one. The others are for a server: `critical` may take from what the zone keeps in
    reserve, `member` is whom the check is about, in a zone that counts members, and `ttl` makes it a
    reservation, which gives itself back after so long unless it is settled or cancelled.
    """

    zone: str | int
    key: str
    cost: int = 1
    txn: UUID | None = None
    critical: bool = False
    member: str | None = None
    record: bool = False
    ttl: timedelta | None = None

    def __post_init__(self) -> None:
        require_names(self.zone, self.key, self.txn)
        if not isinstance(self.member, (str, type(None))):
            raise TypeError(f"a member is text, not {self.member!r}")


def require_names(zone: object, key: object, txn: object) -> None:
    """Refuses what a driver would turn into some other text. TypeError."""
    if not isinstance(zone, (str, int)):
        raise TypeError(f"a zone is a name or a number, not {zone!r}")
    if not isinstance(key, str):
        raise TypeError(f"a bucket's key is text, not {key!r}")
    if not isinstance(txn, (UUID, type(None))):
        raise TypeError(f"a transaction is a uuid.UUID, not {txn!r}")


def new_txn() -> UUID:
    """A version 7 UUID: its first 48 bits are the time in milliseconds, the others are random."""
    milliseconds = time.time_ns() // 1_000_000
    random = secrets.randbits(74)
    return UUID(int=milliseconds << 80 | 7 << 76 | (random >> 62) << 64 | 2 << 62 | random & (1 << 62) - 1)
