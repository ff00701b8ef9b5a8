"""For the tests of an application: the clock of a database that `tallygate migrate --test-clock` has made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from .call import How, Row, Statement
from .driver import translated, unwrap
from .error import Invalid, Schema


class Clock:
    """A clock that stands still until a test moves it, for all who ask the database.

    `connection` is the owner's: whatever the functions of this package take that is not asynchronous. Each
    call is committed, with what else that connection has done. Raises Invalid where the database is none of
    tests, Refused where the user is not its owner.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def set(self, at: datetime) -> None:
        """Sets it, forwards or back; the time needs its zone."""
        if at.tzinfo is None:
            raise ValueError(f"{at} is a time without a zone, of which it is not known when it was")
        self._turn(_Turn(at.astimezone(timezone.utc).replace(tzinfo=None), timedelta()))

    def advance(self, by: timedelta) -> None:
        """Moves it forwards; one that was not set, from the server's time on."""
        self._turn(_Turn(None, by))

    def _turn(self, turn: _Turn) -> None:
        try:
            with translated():
                driver = unwrap(self._connection)
                driver.run(turn, How())
                driver.commit()
        except Schema as missing:
            raise Invalid(
                "the database decides by its server's clock; make one of tests: "
                "tallygate migrate --test-clock"
            ) from missing


@dataclass(frozen=True)
class _Turn:
    """A statement on the clock's row; `at` is in UTC."""

    at: datetime | None
    by: timedelta

    @property
    def txn_id(self) -> None:
        """None, since nothing is decided."""

    def postgres(self, how: How) -> Statement:
        return Statement(
            """update tallygate_test_clock
            set now_at = coalesce(%s::timestamp at time zone 'UTC', now_at, clock_timestamp()) + %s::interval
            returning one""",
            (self.at, self.by),
        )

    def mysql(self, how: How) -> Statement:
        return Statement(
            """update tallygate_test_clock
            set now_at = coalesce(cast(%s as datetime(6)), now_at, utc_timestamp(6))
                + interval %s microsecond""",
            (self.at, self.by // timedelta(microseconds=1)),
        )

    def read(self, rows: Sequence[Row]) -> None:
        """Says nothing."""
