"""The calls of `tallygate.joining` on asynchronous connections, with the same names, arguments and errors.

`connection` is an `AsyncConnection` or `AsyncCursor` of psycopg 3, or an `AsyncSession` or `AsyncConnection`
of SQLAlchemy over it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from . import joining
from .beyond import BeyondSql
from .driver import translated, unwrap_async
from .joining import Joined

P = ParamSpec("P")
T = TypeVar("T")


def _run(join: Callable[P, Joined[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    @functools.wraps(join)
    async def function(*args: P.args, **kwargs: P.kwargs) -> T:
        joined = join(*args, **kwargs)
        with translated():
            driver = await unwrap_async(joined.connection)
            return await driver.run(joined.call, joined.how)

    return function


check = _run(joining.check)
peek = _run(joining.peek)
refund = _run(joining.refund)
charges = _run(joining.charges)

check_all = BeyondSql.check_all
check_many = BeyondSql.check_many
reserve = BeyondSql.reserve
settle = BeyondSql.settle
cancel = BeyondSql.cancel
release = BeyondSql.release
