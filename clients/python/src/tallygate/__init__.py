"""Exact, recorded rate limits in the SQL database that you already use.

The functions join the caller's own transaction; `Limiter` and `AsyncLimiter` open their own. `tallygate.aio`
has the functions for asynchronous connections, `tallygate.http` has limiters that ask a server and can do
more, `tallygate.asgi` and `tallygate.wsgi` have middleware, importing `tallygate.limits` makes a storage for
the library `limits`, and `tallygate.testing` has a clock for tests.
"""

from .address import ClientAddress
from .alimiter import AsyncLimiter
from .checks import Check
from .decision import Charge, Decision, Recorded
from .error import Conflict, Invalid, Refused, Schema, TallygateError, Transient, UnknownZone
from .joined import cancel, charges, check, check_all, check_many, peek, refund, release, reserve, settle
from .limiter import Limiter, kept

__all__ = [
    "AsyncLimiter",
    "Charge",
    "Check",
    "ClientAddress",
    "Conflict",
    "Decision",
    "Invalid",
    "Limiter",
    "Recorded",
    "Refused",
    "Schema",
    "TallygateError",
    "Transient",
    "UnknownZone",
    "cancel",
    "charges",
    "check",
    "check_all",
    "check_many",
    "kept",
    "peek",
    "refund",
    "release",
    "reserve",
    "settle",
]
