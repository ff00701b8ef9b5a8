"""What a limiter can be asked: the names and arguments of its methods, once for all limiters."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from datetime import timedelta
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar
from uuid import UUID

from .call import Call, Charges, CheckAll, CheckOne, Refund, Route, Undo
from .checks import Check, new_txn
from .decision import Decision

P = ParamSpec("P")
T = TypeVar("T")


class Asking:
    """Each method says what is to be asked; `called` makes one of it that asks it, by its limiter's `call`.

    Whatever charges has an id, so that it can be asked again and is charged once.
    """

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
    ) -> CheckOne:
        """As `tallygate.check`, committed when it returns."""
        return CheckOne(Check(zone, key, cost, txn or new_txn(), critical, member, record))

    def check_all(self, checks: Iterable[Check], txn: UUID | None = None) -> CheckAll:
        """Decides several limits of one transaction: all pass, or none is spent from.

        There is one decision for each, in their order. When one blocks, those that would have passed say
        `held_back`. The id is `txn`; those of the checks are not looked at. Raises as `check`, and Invalid
        where a bucket is named twice.
        """
        return CheckAll(tuple(checks), txn or new_txn())

    def peek(self, zone: str | int, key: str, *, member: str | None = None) -> CheckOne:
        """As `tallygate.peek`."""
        return CheckOne(Check(zone, key, cost=0, member=member))

    def reserve(
        self,
        zone: str | int,
        key: str,
        cost: int,
        ttl: timedelta,
        txn: UUID | None = None,
        *,
        critical: bool = False,
    ) -> CheckOne:
        """Charges now what is given back by itself after `ttl`, unless it is settled or cancelled.

        `ttl` is 1 microsecond to 10 years. Raises as `check`.
        """
        return CheckOne(Check(zone, key, cost, txn or new_txn(), critical, ttl=ttl))

    def settle(self, zone: str | int, key: str, txn: UUID, cost: int) -> Undo:
        """Turns a reservation into a charge of `cost`, once.

        What it comes to beyond the reservation is charged too, and never refused. Raises as `check`; Conflict
        where there is no such reservation, or it ended otherwise.
        """
        return Undo(zone, key, txn, "settle", cost)

    def cancel(self, zone: str | int, key: str, txn: UUID) -> Undo:
        """Gives a reservation back, once. Raises as `settle`."""
        return Undo(zone, key, txn, "cancel")

    def refund(self, zone: str | int, key: str, txn: UUID) -> Refund:
        """As `tallygate.refund`, committed when it returns."""
        return Refund(zone, key, txn)

    def release(self, zone: str | int, key: str, txn: UUID) -> Undo:
        """Gives a slot of a `concurrency` zone back, once. Raises as `settle`."""
        return Undo(zone, key, txn, "release")

    def charges(self, txn: UUID) -> Charges:
        """As `tallygate.charges`."""
        return Charges(txn)


class Checks(Protocol):
    """A limiter, as middleware needs it."""

    def check(self, zone: str | int, key: str) -> Decision:
        """As `tallygate.check`."""


class AsyncChecks(Protocol):
    """An asynchronous limiter, as middleware needs it."""

    def check(self, zone: str | int, key: str) -> Awaitable[Decision]:
        """As `tallygate.check`."""


def called(ask: Callable[Concatenate[Any, P], Call[T] | Route[T]]) -> Callable[Concatenate[Any, P], T]:
    """The method of a limiter that asks this and answers."""

    @functools.wraps(ask)
    def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        answer: T = self.call(ask(self, *args, **kwargs))
        return answer

    return method


def called_async(
    ask: Callable[Concatenate[Any, P], Call[T] | Route[T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """The same of an asynchronous limiter."""

    @functools.wraps(ask)
    async def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        answer: T = await self.call(ask(self, *args, **kwargs))
        return answer

    return method
