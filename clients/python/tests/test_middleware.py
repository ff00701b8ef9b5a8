"""What a client sees of the middleware, asked by real ASGI and WSGI calls."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any
from wsgiref.handlers import SimpleHandler
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import httpx
import psycopg
import pytest

import tallygate
from tallygate import AsyncLimiter, ClientAddress, Limiter, asgi, wsgi

from .conftest import Db

Answer = tuple[int, dict[str, str], bytes]
Ask = Callable[..., Answer]


def ask_asgi(limiter: Any, zone: str, key: Any, *, peer: str = "203.0.113.9", **headers: str) -> Answer:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        remaining = scope["tallygate.decision"].remaining
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-left", b"%d" % remaining)]})
        await send({"type": "http.response.body", "body": b"welcome"})

    async def ask() -> Answer:
        limited = asgi.RateLimitMiddleware(app, limiter, zone, key)
        transport = httpx.ASGITransport(limited, client=(peer, 4711))  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            answer = await client.get("/", headers={k.replace("_", "-"): v for k, v in headers.items()})
            return answer.status_code, dict(answer.headers), answer.content

    return asyncio.run(ask())


def ask_wsgi(limiter: Limiter, zone: str, key: Any, *, peer: str = "203.0.113.9", **headers: str) -> Answer:
    def app(environ: Any, start_response: Any) -> Iterable[bytes]:
        remaining = environ["tallygate.decision"].remaining
        start_response("200 OK", [("x-left", str(remaining)), ("content-type", "text/plain")])
        return [b"welcome"]

    environ: dict[str, Any] = {"REMOTE_ADDR": peer, **{f"HTTP_{k.upper()}": v for k, v in headers.items()}}
    setup_testing_defaults(environ)
    sent = io.BytesIO()
    handler = SimpleHandler(io.BytesIO(), sent, io.StringIO(), environ, multithread=True, multiprocess=False)
    handler.run(validator(wsgi.RateLimitMiddleware(app, limiter, zone, key)))
    head, _, body = sent.getvalue().partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    fields = dict(line.lower().split(": ", 1) for line in lines)
    return int(status.split()[1]), fields, body


@pytest.fixture(params=["asgi", "wsgi", "asgi, asynchronous"])
def ask(request: pytest.FixtureRequest) -> Ask:
    if request.param == "wsgi":
        return ask_wsgi
    if request.param == "asgi":
        return ask_asgi

    def ask_async(limiter: Limiter, *arguments: Any, **headers: str) -> Answer:
        def connect() -> Any:
            given = limiter._connect()
            place = getattr(given, "place", None) or PLACE
            return psycopg.AsyncConnection.connect(**place, autocommit=True)

        return ask_asgi(AsyncLimiter(connect, deadline=limiter._deadline), *arguments, **headers)

    return ask_async


PLACE: dict[str, Any] = {}


@pytest.fixture
def limiter(postgres: Db) -> Limiter:
    PLACE.update(postgres.place)
    return postgres.limiter()


def test_what_passes_reaches_the_application(ask: Ask, limiter: Limiter, key: str) -> None:
    status, headers, body = ask(limiter, "login", lambda _: key)
    assert (status, headers["x-left"], body) == (200, "2", b"welcome")


def test_what_is_blocked_is_told_when_to_come_again(ask: Ask, limiter: Limiter, key: str) -> None:
    limiter.check("login", key, 3)
    status, headers, body = ask(limiter, "login", lambda _: key)
    assert status == 429
    assert headers["content-type"] == "application/problem+json"
    assert headers["cache-control"] == "no-store"
    assert 890 <= int(headers["retry-after"]) <= 900
    problem = httpx.Response(429, content=body).json()
    assert problem["type"].endswith("#quota-exceeded")
    assert (problem["status"], problem["violated-policies"]) == (429, ["login"])
    assert problem["detail"] == f"try again in {headers['retry-after']} s"


def test_a_wait_is_rounded_up_to_a_second(ask: Ask, limiter: Limiter, key: str) -> None:
    limiter.check("quick", key)
    status, headers, _ = ask(limiter, "quick", lambda _: key)
    if status == 200:  # a slow machine took longer than the window
        status, headers, _ = ask(limiter, "quick", lambda _: key)
    assert (status, headers["retry-after"]) == (429, "1")


def test_who_says_not_whom_it_comes_from_is_refused(ask: Ask, limiter: Limiter) -> None:
    status, headers, _ = ask(limiter, "login", lambda _: None)
    assert (status, headers["cache-control"]) == (400, "no-store")
    assert "retry-after" not in headers


def test_what_cannot_be_stored_is_the_clients_fault(ask: Ask, limiter: Limiter) -> None:
    assert ask(limiter, "login", lambda _: "x" * 256)[0] == 400


def test_a_zone_that_is_missing_is_the_operators_fault(ask: Ask, limiter: Limiter, key: str) -> None:
    status, _, body = ask(limiter, "nowhere", lambda _: key)
    assert status == 500
    assert b"nowhere" not in body


def test_nothing_passes_while_the_database_is_away(ask: Ask, key: str) -> None:
    place = {"host": "127.0.0.1", "port": 1, "connect_timeout": 1}
    PLACE.update(place)

    def connect() -> Any:
        return psycopg.connect(**place)

    class Away(Limiter):
        """What the asynchronous twin is made from never connects."""

    limiter = Away(connect, deadline=timedelta(milliseconds=50))
    if "ask_async" in repr(ask):
        limiter._connect = lambda: type("At", (), {"place": place})()  # type: ignore[assignment, return-value]
    status, headers, body = ask(limiter, "login", lambda _: key)
    assert (status, headers["retry-after"], headers["cache-control"]) == (503, "1", "no-store")
    assert headers["content-type"] == "application/problem+json"
    assert b"127.0.0.1" not in body


def test_by_itself_the_client_is_its_address(ask: Ask, limiter: Limiter) -> None:
    peer = f"203.0.113.{id(ask) % 250}"
    before = limiter.peek("card", f"ip:{peer}").remaining
    assert ask(limiter, "card", None, peer=peer, x_forwarded_for="198.51.100.1")[0] == 200
    assert limiter.peek("card", f"ip:{peer}").remaining == before - 1
    behind = ClientAddress(["203.0.113.0/24"])
    before = limiter.peek("card", "ip:198.51.100.1").remaining
    assert ask(limiter, "card", behind, peer=peer, x_forwarded_for="192.0.2.1, 198.51.100.1")[0] == 200
    assert limiter.peek("card", "ip:198.51.100.1").remaining == before - 1


@pytest.mark.parametrize("extensions", [{}, {"websocket.http.response": {}}])
def test_a_websocket_is_checked_when_it_opens(limiter: Limiter, key: str, extensions: dict[str, Any]) -> None:
    opened: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        opened.append(scope["type"])

    async def open_it(kind: str) -> list[Any]:
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "websocket.connect"}

        async def send(message: Any) -> None:
            sent.append(message)

        limited = asgi.RateLimitMiddleware(app, limiter, "login", lambda _: key)
        await limited({"type": kind, "headers": [], "extensions": extensions}, receive, send)
        return sent

    limiter.check("login", key, 2)
    assert asyncio.run(open_it("lifespan")) == []
    assert asyncio.run(open_it("websocket")) == []
    assert opened == ["lifespan", "websocket"]
    [first, *_] = asyncio.run(open_it("websocket"))
    if extensions:
        assert (first["type"], first["status"]) == ("websocket.http.response.start", 429)
    else:
        assert first == {"type": "websocket.close", "code": 1013}
    assert opened == ["lifespan", "websocket"]


def test_a_request_that_can_never_pass_is_told_no_time() -> None:
    from tallygate.refusal import of_decision

    decision: Any = type("D", (), {"retry_after_us": None, "reason": "banned", "zone": "z", "txn_id": 1})()
    refusal = of_decision(decision)
    assert "retry-after" not in dict(refusal.headers)
    assert b"abnormal-usage-detected" in refusal.body
    assert isinstance(decision, object)
    assert tallygate.Limiter is Limiter
