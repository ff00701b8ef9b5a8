"""A limiter that opens its own short transactions, and tries again."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from .call import Call, Charges, CheckAll, CheckMany, CheckOne, How, Undo
from .checks import Check, new_txn
from .decision import Charge, Decision, Recorded
from .driver import Driver, translated, unwrap
from .error import TallygateError
from .tries import Tries

T = TypeVar("T")


class Limiter:
    """Decides in transactions of its own: what it answers is committed.

    `connect` gives a connection each time it is called, as a context manager that takes it back:
    `pool.connection` of psycopg_pool, `engine.connect` of SQLAlchemy, `kept(…)` for one per thread, or
    whatever connects. A connection with an open transaction is refused (Invalid). Threads may share a limiter
    as far as they may share `connect`.

    After a conflict, a deadlock, a lock wait or a broken connection a call is made again, with the same
    transaction id, so that nothing is charged twice, until `deadline` is over or `attempts` are used up; then
    the error is raised and carries the id (`txn_id`). The database is told the deadline for its lock waits. A
    server that accepts a connection and then says nothing is given up by the connection's own time limits
    only, so set them.
    """

    def __init__(
        self,
        connect: Callable[[], contextlib.AbstractContextManager[Any]],
        *,
        deadline: timedelta = timedelta(seconds=5),
        attempts: int = 64,
    ) -> None:
        self._connect = connect
        self._deadline = deadline
        self._attempts = attempts

    def check(
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
        """As `tallygate.check`, committed when it returns."""
        return self.call(CheckOne(Check(zone, key, cost, txn or new_txn(), critical, member, record)))

    def check_all(self, checks: Iterable[Check], txn: UUID | None = None) -> list[Decision]:
        """As `tallygate.check_all`, committed when it returns."""
        return self.call(CheckAll(tuple(checks), txn or new_txn()))

    def check_many(self, checks: Iterable[Check]) -> list[Decision]:
        """As `tallygate.check_many`, committed when it returns; after an error none of them was decided."""
        return self.call(CheckMany.of(tuple(checks)))

    def peek(self, zone: str | int, key: str, *, member: str | None = None) -> Decision:
        """As `tallygate.peek`."""
        return self.call(CheckOne(Check(zone, key, cost=0, member=member)))

    def reserve(
        self,
        zone: str | int,
        key: str,
        cost: int,
        ttl: timedelta,
        txn: UUID | None = None,
        *,
        critical: bool = False,
    ) -> Decision:
        """As `tallygate.reserve`, committed when it returns."""
        return self.call(CheckOne(Check(zone, key, cost, txn or new_txn(), critical, ttl=ttl)))

    def settle(self, zone: str | int, key: str, txn: UUID, cost: int) -> Recorded:
        """As `tallygate.settle`, committed when it returns."""
        return self.call(Undo(zone, key, txn, "settle", cost))

    def cancel(self, zone: str | int, key: str, txn: UUID) -> Recorded:
        """As `tallygate.cancel`, committed when it returns."""
        return self.call(Undo(zone, key, txn, "cancel"))

    def refund(self, zone: str | int, key: str, txn: UUID) -> Recorded:
        """As `tallygate.refund`, committed when it returns."""
        return self.call(Undo(zone, key, txn, "refund"))

    def release(self, zone: str | int, key: str, txn: UUID) -> Recorded:
        """As `tallygate.release`, committed when it returns."""
        return self.call(Undo(zone, key, txn, "release"))

    def charges(self, txn: UUID) -> list[Charge]:
        """As `tallygate.charges`."""
        return self.call(Charges(txn))

    def call(self, call: Call[T]) -> T:
        """Makes a call in a transaction of its own, until it is answered or the deadline is over."""
        return self.attempt(
            lambda driver, left: driver.run_alone(call, How(own=True, lock_wait=left)), call.txn_id
        )

    def attempt(self, work: Callable[[Driver, timedelta], T], txn: UUID | None = None) -> T:
        """Does some work on a connection that has no transaction, and again after what is transient."""
        tries = Tries(self._attempts, self._deadline)
        while True:
            try:
                with translated(), self._connect() as connection:
                    return work(unwrap(connection), tries.left)
            except TallygateError as error:
                wait_s = tries.next(error)
                if wait_s is None:
                    error.txn_id = txn
                    raise
            time.sleep(wait_s)


def kept(connect: Callable[[], Any]) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    """A `connect` for `Limiter`: one connection for each thread, kept until its end or an error.

    >>> import functools, psycopg
    >>> limiter = Limiter(kept(functools.partial(psycopg.connect, "service=app", autocommit=True)))
    """
    thread = threading.local()

    @contextlib.contextmanager
    def connection() -> Iterator[Any]:
        mine: _Kept | None = thread.__dict__.pop("kept", None)
        if mine is None or not mine.is_ours:
            mine = _Kept(connect())
        try:
            yield mine.connection
        except BaseException:
            mine.close()
            raise
        thread.kept = mine

    return connection


class _Kept:
    """A connection that is closed at the end of its thread, or of the program.

    A process that was forked has a copy, which it neither uses nor closes: the connection is its parent's.
    """

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._process = os.getpid()
        self.close = weakref.finalize(self, _close, connection, self._process)

    @property
    def is_ours(self) -> bool:
        return self._process == os.getpid()


def _close(connection: Any, process: int) -> None:
    if process == os.getpid():
        with contextlib.suppress(Exception):
            connection.close()
