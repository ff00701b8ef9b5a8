"""The calls of `tallygate.joining`, on synchronous connections."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from . import joining
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
check_all = _run(joining.check_all)
check_many = _run(joining.check_many)
peek = _run(joining.peek)
reserve = _run(joining.reserve)
settle = _run(joining.settle)
cancel = _run(joining.cancel)
refund = _run(joining.refund)
release = _run(joining.release)
charges = _run(joining.charges)
