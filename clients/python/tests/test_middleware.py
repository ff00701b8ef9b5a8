"""What a client sees of the middleware, asked by real ASGI and WSGI calls."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import Any
from wsgiref.handlers import SimpleHandler
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import httpx
import psycopg
import pytest

from tallygate import AsyncLimiter, ClientAddress, Limiter, asgi, wsgi
from tallygate.http import AsyncHttpLimiter, HttpLimiter
from tallygate.refusal import of_decision

from .conftest import Db
from .serve import Server

Place = dict[str, Any]
Answer = tuple[int, dict[str, str], bytes]
Ask = Callable[..., Answer]
SHORT = timedelta(seconds=1)


def ask_asgi(limiter: Any, zone: str, key: Any, peer: str, headers: dict[str, str]) -> Answer:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        left = b"%d" % scope["tallygate.decision"].remaining
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-left", left)]})
        await send({"type": "http.response.body", "body": b"welcome"})

    async def ask() -> Answer:
        limited: Any = asgi.RateLimitMiddleware(app, limiter, zone, key)
        transport = httpx.ASGITransport(limited, client=(peer, 4711))
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            answer = await client.get("/", headers=headers)
            return answer.status_code, dict(answer.headers), answer.content

    return asyncio.run(ask())


def ask_wsgi(limiter: Any, zone: str, key: Any, peer: str, headers: dict[str, str]) -> Answer:
    def app(environ: Any, start_response: Any) -> Iterable[bytes]:
        left = str(environ["tallygate.decision"].remaining)
        start_response("200 OK", [("x-left", left), ("content-type", "text/plain")])
        return [b"welcome"]

    environ: dict[str, Any] = {"REMOTE_ADDR": peer, "QUERY_STRING": ""}
    environ |= {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()}
    setup_testing_defaults(environ)
    sent, errors = io.BytesIO(), io.StringIO()
    handler = SimpleHandler(io.BytesIO(), sent, errors, environ, multithread=True, multiprocess=False)
    limited: Any = validator(wsgi.RateLimitMiddleware(app, limiter, zone, key))
    handler.run(limited)
    assert errors.getvalue() == ""
    head, _, body = sent.getvalue().partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    fields = dict(line.split(": ", 1) for line in lines)
    return int(status.split()[1]), {name.lower(): value for name, value in fields.items()}, body


@pytest.fixture(params=["wsgi", "asgi", "asgi by threads"])
def ask(request: pytest.FixtureRequest) -> Ask:
    """Asks a limited application whose database is at a place."""

    def ask(place: Place, zone: str, key: Any = None, peer: str = "203.0.113.9", **headers: str) -> Answer:
        def connect() -> Any:
            return psycopg.connect(**place, autocommit=True)

        def connect_async() -> Any:
            return psycopg.AsyncConnection.connect(**place, autocommit=True)

        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if request.param == "wsgi":
            return ask_wsgi(Limiter(connect, deadline=SHORT), zone, key, peer, named)
        if request.param == "asgi":
            return ask_asgi(AsyncLimiter(connect_async, deadline=SHORT), zone, key, peer, named)
        return ask_asgi(Limiter(connect, deadline=SHORT), zone, key, peer, named)

    return ask


def test_what_passes_reaches_the_application(ask: Ask, postgres: Db, key: str) -> None:
    status, headers, body = ask(postgres.place, "login", lambda _: key)
    assert (status, headers["x-left"], body) == (200, "2", b"welcome")


def test_what_is_blocked_is_told_when_to_come_again(ask: Ask, postgres: Db, key: str) -> None:
    postgres.limiter().check("login", key, 3)
    status, headers, body = ask(postgres.place, "login", lambda _: key)
    assert status == 429
    assert headers["content-type"] == "application/problem+json"
    assert headers["cache-control"] == "no-store"
    assert 890 <= int(headers["retry-after"]) <= 900
    problem = httpx.Response(429, content=body).json()
    assert problem["type"].endswith("#quota-exceeded")
    assert (problem["status"], problem["violated-policies"]) == (429, ["login"])
    assert problem["detail"] == f"try again in {headers['retry-after']} s"


def test_a_wait_is_rounded_up_to_a_second(ask: Ask, postgres: Db, key: str) -> None:
    postgres.limiter().check("quick", key)
    status, headers, _ = ask(postgres.place, "quick", lambda _: key)
    if status == 200:  # a slow machine took longer than the window
        status, headers, _ = ask(postgres.place, "quick", lambda _: key)
    assert (status, headers["retry-after"]) == (429, "1")


def test_who_says_not_whom_it_comes_from_is_refused(ask: Ask, postgres: Db) -> None:
    status, headers, _ = ask(postgres.place, "login", lambda _: None)
    assert (status, headers["cache-control"]) == (400, "no-store")
    assert "retry-after" not in headers


def test_what_cannot_be_stored_is_the_clients_fault(ask: Ask, postgres: Db) -> None:
    assert ask(postgres.place, "login", lambda _: "x" * 256)[0] == 400


def test_a_zone_that_is_missing_is_the_operators_fault(ask: Ask, postgres: Db, key: str) -> None:
    status, _, body = ask(postgres.place, "nowhere", lambda _: key)
    assert status == 500
    assert b"nowhere" not in body


def test_nothing_passes_while_the_database_is_away(ask: Ask, postgres: Db, key: str) -> None:
    status, headers, body = ask({**postgres.place, "port": 1}, "login", lambda _: key)
    assert (status, headers["retry-after"], headers["cache-control"]) == (503, "1", "no-store")
    assert headers["content-type"] == "application/problem+json"
    assert b"127.0.0.1" not in body


def test_a_server_may_decide_in_place_of_the_database(server: Server, key: str) -> None:
    once = httpx.Limits(max_keepalive_connections=0)  # so that no connection outlives its event loop

    def asks(url: str) -> list[tuple[Ask, Any]]:
        waiting = partial(httpx.HTTPTransport, limits=once)
        awaited = partial(httpx.AsyncHTTPTransport, limits=once)
        return [
            (ask_wsgi, HttpLimiter(url, deadline=SHORT, transport=waiting)),
            (ask_asgi, HttpLimiter(url, deadline=SHORT, transport=waiting)),
            (ask_asgi, AsyncHttpLimiter(url, deadline=SHORT, transport=awaited)),
        ]

    for number, (ask, limiter) in enumerate(asks(server.url)):
        status, headers, body = ask(limiter, "login", lambda _: key, "", {})
        assert (status, headers["x-left"], body) == (200, str(2 - number), b"welcome")
    for ask, limiter in asks(server.url):
        status, headers, _ = ask(limiter, "login", lambda _: key, "", {})
        assert (status, headers["content-type"]) == (429, "application/problem+json")
        assert 890 <= int(headers["retry-after"]) <= 900
    for ask, limiter in asks(server.url):
        assert ask(limiter, "login", lambda _: "x" * 256, "", {})[0] == 400
    for ask, limiter in asks(server.url):
        assert ask(limiter, "nowhere", lambda _: key, "", {})[0] == 500
    for ask, limiter in asks("http://127.0.0.1:1"):
        assert ask(limiter, "login", lambda _: key, "", {})[0] == 503


def test_by_itself_the_client_is_its_address(ask: Ask, postgres: Db) -> None:
    limiter, peer, client = postgres.limiter(), "203.0.113.9", "198.51.100.1"

    def left(address: str) -> int:
        return limiter.peek("card", f"ip:{address}").remaining

    before = left(peer), left(client)
    assert ask(postgres.place, "card", peer=peer, x_forwarded_for=client)[0] == 200
    assert (left(peer), left(client)) == (before[0] - 1, before[1])
    behind = ClientAddress(["203.0.113.0/24"])
    assert ask(postgres.place, "card", behind, peer, x_forwarded_for=f"192.0.2.1, {client}")[0] == 200
    assert (left(peer), left(client)) == (before[0] - 1, before[1] - 1)


@pytest.mark.parametrize("extensions", [{}, {"websocket.http.response": {}}])
def test_a_websocket_is_checked_when_it_opens(postgres: Db, key: str, extensions: dict[str, Any]) -> None:
    limiter = postgres.limiter()
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


def test_a_request_that_can_never_pass_is_told_no_time(postgres: Db, key: str) -> None:
    refusal = of_decision(postgres.limiter().check("login", key, 4))
    assert refusal.status == 429
    assert "retry-after" not in dict(refusal.headers)
    assert b"never" in refusal.body


def test_a_block_that_is_told_again_says_no_time(postgres: Db, key: str) -> None:
    limiter = postgres.limiter()
    limiter.check("login", key, 3)
    blocked = limiter.check("login", key)
    assert "retry-after" in dict(of_decision(blocked).headers)
    again = of_decision(limiter.check("login", key, txn=blocked.txn_id))
    assert (again.status, "retry-after" in dict(again.headers)) == (429, False)
    assert b"new transaction" in again.body


def test_a_zone_may_differ_by_request_and_none_limits_nothing(ask: Ask, postgres: Db, key: str) -> None:
    postgres.limiter().check("login", key, 3)
    for zone, status in [("login", 429), ("card", 200)]:
        assert ask(postgres.place, lambda _, zone=zone: zone, lambda _: key)[0] == status

    def app(environ: Any, start_response: Any) -> list[bytes]:
        return [] if "tallygate.decision" in environ else [b"free"]

    free: Any = wsgi.RateLimitMiddleware(app, postgres.limiter(), lambda _: None, lambda _: key)
    assert free({}, print) == [b"free"]
