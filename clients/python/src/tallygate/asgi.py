"""Middleware for ASGI: FastAPI, Starlette, Django, Quart."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from . import steps
from .address import ClientAddress
from .asking import AsyncChecks, Checks
from .refusal import Refusal, admit

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class RateLimitMiddleware:
    """Lets a request reach the application only where its check passes.

    A blocked one is answered with 429; one of which `key` says None, or whose key cannot be stored, with 400;
    with 503 while the database does not answer, and with 500 where the zone is missing, SQL does not decide
    it, or a right is missing. The opening of a WebSocket is checked too. The application finds the decision
    in `scope["tallygate.decision"]`.

    `zone` is a zone, or says by which one a request is limited: by none where it answers None.

    `key` says whose request it is: the client's address unless told otherwise, see `ClientAddress`. A
    limiter that blocks is called in threads; each request is one check of cost 1.
    """

    def __init__(
        self,
        app: App,
        limiter: AsyncChecks | Checks,
        zone: str | int | Callable[[Scope], str | int | None],
        key: ClientAddress | Callable[[Scope], str | None] | None = None,
    ) -> None:
        key = key or ClientAddress()
        self._app = app
        check: Callable[..., Any] = limiter.check
        if not inspect.iscoroutinefunction(check):
            check = functools.partial(asyncio.to_thread, check)
        self._check = check
        self._zone = zone if callable(zone) else lambda _: zone
        self._key = key.of_scope if isinstance(key, ClientAddress) else key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application."""
        if scope["type"] not in ("http", "websocket"):
            return await self._app(scope, receive, send)
        zone = self._zone(scope)
        if zone is None:
            return await self._app(scope, receive, send)
        admitted = await steps.run_async(admit(self._key(scope), functools.partial(self._check, zone)))
        if isinstance(admitted, Refusal):
            return await _refuse(admitted, scope, receive, send)
        return await self._app({**scope, "tallygate.decision": admitted}, receive, send)


async def _refuse(refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
    kind = "http.response"
    if scope["type"] == "websocket":
        await receive()  # websocket.connect
        if "websocket.http.response" not in (scope.get("extensions") or {}):
            return await send({"type": "websocket.close", "code": 1013})  # the server answers with 403
        kind = "websocket.http.response"
    headers = [(name.encode(), value.encode()) for name, value in refusal.headers]
    await send({"type": f"{kind}.start", "status": refusal.status, "headers": headers})
    return await send({"type": f"{kind}.body", "body": refusal.body})
