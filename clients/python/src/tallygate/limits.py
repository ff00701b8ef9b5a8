"""A storage for the library `limits`, and so for Flask-Limiter and slowapi.

Importing this module makes its schemes known. Only the strategy `moving-window` can be had, which is a zone's
`sliding-log`: exact over every window, and each hit is a row of the ledger. The strategy `fixed-window`
counts without saying what the limit is, so that nothing could be decided or recorded as what it was: it
raises NotImplementedError, and so does forgetting what was counted.

A zone stands for a limit. It is made by an operator, who names it as `zone_name` does:

    tallygate zone set limits-5-per-60s --rate 5 --per 60s
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import unicodedata
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NoReturn
from urllib.parse import parse_qsl, unquote, urlsplit

from limits.errors import ConfigurationError
from limits.storage import MovingWindowSupport, Storage

from .call import CheckOne, FindZone, How
from .checks import Check
from .decision import Decision
from .driver import Driver
from .error import TallygateError, Transient, UnknownZone
from .limiter import Limiter, kept

_SECOND_US = 1_000_000
_PREFIX = "limits"


class TallygateStorage(Storage, MovingWindowSupport):
    """Decides in the database of a URL.

    It is `tallygate+postgresql://…`, as libpq knows it, or `tallygate+mysql://…` or `tallygate+mariadb://…`,
    with the options `unix_socket` and `ssl_ca` and no others.

    Options: `connect`, a `connect` for `Limiter` in place of the URL's connections, which are one for each
    thread; `prefix`, what the names of its zones begin with, `limits` by itself; `deadline_s`, how long a
    call may take, 5 by itself.

    UnknownZone where a zone is missing, ConfigurationError where it is not what the limit says; a zone is
    looked at when its limit is first used. A limit that is changed for a single bucket (`tallygate override`)
    holds here too.
    """

    STORAGE_SCHEME = ["tallygate+postgresql", "tallygate+mysql", "tallygate+mariadb"]  # noqa: RUF012 - as its base

    def __init__(
        self,
        uri: str | None = None,
        wrap_exceptions: bool = False,
        *,
        connect: Callable[[], contextlib.AbstractContextManager[Any]] | None = None,
        prefix: str = _PREFIX,
        deadline_s: float = 5,
    ) -> None:
        super().__init__(uri, wrap_exceptions)
        connect = connect or kept(_connect(uri or ""))
        self._limiter = Limiter(connect, deadline=timedelta(seconds=deadline_s))
        self._prefix = prefix
        self._known: set[str] = set()

    @property
    def base_exceptions(self) -> type[Exception]:
        """What `wrap_exceptions` wraps."""
        return TallygateError

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Takes so many entries of a limit in the last `expiry` seconds, or none: one check, and one row."""
        return self._limiter.check(self._zone(limit, expiry), _bucket(key), amount).allowed

    def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        """When the oldest entry was made, in seconds since 1970, and how many there are.

        The time is the database's, learned from the wait that one entry too many would be told, in a
        transaction that is taken back: the bucket is locked for two statements, and no row stays. An override
        of the bucket's limit is counted in, so that `limit` less the answer is always what is left.
        """
        zone, bucket = self._zone(limit, expiry), _bucket(key)
        now = self._limiter.peek(zone, bucket)
        if now.remaining >= now.limit:
            return now.decided_at.timestamp(), limit - now.remaining
        now, more = self._limiter.attempt(functools.partial(_one_more, zone, bucket))
        if more is None or more.retry_after_us is None:
            return now.decided_at.timestamp(), limit - now.remaining
        passes_at = more.decided_at.timestamp() + more.retry_after_us / _SECOND_US
        # Frameworks cut it to whole seconds, and nobody may come before it passes.
        return math.ceil(passes_at) - expiry, limit - now.remaining

    def check(self) -> bool:
        """True while the database answers."""
        try:
            self._limiter.call(FindZone(self._prefix))
        except TallygateError:
            return False
        return True

    def incr(self, key: str, expiry: int, amount: int = 1) -> NoReturn:
        """Not to be had: NotImplementedError."""
        raise NotImplementedError(_FIXED)

    def get(self, key: str) -> NoReturn:
        """Not to be had: NotImplementedError."""
        raise NotImplementedError(_FIXED)

    def get_expiry(self, key: str) -> NoReturn:
        """Not to be had: NotImplementedError."""
        raise NotImplementedError(_FIXED)

    def reset(self) -> NoReturn:
        """Not to be had: NotImplementedError."""
        raise NotImplementedError(_KEPT)

    def clear(self, key: str) -> NoReturn:
        """Not to be had: NotImplementedError."""
        raise NotImplementedError(_KEPT)

    def _zone(self, limit: int, expiry: int) -> str:
        name = zone_name(limit, expiry, self._prefix)
        if name not in self._known:
            found = self._limiter.call(FindZone(name))
            remedy = f"run: tallygate zone set {name} --rate {limit} --per {expiry}s"
            if found is None:
                raise UnknownZone(f"there is no zone {name}; {remedy}")
            is_it = (found.algorithm, found.rate, found.window_us, found.mode)
            if is_it != ("sliding-log", limit, expiry * _SECOND_US, "enforce"):
                raise ConfigurationError(f"the zone {name} is not the limit that it is named for; {remedy}")
            self._known.add(name)
        return name


_FIXED = "tallygate decides by limits and does not count without one: use the strategy moving-window"
_KEPT = "what is in tallygate's ledger stays there; an operator can lift a limit by: tallygate override set"


def zone_name(limit: int, expiry: int, prefix: str = _PREFIX) -> str:
    """The name of the zone for so many hits in so many seconds."""
    return f"{prefix}-{limit}-per-{expiry}s"


def _one_more(zone: str, bucket: str, driver: Driver, left: timedelta) -> tuple[Decision, Decision | None]:
    """What is left of a bucket, and what one more would be told, in a transaction that is taken back.

    None where nothing is taken.
    """
    with driver.trial():
        now = driver.run(CheckOne(Check(zone, bucket, 0, record=True)), How(lock_wait=left))
        if now.remaining >= now.limit:
            return now, None
        more = driver.run(CheckOne(Check(zone, bucket, now.remaining + 1)), How(lock_wait=left))
    if more.allowed:
        raise Transient("an entry left the window meanwhile")
    return now, more


def _bucket(key: str) -> str:
    """A key as it can be stored. What is too long, or has control characters, is known by its SHA-256.

    Each key of `limits` has a slash and a digest has none, so no two keys meet.
    """
    stored = key.encode("utf-8", "surrogatepass")
    odd = any(unicodedata.category(letter) in ("Cc", "Cs") for letter in key)
    if len(stored) <= 255 and not odd and not key.startswith("erased:"):
        return key
    return f"sha256:{hashlib.sha256(stored).hexdigest()}"


def _connect(uri: str) -> Callable[[], Any]:
    """What connects to a URL of ours."""
    scheme, _, rest = uri.partition("://")
    if scheme == "tallygate+postgresql":
        import psycopg

        return functools.partial(psycopg.connect, f"postgresql://{rest}", autocommit=True)
    if scheme in ("tallygate+mysql", "tallygate+mariadb"):
        import pymysql

        url = urlsplit(f"mysql://{rest}")
        options: dict[str, Any] = dict(parse_qsl(url.query))
        unknown = options.keys() - {"unix_socket", "ssl_ca"}
        if unknown:
            raise ConfigurationError(
                f"tallygate knows no option {sorted(unknown)} in a URL; use unix_socket, ssl_ca"
            )
        return functools.partial(
            pymysql.connect,
            host=url.hostname or "localhost",
            port=url.port or 3306,
            user=unquote(url.username or ""),
            password=unquote(url.password or ""),
            database=unquote(url.path.removeprefix("/")),
            autocommit=True,
            **options,
        )
    raise ConfigurationError(f"{scheme}:// is no URL of tallygate's; use {TallygateStorage.STORAGE_SCHEME}")
