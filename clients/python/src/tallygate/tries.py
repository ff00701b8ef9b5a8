"""When to try again: bounded attempts, full jitter, one deadline."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from . import steps
from .error import TallygateError, Transient

T = TypeVar("T")

_FIRST_S = 0.002
_CAP_S = 0.1

# MySQL drops a routine and makes it again when it is upgraded: for some milliseconds there is none, or no
# right to it.
_REPLACED = {"1305", "1370"}
_REPLACED_ATTEMPTS = 8


@dataclass(frozen=True)
class Patience:
    """How long and how often a call is tried. Time is that of this host's monotonic clock."""

    deadline: timedelta
    attempts: int

    def __post_init__(self) -> None:
        if not isinstance(self.deadline, timedelta):
            raise TypeError(f"deadline is {self.deadline!r}; use a timedelta, as timedelta(seconds=2)")

    def run(self, once: Callable[[timedelta], T], txn: UUID | None) -> T:
        """Calls `once` with the time that is left, and again after what is transient.

        At last the error is raised and carries the transaction's id.
        """
        return steps.run(self._tries(once, time.sleep, txn))

    async def run_async(self, once: Callable[[timedelta], Awaitable[T]], txn: UUID | None) -> T:
        """As `run`. What has no answer at the deadline is cancelled, and is transient."""

        async def in_time(left: timedelta) -> T:
            try:
                return await asyncio.wait_for(once(left), left.total_seconds())
            except asyncio.TimeoutError as late:
                raise Transient(f"no answer within {self.deadline.total_seconds()} s") from late

        return await steps.run_async(self._tries(in_time, asyncio.sleep, txn))

    def _tries(
        self, once: Callable[[timedelta], T | Awaitable[T]], sleep: Callable[[float], Any], txn: UUID | None
    ) -> steps.Steps[T]:
        until = time.monotonic() + self.deadline.total_seconds()
        tried = 0
        while True:
            try:
                answer: T = yield once(timedelta(seconds=max(0.0, until - time.monotonic())))
                return answer
            except TallygateError as error:
                tried += 1
                wait_s = _wait_s(tried)
                if tried >= self._attempts(error) or time.monotonic() + wait_s >= until:
                    error.txn_id = txn
                    raise
            yield sleep(wait_s)

    def _attempts(self, error: TallygateError) -> int:
        if isinstance(error, Transient):
            return self.attempts
        return min(self.attempts, _REPLACED_ATTEMPTS) if error.code in _REPLACED else 1


def _wait_s(tried: int) -> float:
    """Drawn evenly from nothing to 2^n times 2 ms, at most 100 ms, so that those who failed together part."""
    return random.uniform(0, min(_CAP_S, _FIRST_S * 2 ** min(tried, 16)))  # noqa: S311 - no secret
