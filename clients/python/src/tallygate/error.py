"""What can go wrong, by the codes of the database and never by its words."""

from __future__ import annotations

import sys
from typing import Any
from uuid import UUID


class TallygateError(Exception):
    """Something that the database, or the way to it, refused. The driver's own exception is its `__cause__`.

    `code` is the SQLSTATE of PostgreSQL, the number of MySQL and MariaDB as text, or the code of
    `tallygate serve` (docs/server.md); None where none of them spoke. `txn_id` is set by a limiter that made
    or was given an id: asking again under it tells what became of the call.
    """

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.txn_id: UUID | None = None


class Invalid(TallygateError):
    """An argument is out of range, or the zone has no use for it, or SQL does not decide it, but the server.

    It would be refused again.
    """


class Conflict(TallygateError):
    """It contradicts what was recorded: another cost, another member, other limits, nothing to give back."""


class UnknownZone(TallygateError):
    """There is no such zone."""


class Transient(TallygateError):
    """A conflict, a deadlock, a lock that was not had in time, a connection that broke. Again may pass.

    Whoever joined a transaction rolls it back and runs all of it again.
    """


class Schema(TallygateError):
    """The database is not migrated, is newer than it should be, or its ledger was changed from outside."""


class Refused(TallygateError):
    """The session may not do this: it lacks a right, or its login or token is none."""


def _codes(kind: type[TallygateError], codes: str) -> dict[str, type[TallygateError]]:
    return dict.fromkeys(codes.split(), kind)


BEYOND_SQL = {"TG012", "31012"}
"""The codes of a zone that SQL does not decide."""

_KINDS: dict[str, type[TallygateError]] = {
    # PostgreSQL
    **_codes(UnknownZone, "TG001"),
    **_codes(Conflict, "TG002"),
    # no such number, no such byte in text, a key that is none, a total that is full, a zone beyond SQL
    **_codes(Invalid, "TG003 TG004 TG012 22003 22021 22P02 22P05 23514"),
    **_codes(Schema, "TG005 TG008 42883 42P01 3F000"),
    # conflicts and lock waits; a statement or session that was ended; a server that begins or ends, is full,
    # or only reads
    **_codes(Transient, "40001 40P01 55P03 57014 25P03 57P01 57P02 57P03 57P05 53200 53300 25006"),
    **_codes(Refused, "TG011 28000 28P01 3D000 42501"),
    # MySQL and MariaDB
    **_codes(UnknownZone, "31001"),
    **_codes(Conflict, "31002"),
    # no transaction to join, a number out of range, text that cannot be stored, a zone beyond SQL
    **_codes(Invalid, "31003 31004 31006 31012 1264 1292 1366 1406"),
    **_codes(Schema, "31005 31008 1146 1305 1449"),
    # conflicts and lock waits; a server or session that ended, is full, or only reads; a place that does not
    # answer
    **_codes(Transient, "31007 1205 1213 1020 3572 2003 2006 2013 3101 1053 1927 4031 1040 1290 1836"),
    # a statement that was killed or found no memory, of which a routine makes several numbers
    **_codes(Transient, "1317 1105 1329 3547 3024 1969 1037 1038 1041 1568"),
    **_codes(Refused, "31011 1044 1045 1046 1049 1142 1370"),
    # tallygate serve
    **_codes(UnknownZone, "unknown_zone"),
    **_codes(Conflict, "conflict"),
    **_codes(Invalid, "invalid"),
    **_codes(Schema, "schema"),
    **_codes(Transient, "transient leaving"),
    **_codes(Refused, "refused unknown_caller forbidden"),
}


def of_code(message: str, code: str) -> TallygateError:
    """The error that a code means, with its words."""
    return _KINDS.get(code, TallygateError)(message, code)


def translate(error: BaseException) -> TallygateError | None:
    """The error of ours that a driver's error means; None for what no database said."""
    if isinstance(error, TallygateError):
        return error
    if isinstance(error, UnicodeEncodeError):
        return Invalid(f"the text cannot be sent to the database: {error}")
    if isinstance(error, _driver("sqlalchemy.exc", "DBAPIError")):
        return translate(error.orig)
    if isinstance(error, _driver("sqlalchemy.exc", "TimeoutError")):
        return Transient(str(error))
    if isinstance(error, _driver("psycopg", "Error")):
        return _of_psycopg(error)
    if isinstance(error, _driver("pymysql.err", "Error")):
        return _of_pymysql(error)
    return None


def _driver(module: str, name: str) -> Any:
    # A driver that raises an exception has imported its module.
    return getattr(sys.modules.get(module), name, ())


def _of_psycopg(error: Any) -> TallygateError:
    code: str | None = error.sqlstate
    message: str = error.diag.message_primary or str(error)
    if code is not None:
        kind = Transient if code.startswith("08") else _KINDS.get(code, TallygateError)
        return kind(message, code)
    if isinstance(error, _driver("psycopg", "DataError")):
        return Invalid(message)
    # Of a failed login libpq keeps no SQLSTATE: a wrong password looks like a server that is full.
    if error.pgconn is not None and error.pgconn.needs_password:
        return Refused(message)
    lost = isinstance(error, (_driver("psycopg", "OperationalError"), _driver("psycopg", "InterfaceError")))
    return (Transient if lost else TallygateError)(message)


def _of_pymysql(error: BaseException) -> TallygateError:
    number = error.args[0] if error.args else 0
    message = str(error.args[1]) if len(error.args) > 1 else str(error)
    # The error that the driver makes by itself of a connection that is gone has the number 0 or none.
    if isinstance(error, _driver("pymysql.err", "InterfaceError")) or not isinstance(number, int):
        lost = isinstance(error, _driver("pymysql.err", "InterfaceError"))
        return (Transient if lost else TallygateError)(message or "the connection is closed")
    return _KINDS.get(str(number), TallygateError)(message, str(number))
