"""The calls of `tallygate.joining`, on synchronous connections."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from . import joining
from .beyond import BeyondSql
from .driver import translated, unwrap
from .joining import Joined

P = ParamSpec("P")
T = TypeVar("T")


def _run(join: Callable[P, Joined[T]]) -> Callable[P, T]:
    @functools.wraps(join)
    def function(*args: P.args, **kwargs: P.kwargs) -> T:
        joined = join(*args, **kwargs)
        with translated():
            return unwrap(joined.connection).run(joined.call, joined.how)

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
