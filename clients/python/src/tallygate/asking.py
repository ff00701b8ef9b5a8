"""What a limiter can be asked: the names and arguments of its methods, once for all limiters."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from datetime import timedelta
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar
from uuid import UUID

from .call import Call, Charges, CheckAll, CheckMany, CheckOne, Route, Undo
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
        """As `tallygate.check_all`, committed when it returns."""
        return CheckAll(tuple(checks), txn or new_txn())

    def check_many(self, checks: Iterable[Check]) -> CheckMany:
        """As `tallygate.check_many`, committed when it returns; after an error none of them was decided."""
        return CheckMany.of(tuple(checks))

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
        """As `tallygate.reserve`, committed when it returns."""
        return CheckOne(Check(zone, key, cost, txn or new_txn(), critical, ttl=ttl))

    def settle(self, zone: str | int, key: str, txn: UUID, cost: int) -> Undo:
        """As `tallygate.settle`, committed when it returns."""
        return Undo(zone, key, txn, "settle", cost)

    def cancel(self, zone: str | int, key: str, txn: UUID) -> Undo:
        """As `tallygate.cancel`, committed when it returns."""
        return Undo(zone, key, txn, "cancel")

    def refund(self, zone: str | int, key: str, txn: UUID) -> Undo:
        """As `tallygate.refund`, committed when it returns."""
        return Undo(zone, key, txn, "refund")

    def release(self, zone: str | int, key: str, txn: UUID) -> Undo:
        """As `tallygate.release`, committed when it returns."""
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
