"""When to try again: bounded attempts, full jitter, one deadline."""

from __future__ import annotations

import random
import time
from datetime import timedelta

from .error import TallygateError, Transient

_FIRST_S = 0.002
_CAP_S = 0.1

# MySQL drops a routine and makes it again when it is upgraded: for some milliseconds there is none, or no
# right to it.
_REPLACED = {"1305", "1370"}
_REPLACED_ATTEMPTS = 8


class Tries:
    """The attempts of one call, from its making on. They are counted on this host's monotonic clock."""

    def __init__(self, attempts: int, deadline: timedelta) -> None:
        self._attempts = attempts
        self._until = time.monotonic() + deadline.total_seconds()
        self._tried = 0

    @property
    def left(self) -> timedelta:
        """The time until the deadline."""
        return timedelta(seconds=max(0.0, self._until - time.monotonic()))

    def next(self, error: TallygateError) -> float | None:
        """How many seconds to wait before the next attempt; None where there is none.

        The n-th wait is drawn evenly from nothing to 2^n times 2 ms, at most 100 ms, so that those who failed
        together part.
        """
        self._tried += 1
        if isinstance(error, Transient):
            attempts = self._attempts
        else:
            attempts = min(self._attempts, _REPLACED_ATTEMPTS) if error.code in _REPLACED else 1
        wait_s = random.uniform(0, min(_CAP_S, _FIRST_S * 2 ** min(self._tried, 16)))  # noqa: S311 - no secret
        if self._tried >= attempts or time.monotonic() + wait_s >= self._until:
            return None
        return wait_s
