"""Limiters that ask `tallygate serve`, by httpx, for whom the database is out of reach."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import quote, urlencode
from uuid import UUID

try:
    import httpx
except ImportError as missing:
    raise ImportError("tallygate.http needs httpx: pip install 'tallygate[http]'") from missing

from . import steps
from .asking import Asking, called, called_async
from .call import Request, Route
from .driver import translated
from .error import TallygateError, Transient, of_code
from .steps import Steps
from .told import the_object
from .tries import Patience

T = TypeVar("T")

_ANSWER_BYTES_MAX = 64 * 2**20


@dataclass(frozen=True)
class Read:
    """What is only read, answered as the object that the server tells."""

    path: tuple[str, ...]
    query: tuple[tuple[str, Any], ...] = ()
    txn_id = None

    def request(self) -> Request:
        # Dots are encoded too, since two of them would lead elsewhere.
        path = "/".join(quote(part, safe="").replace(".", "%2E") for part in self.path)
        # A space as %20: a server refuses a plus, which may mean either.
        query = urlencode([(name, value) for name, value in self.query if value is not None], quote_via=quote)
        return Request(f"{path}?{query}" if query else path)

    def answer(self, said: object) -> dict[str, Any]:
        return the_object(said)


class Reading:
    """What a server tells of the ledger to an auditor, in its own JSON; see `tallygate.asking`."""

    def history(
        self,
        *,
        zone: str | None = None,
        key: str | None = None,
        txn: UUID | None = None,
        blocked: bool | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> Read:
        """A page of the ledger, newest first: `rows`, and `next`, which is `before` of the page after it."""
        filters = (
            ("zone", zone),
            ("key", key),
            ("txn", txn),
            ("blocked", None if blocked is None else str(blocked).lower()),
            ("since", since and since.isoformat()),
            ("until", until and until.isoformat()),
            ("limit", limit),
            ("before", before),
        )
        return Read(("history",), filters)

    def transaction(self, txn: UUID) -> Read:
        """The `rows` of a transaction."""
        return Read(("transactions", str(txn)))

    def explain(self, txn: UUID) -> Read:
        """Why a transaction was decided as it was."""
        return Read(("transactions", str(txn), "explanation"))

    def bucket(self, zone: str, key: str) -> Read:
        """How a bucket stands now."""
        return Read(("zones", zone, "buckets", key))


class _Asker:
    """What both limiters do. Where its steps yield, the asynchronous one waits."""

    _transport: Callable[..., Any]
    _send: str
    _chunks: Callable[..., Any]
    _next: Callable[..., Any]
    _close: Callable[..., Any]

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        deadline: timedelta = timedelta(seconds=5),
        attempts: int = 64,
        transport: Callable[[], Any] | None = None,
    ) -> None:
        self._url = url
        self._base, path = _place(url)
        self._headers = _headers(token)
        self._patience = Patience(deadline, attempts)
        self._open = transport or (lambda: self._transport(uds=path))
        self._process, self._opened = 0, None

    def _connections(self) -> Any:
        """The transport of this process: one that was forked leaves its parent's connections alone."""
        if self._process != os.getpid():
            self._process, self._opened = os.getpid(), self._open()
        return self._opened

    def _once(self, route: Route[T], left: timedelta) -> Steps[T]:
        """One question and its answer. A redirection is no answer, and is not followed."""
        until = time.monotonic() + left.total_seconds()
        with translated():
            request = self._request(route, left)
        body = bytearray()
        try:
            response = yield getattr(self._connections(), self._send)(request)
            try:
                chunks = self._chunks(response.stream)
                while chunk := (yield self._next(chunks, b"")):
                    body += chunk
                    if len(body) > _ANSWER_BYTES_MAX:
                        raise TallygateError(f"{self._url} answered with more than {_ANSWER_BYTES_MAX} bytes")
                    if time.monotonic() > until:
                        raise Transient(f"{self._url} did not answer in time")
            finally:
                yield self._close(response)
        except httpx.TransportError as error:
            said = self._hidden(str(error))
            told = f"{self._url} did not answer: {said or type(error).__name__}"
            raise Transient(told) from (error if said == str(error) else None)
        return self._answer(route, response.status_code, bytes(body))

    def _request(self, route: Route[T], left: timedelta) -> httpx.Request:
        path, body = route.request()
        headers = self._headers.copy()
        if route.txn_id is not None:
            headers["Idempotency-Key"] = str(route.txn_id)
        if body is not None:
            headers["Content-Type"] = "application/json"
        return httpx.Request(
            "GET" if body is None else "POST",
            f"{self._base}/v1/{path}",
            headers=headers,
            content=None if body is None else json.dumps(body).encode(),
            extensions={"timeout": httpx.Timeout(max(left.total_seconds(), 0.001)).as_dict()},
        )

    def _answer(self, route: Route[T], status: int, body: bytes) -> T:
        """The answer, or the error that a problem document or a proxy's page stands for."""
        try:
            said = json.loads(body)
        except (ValueError, RecursionError):
            said = None
        if status == 200:
            try:
                return route.answer(said)
            except (ValueError, OverflowError) as error:
                raise TallygateError(
                    f"{self._url} answered something else than was asked: {error}"
                ) from error
        problem = said if isinstance(said, dict) else {}
        code, detail = problem.get("code"), problem.get("detail")
        if isinstance(code, str) and re.fullmatch("[a-z_]{1,40}", code):
            raise of_code(self._hidden(detail if isinstance(detail, str) else f"status {status}"), code)
        # Something that stands between answered, and not the server.
        kind = Transient if status >= 500 else TallygateError
        raise kind(f"{self._url} answered with the status {status} and no problem document")

    def _hidden(self, text: str) -> str:
        """What somebody else said, in one line, short, and without the token if it is in there."""
        token = self._headers.get("Authorization", "").removeprefix("Bearer ")
        text = text.replace(token, "…") if token else text
        return "".join(letter if letter.isprintable() else " " for letter in text[:500])


class HttpLimiter(_Asker):
    """As `Limiter`, by a server.

    `url` is where the server listens: `http://localhost:7411`, `https://…`, `unix:/run/tallygate.sock`.
    `token` is sent with each request and shown nowhere. `transport` makes the transport of httpx in place of
    the one that the URL asks for, for certificates and proxies of one's own; the environment names none.

    A call is asked again, under the same transaction id, after a lost answer, a 503 or a proxy's error, until
    `deadline` is over or `attempts` are used up; then Transient carries the id. ValueError where the URL or
    the token is none. Threads may share it.

    >>> limiter = HttpLimiter("http://localhost:7411", token=os.environ.get("TALLYGATE_TOKEN"))
    """

    _transport = httpx.HTTPTransport
    _send, _chunks, _next = "handle_request", iter, next
    _close = staticmethod(httpx.Response.close)

    check = called(Asking.check)
    check_all = called(Asking.check_all)
    peek = called(Asking.peek)
    reserve = called(Asking.reserve)
    settle = called(Asking.settle)
    cancel = called(Asking.cancel)
    refund = called(Asking.refund)
    release = called(Asking.release)
    history = called(Reading.history)
    transaction = called(Reading.transaction)
    explain = called(Reading.explain)
    bucket = called(Reading.bucket)

    def call(self, route: Route[T]) -> T:
        """Asks until it is answered or the deadline is over."""
        return self._patience.run(lambda left: steps.run(self._once(route, left)), route.txn_id)

    def close(self) -> None:
        """Closes the connections."""
        self._connections().close()

    def __enter__(self) -> HttpLimiter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _closed(response: httpx.Response) -> None:
    """Closes it though who asked is cancelled meanwhile: the pool would lose the connection for ever."""
    await asyncio.shield(response.aclose())


class AsyncHttpLimiter(_Asker):
    """As `HttpLimiter`, for an asynchronous program and one event loop."""

    _transport = httpx.AsyncHTTPTransport
    _send, _chunks, _next = "handle_async_request", aiter, anext
    _close = staticmethod(_closed)

    check = called_async(Asking.check)
    check_all = called_async(Asking.check_all)
    peek = called_async(Asking.peek)
    reserve = called_async(Asking.reserve)
    settle = called_async(Asking.settle)
    cancel = called_async(Asking.cancel)
    refund = called_async(Asking.refund)
    release = called_async(Asking.release)
    history = called_async(Reading.history)
    transaction = called_async(Reading.transaction)
    explain = called_async(Reading.explain)
    bucket = called_async(Reading.bucket)

    async def call(self, route: Route[T]) -> T:
        """As `HttpLimiter.call`."""
        return await self._patience.run_async(
            lambda left: steps.run_async(self._once(route, left)), route.txn_id
        )

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._connections().aclose()

    async def __aenter__(self) -> AsyncHttpLimiter:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _place(url: str) -> tuple[str, str | None]:
    """Where requests go, and the socket that they go through."""
    if url.startswith("unix:/"):
        return "http://localhost", url.removeprefix("unix:")
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL()
    rest = parsed.userinfo or parsed.query or parsed.fragment
    if parsed.scheme not in ("http", "https") or not parsed.host or rest:
        # It is not repeated, since a password may be in it.
        raise ValueError(
            "the URL of a server is as http://localhost:7411 or unix:/run/tallygate.sock, and no more"
        )
    return url.rstrip("/"), None


def _headers(token: str | None) -> httpx.Headers:
    """What every request has. httpx does not show the value of Authorization."""
    headers = httpx.Headers({"Accept": "application/json", "Accept-Encoding": "identity"})
    if token is not None:
        if not re.fullmatch(r"[A-Za-z0-9._~+/=-]+", token):
            raise ValueError("the token is empty, or has what no token has; tallygate token add makes one")
        headers["Authorization"] = f"Bearer {token}"
    return headers
