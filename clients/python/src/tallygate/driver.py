"""The connection beneath what a caller has: of psycopg or PyMySQL, found under Django and SQLAlchemy."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

from . import steps
from .call import Call, Charges, How, Row, Statement
from .error import Invalid, translate
from .steps import Steps

T = TypeVar("T")

_IN_TRANSACTION = 1  # SERVER_STATUS_IN_TRANS of the protocol of MySQL


class Driver(Protocol):
    """A connection as this package needs it."""

    def run(self, call: Call[T], how: How) -> T:
        """Runs a call in the transaction that is open. Errors are the driver's own."""

    def run_alone(self, call: Call[T], how: How) -> T:
        """Runs a call in a transaction of its own, and commits it."""

    def commit(self) -> None:
        """Commits the transaction that is open, if one is."""

    def trial(self) -> contextlib.AbstractContextManager[None]:
        """A transaction that is taken back at its end."""


class _Postgres:
    """What a connection of psycopg 3 is told, of either kind."""

    _cursor: str

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def _run(self, call: Call[T], how: How) -> Steps[T]:
        statement = call.postgres(how)
        cursor = getattr(_module("psycopg"), self._cursor)(self._connection)
        cursor.row_factory = _module("psycopg.rows").dict_row
        try:
            yield cursor.execute(statement.sql, statement.values)
            return call.read((yield cursor.fetchall()))
        finally:
            yield cursor.close()

    def _run_joined(self, call: Call[T], how: How) -> Steps[T]:
        commits = self._connection.autocommit and _is_idle_postgres(self._connection)
        if commits and not isinstance(call, Charges):  # which only reads
            raise Invalid(
                "the call joins a transaction and none is open; begin one, or call it by a limiter", "31006"
            )
        return (yield from self._run(call, how))

    def _run_alone(self, call: Call[T], how: How) -> Steps[T]:
        require_idle_postgres(self._connection)
        try:
            answer = yield from self._run(call, how._replace(own=True))
            if not self._connection.autocommit:
                yield self._connection.commit()
            return answer
        except BaseException:
            if not self._connection.autocommit:
                with contextlib.suppress(_module("psycopg").Error):
                    yield self._connection.rollback()
            raise


class Psycopg(_Postgres):
    """A connection of psycopg 3."""

    _cursor = "Cursor"

    def run(self, call: Call[T], how: How) -> T:
        return steps.run(self._run_joined(call, how))

    def run_alone(self, call: Call[T], how: How) -> T:
        return steps.run(self._run_alone(call, how))

    def commit(self) -> None:
        self._connection.commit()

    @contextlib.contextmanager
    def trial(self) -> Iterator[None]:
        require_idle_postgres(self._connection)
        with self._connection.transaction(force_rollback=True):
            yield


class AsyncPsycopg(_Postgres):
    """An asynchronous connection of psycopg 3."""

    _cursor = "AsyncCursor"

    async def run(self, call: Call[T], how: How) -> T:
        """As `Driver.run`."""
        return await steps.run_async(self._run_joined(call, how))

    async def run_alone(self, call: Call[T], how: How) -> T:
        """As `Driver.run_alone`."""
        return await steps.run_async(self._run_alone(call, how))


class PyMySQL:
    """A connection of PyMySQL, to MySQL or MariaDB."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def run(self, call: Call[T], how: How) -> T:
        return call.read(self._rows(call.mysql(how)))

    def commit(self) -> None:
        self._connection.commit()

    def run_alone(self, call: Call[T], how: How) -> T:
        self._require_idle()
        try:
            answer = self.run(call, how._replace(own=True))
            if self._connection.server_status & _IN_TRANSACTION:  # what only reads, without autocommit
                self._connection.rollback()
            return answer
        except BaseException:
            # A statement that was killed leaves the routine's transaction open.
            with contextlib.suppress(_module("pymysql.err").Error):
                self._connection.rollback()
            raise

    @contextlib.contextmanager
    def trial(self) -> Iterator[None]:
        self._require_idle()
        self._connection.begin()
        try:
            yield
        finally:
            self._connection.rollback()

    def _rows(self, statement: Statement) -> list[Row]:
        with self._connection.cursor(_module("pymysql.cursors").DictCursor) as cursor:
            cursor.execute(statement.sql, statement.values)
            return list(cursor.fetchall())

    def _require_idle(self) -> None:
        if self._connection.server_status & _IN_TRANSACTION:
            raise _not_idle()


def unwrap(thing: Any) -> Driver:
    """The driver's connection under a connection, cursor or session.

    A connection of SQLAlchemy that has no transaction begins one, as any statement of its own would.
    """
    if _is(thing, "psycopg", "Connection"):
        return Psycopg(thing)
    if _is(thing, "pymysql.connections", "Connection"):
        return PyMySQL(thing)
    if _is(thing, "psycopg", "Cursor") or _is(thing, "pymysql.cursors", "Cursor"):
        return unwrap(thing.connection)
    if _is(thing, "django.utils.connection", "ConnectionProxy") or _is(
        thing, "django.db.backends.base.base", "BaseDatabaseWrapper"
    ):
        thing.validate_no_broken_transaction()
        thing.ensure_connection()
        return unwrap(thing.connection)
    if _is(thing, "django.db.backends.utils", "CursorWrapper"):
        return unwrap(thing.db)
    if _is(thing, "sqlalchemy.orm", "Session") or _is(thing, "sqlalchemy.orm", "scoped_session"):
        return unwrap(thing.connection())
    if _is(thing, "sqlalchemy", "Connection"):
        if not thing.in_transaction():
            thing.begin()
        return unwrap(thing.connection.driver_connection)
    raise TypeError(f"{_name(thing)} is no connection, cursor or session that tallygate knows")


async def unwrap_async(thing: Any) -> AsyncPsycopg:
    """The same under what is asynchronous."""
    if _is(thing, "psycopg", "AsyncConnection"):
        return AsyncPsycopg(thing)
    if _is(thing, "psycopg", "AsyncCursor"):
        return AsyncPsycopg(thing.connection)
    if _is(thing, "sqlalchemy.ext.asyncio", "AsyncSession"):
        return await unwrap_async(await thing.connection())
    if _is(thing, "sqlalchemy.ext.asyncio", "AsyncConnection"):
        if not thing.in_transaction():
            await thing.begin()
        return await unwrap_async((await thing.get_raw_connection()).driver_connection)
    raise TypeError(f"{_name(thing)} is no asynchronous connection, cursor or session that tallygate knows")


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Turns what drivers raise into what this package raises."""
    try:
        yield
    except Exception as error:
        ours = translate(error)
        if ours is None or ours is error:
            raise
        raise ours from error


def require_idle_postgres(connection: Any) -> None:
    """Refuses a connection that somebody has a transaction on: a limiter would commit it."""
    if _is_idle_postgres(connection):
        return
    if connection.closed:
        raise _module("psycopg").OperationalError("the connection is closed")
    raise _not_idle()


def _is_idle_postgres(connection: Any) -> bool:
    return bool(connection.info.transaction_status == _module("psycopg.pq").TransactionStatus.IDLE)


def _not_idle() -> Invalid:
    return Invalid(
        "the connection has an open transaction, which a limiter would end; join it by tallygate.check"
    )


def _module(name: str) -> Any:
    # A caller that has an object of a module has imported it.
    return sys.modules[name]


def _name(thing: Any) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def _is(thing: Any, module: str, name: str) -> bool:
    return isinstance(thing, getattr(sys.modules.get(module), name, ()))
