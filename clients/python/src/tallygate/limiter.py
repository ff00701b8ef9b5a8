"""A limiter that opens its own short transactions, and tries again."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from .asking import Asking, called
from .beyond import BeyondSql, require_sql
from .call import Call, How
from .driver import Driver, translated, unwrap
from .tries import Patience

T = TypeVar("T")


class Limiter(BeyondSql):
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
        self._patience = Patience(deadline, attempts)

    check = called(Asking.check)
    peek = called(Asking.peek)
    refund = called(Asking.refund)
    charges = called(Asking.charges)

    def call(self, call: Call[T]) -> T:
        """Makes a call in a transaction of its own, until it is answered or the deadline is over."""
        require_sql(call)
        return self.attempt(
            lambda driver, left: driver.run_alone(call, How(own=True, lock_wait=left)), call.txn_id
        )

    def attempt(self, work: Callable[[Driver, timedelta], T], txn: UUID | None = None) -> T:
        """Does some work on a connection that has no transaction, and again after what is transient."""

        def once(left: timedelta) -> T:
            with translated(), self._connect() as connection:
                return work(unwrap(connection), left)

        return self._patience.run(once, txn)


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
