"""What the database or a server answers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

_NONE = timedelta(0)


@dataclass(frozen=True)
class Decision:
    """The answer to a check. Times are the database's, in UTC."""

    zone: str
    """The zone, as the caller named it."""
    key: str
    """The bucket."""
    txn_id: UUID
    """The transaction that was decided: the caller's own id, or the one that was made for it."""
    blocked: bool
    """True when it may not pass."""
    reason: str
    """Why: within_limit, soft, off, unchecked; over_limit, exceeds_limit, banned, held_back."""
    cost: int
    """What was asked for."""
    limit: int
    """The most that a check like it can spend."""
    remaining: int
    """What can still be spent after the decision; never negative."""
    retry_after_us: int | None
    """The least wait in microseconds from `decided_at`; None when it was allowed, or can never pass."""
    delay_us: int | None
    """How long to go on waiting for its turn, in microseconds; None but of a server, in a leaky queue."""
    ends_at: datetime | None
    """When a reservation, a slot or a member that it took ends by itself; None but of a server."""
    seq: int | None
    """Position in the bucket's ledger, from 1 without gaps; None for a peek."""
    zone_version: int
    """The version of the zone's policy that decided."""
    decided_at: datetime
    """When it was decided."""
    replayed: bool
    """True when it had been decided before, and nothing was spent now."""
    id: int | None = None
    """Number of the ledger row; None for a peek, and from a server, which does not tell it."""
    zone_id: int | None = None
    """Number of the zone; None from a server."""

    @property
    def allowed(self) -> bool:
        """True when the transaction may pass."""
        return not self.blocked

    @property
    def retry_after(self) -> timedelta | None:
        """The least wait, counted from `decided_at`; None when it was allowed, or can never pass."""
        return None if self.retry_after_us is None else timedelta(microseconds=self.retry_after_us)

    @property
    def delay(self) -> timedelta:
        """How long to wait for its turn before going on; nothing but in a leaky queue."""
        return _NONE if self.delay_us is None else timedelta(microseconds=self.delay_us)


@dataclass(frozen=True)
class Recorded:
    """The answer to what ends a charge. Times are the database's, in UTC."""

    zone: str
    """The zone, as the caller named it."""
    key: str
    """The bucket."""
    txn_id: UUID
    """The transaction that made the charge."""
    kind: str
    """refund, settle, cancel or release."""
    cost: int
    """What was given back; what a settlement came to."""
    spent: int
    """What a settlement charged beyond its reservation; else 0."""
    remaining: int
    """What can be spent now; never negative."""
    seq: int
    """Position in the bucket's ledger."""
    zone_version: int
    """The version of the zone's policy in force."""
    recorded_at: datetime
    """When it was recorded."""
    replayed: bool
    """True when it had been recorded before, and nothing happened now."""
    id: int | None = None
    """Number of the ledger row; None from a server, which does not tell it."""
    zone_id: int | None = None
    """Number of the zone; None from a server."""


@dataclass(frozen=True)
class Charge:
    """What a transaction was charged in one bucket."""

    zone: str
    """The zone's name."""
    key: str
    """The bucket."""
    kind: str
    """check, reserve or unchecked."""
    spent: int
    """What was charged."""
    holds: bool
    """True of a reservation and of a slot."""


@dataclass(frozen=True)
class Zone:
    """A zone's number and the heart of its policy."""

    id: int
    version: int
    algorithm: str
    rate: int
    window_us: int | None
    mode: str
