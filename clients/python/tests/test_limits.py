"""The storage for the library `limits`, and the frameworks on it."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import flask
import httpx
import pytest
from flask_limiter import Limiter as FlaskLimiter
from limits import RateLimitItemPerMinute, RateLimitItemPerSecond
from limits.errors import ConfigurationError, StorageError
from limits.storage import storage_from_string
from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter, SlidingWindowCounterRateLimiter
from slowapi import Limiter as SlowLimiter
from slowapi import _rate_limit_exceeded_handler
from slowapi.errors import RateLimitExceeded
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse

import tallygate
from tallygate.limits import TallygateStorage, _bucket, zone_name

from .conftest import Db

FIVE = RateLimitItemPerMinute(5)


def uri(db: Db) -> str:
    return db.url("tallygate+" + ("postgresql" if db.is_postgres else db.engine))


@pytest.fixture
def storage(db: Db) -> Iterator[Any]:
    return storage_from_string(uri(db))  # type: ignore[return-value]


def test_hits_are_checks(db: Db, storage: Any, key: str) -> None:
    moving = MovingWindowRateLimiter(storage)
    assert moving.hit(FIVE, key, cost=3)
    assert moving.test(FIVE, key, cost=2)
    assert not moving.test(FIVE, key, cost=3)
    assert not moving.hit(FIVE, key, cost=3)
    assert moving.hit(FIVE, key, cost=2)
    assert not moving.hit(FIVE, key)
    assert not moving.hit(FIVE, key, cost=6)
    assert db.rows(FIVE.key_for(key)) == 5


def test_the_window_begins_with_its_oldest_entry(db: Db, storage: Any, key: str) -> None:
    moving = MovingWindowRateLimiter(storage)
    empty = moving.get_window_stats(FIVE, key)
    assert empty.remaining == 5
    moving.hit(FIVE, key, cost=2)
    first = first_time(db, FIVE.key_for(key))
    moving.hit(FIVE, key)
    for _ in range(2):
        stats = moving.get_window_stats(FIVE, key)
        assert stats.remaining == 2
        assert stats.reset_time == math.ceil(first + 60), "rounded up: Flask-Limiter cuts it to seconds"
    assert db.rows(FIVE.key_for(key)) == 2
    moving.hit(FIVE, key, cost=2)
    stats = moving.get_window_stats(FIVE, key)
    assert stats.remaining == 0
    assert stats.reset_time == math.ceil(first + 60), "rounded up: Flask-Limiter cuts it to seconds"


def first_time(db: Db, bucket: str) -> float:
    """When the first row of a bucket was written, by the ledger."""
    if db.is_postgres:
        sql = "select extract(epoch from min(created_at)) * 1000000 from zone_txn where bucket_key = %s"
    else:
        sql = """select timestampdiff(microsecond, '1970-01-01', min(created_at))
            from zone_txn where bucket_key = cast(%s as binary)"""
    [(micros,)] = db.owner(sql, bucket)
    return int(micros) / 1_000_000


def test_it_passes_again_at_the_reset(storage: Any, key: str) -> None:
    two = RateLimitItemPerSecond(2)
    moving = MovingWindowRateLimiter(storage)
    assert moving.hit(two, key, cost=2)
    stats = moving.get_window_stats(two, key)
    assert stats.remaining == 0
    time.sleep(max(0.0, stats.reset_time - time.time()))
    assert moving.hit(two, key, cost=2)


def test_threads_get_exactly_the_limit(storage: Any, key: str) -> None:
    moving = MovingWindowRateLimiter(storage)
    with ThreadPoolExecutor(8) as threads:
        hits = list(threads.map(lambda _: moving.hit(FIVE, key), range(24)))
    assert sum(hits) == 5


def test_an_override_of_a_bucket_holds(db: Db, storage: Any, key: str) -> None:
    """What is left is what the override leaves, whatever the limit's own number."""
    moving = MovingWindowRateLimiter(storage)
    bucket = FIVE.key_for(key)
    of = ("limits-5-per-60s", bucket, "--rate", "50", "--per", "60s", "--note", "a test")
    db.command("override", "set", *of)
    assert moving.hit(FIVE, key, cost=30)
    assert moving.get_window_stats(FIVE, key).remaining == 20
    assert moving.test(FIVE, key, cost=20)
    assert not moving.test(FIVE, key, cost=21)


def test_what_cannot_be_had_says_so(storage: Any, key: str) -> None:
    fixed = FixedWindowRateLimiter(storage)
    for call in (fixed.hit, fixed.test, fixed.get_window_stats):
        with pytest.raises(NotImplementedError, match="moving-window"):
            call(FIVE, key)
    with pytest.raises(NotImplementedError):
        SlidingWindowCounterRateLimiter(storage)
    with pytest.raises(NotImplementedError, match="ledger"):
        MovingWindowRateLimiter(storage).clear(FIVE, key)
    with pytest.raises(NotImplementedError, match="ledger"):
        storage.reset()


def test_a_limit_without_its_zone_says_what_to_run(storage: Any, key: str) -> None:
    moving = MovingWindowRateLimiter(storage)
    with pytest.raises(tallygate.UnknownZone, match="tallygate zone set limits-6-per-60s --rate 6 --per 60s"):
        moving.hit(RateLimitItemPerMinute(6), key)
    with pytest.raises(ConfigurationError, match="tallygate zone set limits-7-per-60s"):
        moving.hit(RateLimitItemPerMinute(7), key)
    assert zone_name(5, 60) == "limits-5-per-60s"


def test_errors_are_wrapped_if_asked(db: Db, key: str) -> None:
    away = db._replace(owner_url=db.owner_url.rsplit(":", 1)[0] + ":1/tg")
    wrapped: Any = storage_from_string(uri(away), wrap_exceptions=True, deadline_s=0.05)
    with pytest.raises(StorageError):
        MovingWindowRateLimiter(wrapped).hit(FIVE, key)
    assert wrapped.check() is False


def test_it_answers_while_the_database_does(storage: Any) -> None:
    assert storage.check() is True


def test_urls_are_read(db: Db) -> None:
    with pytest.raises(ConfigurationError, match="no option"):
        storage_from_string("tallygate+mysql://app@db/app?pool=7")
    with pytest.raises(ConfigurationError, match="no URL"):
        TallygateStorage("postgresql://app@db/app")
    given = TallygateStorage(connect=tallygate.kept(lambda: db.connect(autocommit=True)))
    assert given.check()


@pytest.mark.parametrize("odd", ["x" * 300, "tab\t", "nul\x00", "lone \ud800", "\x85"])
def test_odd_keys_are_known_by_their_digest(storage: Any, key: str, odd: str) -> None:
    moving = MovingWindowRateLimiter(storage)
    assert moving.hit(FIVE, key, odd, cost=5)
    assert not moving.hit(FIVE, key, odd)
    assert moving.hit(FIVE, key, odd + "x")
    assert _bucket(odd).startswith("sha256:")
    assert _bucket("erased:x").startswith("sha256:")
    assert _bucket("LIMITER/ü/5/1/minute") == "LIMITER/ü/5/1/minute"


def test_flask_limiter_works_on_it(db: Db, key: str) -> None:
    app = flask.Flask("shop")
    limiter = FlaskLimiter(
        lambda: key, app=app, storage_uri=uri(db), strategy="moving-window", headers_enabled=True
    )

    @app.get("/")
    @limiter.limit("5/minute")
    def index() -> str:
        return "welcome"

    client = app.test_client()
    answers = [client.get("/") for _ in range(7)]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429] * 2
    assert [answer.headers["X-RateLimit-Remaining"] for answer in answers] == [
        "4",
        "3",
        "2",
        "1",
        "0",
        "0",
        "0",
    ]
    assert 55 <= int(answers[-1].headers["Retry-After"]) <= 61
    with pytest.raises(NotImplementedError):
        limiter.storage.reset()


def test_slowapi_works_on_it(db: Db, key: str) -> None:
    limiter = SlowLimiter(lambda: key, storage_uri=uri(db), strategy="moving-window")

    @limiter.limit("5/minute")
    def index(request: Request) -> PlainTextResponse:
        return PlainTextResponse("welcome")

    app = Starlette()
    app.state.limiter = limiter
    app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)
    app.add_route("/", index)

    async def ask() -> list[int]:
        transport: Any = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            return [(await client.get("/")).status_code for _ in range(7)]

    assert asyncio.run(ask()) == [200] * 5 + [429] * 2
